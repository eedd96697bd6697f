"""A function as a graph of row-wise stages, as a smith and the kernels' writer read an operation.

operations.py gives the `Program` of an operation, from data or by trace.py; trace.py turns a
PyTorch function into one: capture.py, host_numbers.py, reading.py; aten/ reads ATen operations as
values: values.py, views.py, windows.py, expressions.py, axes.py; stages.py turns values into
stages: loops.py, layout.py; program.py holds the result as plain data, and shows it as text;
evaluate.py computes it.

Only capture.py, host_numbers.py, reading.py, trace.py and evaluate.py import torch.
"""

"""Records of the fastest kernels: a crown per operation, timed cell, device, and versions of torch
and Triton.
"""

"""The deterministic kernel writer: Triton source for a stage of a graph, in several structures.

Its kernels are the floor under the smith's drafts, and the answers in the smith's training data.
It measures nothing: `write.py` chooses a structure by the stage's example shape.
"""

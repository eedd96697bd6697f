"""The referee's own kernels that timing a cell needs, compiled before a verdict waits for them.

Triton compiles them for every kind of arguments, which takes a third of a second for an operation whose traffic has another ratio of
reads to writes than those before. Runs in the replay worker, CUDA only.
"""

from __future__ import annotations

import secrets

import torch

from referee.measuring.fingerprint import Room, fingerprint, fingerprints
from referee.measuring.floor import Floor, bytes_moved
from referee.measuring.mixing import Mixed
from referee.measuring.stage import mixed_positions
from referee.ops.spec import Cell
from referee.ops.task import Task

BITS = 63  # of keys and of seeds


def compile_own(task: Task, cell: Cell) -> None:
    """Launch each once, on values of the cell's kinds and sizes. Raises torch.OutOfMemoryError."""
    inputs = task.inputs(cell, 0, "cuda")
    outputs = [torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device="cuda") for spec in cell.outputs]
    key, room = 1 << (BITS - 1) | secrets.randbits(BITS - 1), Room("cuda")
    for tensor in (*inputs, *outputs):
        fingerprint(tensor, key, room)
        fingerprints([tensor, tensor], key)
    for position in mixed_positions(inputs):
        Mixed(inputs[position].contiguous(), inputs[position].contiguous(), key).made()
    Floor(*bytes_moved(cell), None)

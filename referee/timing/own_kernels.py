"""Compiles the referee's kernels for timing a test case before a verdict waits for them.

Triton compiles them for every kind of arguments. That takes a third of a second for a new ratio of
reads to writes. Runs in the replay worker, CUDA only.
"""

from __future__ import annotations

import secrets

import torch

from referee.ops.spec import Cell
from referee.ops.task import Task
from referee.timing.fingerprint import DigestBuffer, fingerprint, fingerprints
from referee.timing.floor import Floor, bytes_moved
from referee.timing.mixing import Mixed
from referee.timing.stage_layout import mixed_positions

BITS = 63  # of keys and of seeds


def compile_own(task: Task, cell: Cell) -> None:
    """Launches each kernel once, on values of these sizes. Raises torch.OutOfMemoryError."""
    inputs = task.inputs(cell, 0, "cuda")
    outputs = [
        torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device="cuda")
        for spec in cell.outputs
    ]
    key, room = 1 << (BITS - 1) | secrets.randbits(BITS - 1), DigestBuffer("cuda")
    for tensor in (*inputs, *outputs):
        fingerprint(tensor, key, room)
        fingerprints([tensor, tensor], key)
    for position in mixed_positions(inputs, cell):
        Mixed(inputs[position].contiguous(), inputs[position].contiguous(), key).made()
    Floor(*bytes_moved(cell), None)

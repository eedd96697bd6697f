"""A source made ready for replay workers again and again: for callers that measure and want no verdict (the gate, the grid).

Traced in a sandbox, compiled, and its autotuned launches settled by the worker that will measure them. Torch-free on this side.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from referee.device.gpu import Replayer
from referee.device.jobs import Prepared
from referee.device.prepare import prepare, settle
from referee.ops.fresh_cells import fresh_cells
from referee.ops.spec import Cell
from referee.sandbox.zygote import Zygote
from referee.subject import Subject, required
from referee.target import Target
from referee.verdict import Rejection


class Candidate:
    """One source for one op. `cache` is where compiled kernels are kept; None keeps none.

    Every method raises ReplayerError, ZygoteError, JobLost, ToolchainError or UnknownTriton when the machinery fails.
    """

    def __init__(self, source: str, subject: Subject, workers: Zygote, *, cache: Path | None = None) -> None:
        if subject.name is None:
            raise ValueError("a replay worker cannot load a task that only this process holds")
        self._source, self._subject, self._name = source, subject, subject.name
        self._workers, self._cache = workers, cache

    def everywhere(self, replayer: Replayer, seed: int) -> Prepared | Rejection:
        """Ready at every cell of the contract, the timed one and the fresh ones of this seed included."""
        fresh = fresh_cells(self._subject.op, seed, gpu=True, multiprocessors=_target(replayer).properties.multi_processor_count)
        return self._ready(replayer, [*required(self._subject.cells("gpu")), *fresh], seed)

    def at(self, replayer: Replayer, cell: Cell, seed: int) -> Prepared | Rejection:
        """Ready at one cell; an autotuned launch is settled for that cell, as Triton itself would do it."""
        return self._ready(replayer, [cell], seed)

    def _ready(self, replayer: Replayer, cells: Sequence[Cell], seed: int) -> Prepared | Rejection:
        found = prepare(self._workers, self._source, self._name, cells, _target(replayer), cache=self._cache)
        return found if isinstance(found, Rejection) else settle(replayer, found, seed=seed)


def _target(replayer: Replayer) -> Target:
    device = replayer.environment()
    return Target.from_json(device["target"]) if device.get("target") else Target(arch=device["arch"])

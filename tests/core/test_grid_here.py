"""A grid on the GPU of this process: traces and compilations are real, the replay worker is stood
in for.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kmint_tui.core.farm import here
from kmint_tui.core.farm.here import FarmHere
from kmint_tui.core.farm.job import Job, Place, Versions
from kmint_tui.core.grid import measured, wanted_cells
from kmint_tui.core.kernel_choice import Kernel
from kmint_tui.documents import rounded
from kmint_tui.errors import EnvironmentUnfit
from referee import ops
from referee.gpu.compile_candidate import CandidateSource
from referee.gpu.jobs import Checked, CompiledCandidate
from referee.gpu.replayer import ReplayerError
from referee.problem import TaskName
from referee.timing.measurement import Timing, TimingOptions
from referee.verdict import Rejection
from tests.core.timing_stand_in import DEVICE, TimingStandIn
from tests.referee.stand_in import checked
from tests.save.test_host_code import GOOD

KERNEL = Kernel(GOOD, ops.get("softmax"), TaskName("softmax"), "softmax.py", "file")
SHAPES = ("64x128", "128x256", "64x512")
CELLS = wanted_cells(KERNEL, SHAPES, "float16")


class Worker(TimingStandIn):
    """A replay worker whose profile is known."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.spent = {"loading torch": 1.234}


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("referee.gpu.replayer.Replayer", Worker)
    monkeypatch.setattr(here, "visible_device", lambda: DEVICE)
    # The kernels of all cells of an operation take minutes to compile on few cores.
    monkeypatch.setattr(
        CandidateSource,
        "everywhere",
        lambda self, replayer, seed: self.at(replayer, CELLS[0], seed),
    )


def notes_of(found: list[str]) -> list[str]:
    return sorted(line.partition(": ")[2].partition(":")[0] for line in found[1:])


@pytest.mark.usefixtures("gpu")
def test_every_cell_is_measured_and_the_time_is_told() -> None:
    notes: list[str] = []
    found = measured(KERNEL, CELLS, notes.append, again=False, demand="any")
    assert [(point.rows, point.columns) for point in found.points] == [
        (64, 128),
        (128, 256),
        (64, 512),
    ]
    assert {point.decision for point in found.points} <= {"win", "loss"}
    assert notes_of(notes) == ["128 x 256 float16", "64 x 128 float16", "64 x 512 float16"]
    seconds = found.to_json()["seconds"]
    assert set(seconds["cells"]) == {"preparing", "checking", "timing"}
    assert seconds["worker"] == {"loading torch": 1.23} and seconds["wall"] >= seconds["starting"]
    again = measured(KERNEL, CELLS, notes.append, again=False, demand="any")
    assert again.earlier == 3 and again.points == found.points


@pytest.mark.usefixtures("gpu")
def test_a_wrong_kernel_has_no_point(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(self: Worker, prepared: CompiledCandidate, *, seed: int) -> Checked:
        found = checked([job.cell for job in prepared.jobs], ())
        rejection = Rejection("correct", "wrong_answer", "row 3")
        return Checked(found.cells, rejection, found.checks)

    monkeypatch.setattr(Worker, "check", check)
    found = measured(KERNEL, CELLS, lambda _: None, again=False, demand="any")
    assert (found.points, found.rejection) == ((), Rejection("correct", "wrong_answer", "row 3"))


@pytest.mark.usefixtures("gpu")
def test_the_next_kernel_compiles_while_one_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first measurement ends after three checks: of the kernel, of its cell, and of another."""
    came, first = threading.Semaphore(0), threading.Lock()
    met, timing = list[bool](), threading.Event()
    check, time, asked = Worker.check, Worker.time, Worker.environment

    def checks(self: Worker, prepared: CompiledCandidate, *, seed: int) -> Checked:
        came.release()
        return check(self, prepared, seed=seed)

    def times(
        self: Worker,
        prepared: CompiledCandidate,
        *,
        seed: int,
        options: TimingOptions | None = None,
    ) -> Timing:
        if first.acquire(blocking=False):
            timing.set()
            met.append(all(came.acquire(timeout=120) for _ in range(3)))
            timing.clear()
        return time(self, prepared, seed=seed, options=options)

    def environment(self: Worker) -> dict[str, Any]:
        assert not timing.is_set(), "a worker that times answers nothing else"
        return asked(self)

    monkeypatch.setattr(Worker, "check", checks)
    monkeypatch.setattr(Worker, "time", times)
    monkeypatch.setattr(Worker, "environment", environment)
    assert len(measured(KERNEL, CELLS[:2], lambda _: None, again=False, demand="any").points) == 2
    assert met == [True]


@pytest.mark.usefixtures("gpu")
def test_a_cell_under_way_is_broken_off_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    began, broken = threading.Event(), threading.Event()

    def time(self: Worker, *_: Any, **__: Any) -> Timing:
        self.busy = True
        began.set()
        assert broken.wait(60)
        raise ReplayerError("interrupted")

    monkeypatch.setattr(Worker, "time", time)
    monkeypatch.setattr(Worker, "interrupt", lambda self: broken.set())
    base: dict[str, Any] = {
        "op": "softmax",
        "device": DEVICE,
        "versions": Versions.here(),
        "demand": "any",
    }
    with FarmHere(at_once=2) as farm:
        place = Place(rows=64, columns=128, dtype="float16")
        future = farm.submit(Job(do="cell", sources=(GOOD,), cell=place, **base))
        assert began.wait(120) and (farm.free, farm.devices, farm.places) == (0, 1, 2)
    assert future.result().done["point"]["decision"] == "error" and farm.free == 1


def test_a_job_for_another_device_is_refused() -> None:
    job = Job(
        do="begin", sources=(GOOD,), op="softmax", device="NVIDIA H100", versions=Versions.here()
    )
    with FarmHere(at_once=1) as farm, pytest.raises(EnvironmentUnfit, match="needs NVIDIA H100"):
        farm.submit(job).result()


def test_hundredths_stand_in_a_document() -> None:
    assert rounded({"wall": 1.23456, "cells": {"timing": 2.0}, "verdicts": 3}) == {
        "wall": 1.23,
        "cells": {"timing": 2.0},
        "verdicts": 3,
    }

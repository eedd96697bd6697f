"""Replay workers on a busy host: what it costs a kernel, and what a kernel that hangs still costs.
The waits for a processor are made up; the processes are real.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from referee.case_runs import TIMEOUT
from referee.gpu import warm_worker, wire, worker_process
from referee.gpu.jobs import CompiledCandidate
from referee.gpu.replayer import Replayer
from referee.gpu.warm_worker import HostBusy
from referee.gpu.worker_process import WorkerLost, WorkerProcess, WorkerStep
from referee.problem import TaskName
from referee.sandbox.clock import Reading, ThreadTime
from tests.referee.gpu.test_worker_process import cell_of, job

SECONDS = 0.1
HANGS = """
import sys, time
from referee.gpu import wire

wire.send(1, wire.frame({"progress": "replaying it", "seconds": 0.1, "whose": "candidate"}))
time.sleep(3600)
"""


def waiting(pid: int) -> Reading:
    """A thread that gets no processor."""
    return {pid: ThreadTime(ran=0.0, waited=time.monotonic(), state="R")}


@pytest.fixture
def starving(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_process, "threads_of", waiting)


def hanging(folder: Path, monkeypatch: pytest.MonkeyPatch) -> WorkerProcess:
    """A worker that waits without end while a kernel of the candidate runs."""
    (folder / "hanging_worker.py").write_text(HANGS, encoding="utf-8")
    monkeypatch.syspath_prepend(str(folder))
    return WorkerProcess(folder, "hanging_worker")


def lost(worker: WorkerProcess) -> WorkerLost:
    try:
        with pytest.raises(WorkerLost) as found:
            worker.request(wire.frame({"do": "hello"}), seconds=240.0)
        assert not worker.alive
        return found.value
    finally:
        worker.close()


def test_a_worker_that_waits_for_its_gpu_is_out_of_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = lost(hanging(tmp_path, monkeypatch))
    assert (found.how, found.step) == ("timeout", WorkerStep("replaying it", "candidate"))


@pytest.mark.usefixtures("starving")
def test_a_worker_without_a_processor_is_starved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = lost(hanging(tmp_path, monkeypatch))
    assert (found.how, found.step.whose) == ("starved", "candidate")
    assert "too busy" in found.detail and "judge again" in found.detail


def test_a_starved_request_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Replayer(device="cpu", cache=tmp_path) as replayer:
        replayer.environment()
        assert replayer.pid is not None
        os.kill(replayer.pid, signal.SIGSTOP)
        with monkeypatch.context() as patched:
            patched.setattr(worker_process, "threads_of", waiting)
            patched.setattr(warm_worker, "FIRST_STEP_SECONDS", SECONDS)
            with pytest.raises(HostBusy, match="judge again"):
                replayer.environment()
        assert replayer.started == 2, "it was replaced, and not asked again"
        assert replayer.environment()["torch"]


def test_capabilities_of_a_busy_host_are_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [job(cell_of("relu2", label)) for label in ("padded-x1", "offset")]
    replayer = Replayer(device="cpu")

    def busy(message: dict[str, Any], blobs: Sequence[bytes] = ()) -> dict[str, Any]:
        raise HostBusy("the machine was too busy")

    monkeypatch.setattr(replayer, "_ask", busy)
    found = replayer.check(CompiledCandidate(TaskName("relu2"), tuple(jobs)), seed=1)
    assert found.rejection is None
    assert [(one.name, one.status, one.guard) for one in found.cells] == [
        (one.cell.name, "skipped", TIMEOUT) for one in jobs
    ]
    needed = replace(jobs[0], cell=replace(jobs[0].cell, role="required"))
    with pytest.raises(HostBusy, match="too busy"):
        replayer.check(CompiledCandidate(TaskName("relu2"), (needed, jobs[1])), seed=1)

"""The replay worker as a process: answers, refusals, restarts, kills. On the CPU device; launches
are tried in the gpu tests.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from referee import ops
from referee.compiling.binaries import Binary
from referee.gpu import wire
from referee.gpu.jobs import CompiledCandidate, ReplayJob, pack_jobs, unpack_jobs
from referee.gpu.replayer import Replayer, ReplayerError
from referee.gpu.worker_process import WorkerLost, WorkerProcess, WorkerStep
from referee.ops.spec import Cell
from referee.plans.plan import Argument, Buffer, Fill, Launch, LaunchConfig, LaunchPlan, View
from referee.plans.plan_check import input_nbytes, input_view
from referee.problem import TaskName


def cell_of(op: str, label: str) -> Cell:
    return next(cell for cell in ops.cells(ops.get(op), profile="gpu") if label in cell.name)


def launching_plan(cell: Cell) -> LaunchPlan:
    inputs = tuple(input_view(index, spec) for index, spec in enumerate(cell.inputs))
    buffers = [Buffer(input_nbytes(spec), index) for index, spec in enumerate(cell.inputs)]
    (out,) = cell.outputs
    output = View(len(buffers), 0, out.shape, out.strides, out.dtype)
    size = out.shape[0] * out.shape[1] * (4 if out.dtype == "float32" else 2)
    config = LaunchConfig(
        (1, 1, 1), (Argument("x", inputs[0], False), Argument("o", output, False))
    )
    return LaunchPlan((*buffers, Buffer(size)), inputs, (Launch("k", (config,)),), (output,))


def job(cell: Cell) -> ReplayJob:
    binary = Binary(
        kernel="k",
        key="",
        image=b"\x7fELF not a cubin",
        name="k",
        shared=0,
        num_warps=4,
        registers=32,
        spills=None,
        parameters=("*fp32", "*fp32"),
        paths=((0,), (1,)),
    )
    return ReplayJob(cell, launching_plan(cell), {(0, 0): binary})


def asking(
    monkeypatch: pytest.MonkeyPatch,
    replayer: Replayer,
    before: Callable[[dict[str, Any]], None] = lambda _: None,
) -> list[list[str]]:
    """The cells of each request from now on; `before` may raise in its stead."""
    asked: list[list[str]] = []
    ask = replayer._ask

    def noted(message: dict[str, Any], blobs: Sequence[bytes] = ()) -> dict[str, Any]:
        asked.append([packed["cell"]["name"] for packed in message["jobs"]])
        before(message)
        return ask(message, blobs)

    monkeypatch.setattr(replayer, "_ask", noted)
    return asked


@pytest.fixture(scope="module")
def replayer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replayer]:
    with Replayer(device="cpu", cache=tmp_path_factory.mktemp("cache")) as found:
        yield found


def test_the_environment_is_reported(replayer: Replayer) -> None:
    before = replayer.seconds
    found = replayer.environment()
    assert replayer.seconds > before
    assert found["python"] == sys.version.split()[0]
    assert found["torch"]


def test_an_empty_cell_passes_without_a_kernel(replayer: Replayer) -> None:
    cell = replace(cell_of("relu2", "empty"), role="required")
    given = replace(launching_plan(cell), steps=())
    found = replayer.check(
        CompiledCandidate(TaskName("relu2"), (ReplayJob(cell, given, {}),)), seed=1
    )
    assert found.rejection is None
    assert [result.status for result in found.cells] == ["pass"]
    assert {check.status for check in found.checks} == {"pass"}


def test_a_launch_on_the_cpu_is_a_rejection_with_its_guard(replayer: Replayer) -> None:
    cells = [cell_of("relu2", "f32-37x4097"), cell_of("relu2", "f16-1001x127")]
    found = replayer.check(
        CompiledCandidate(TaskName("relu2"), tuple(job(cell) for cell in cells)), seed=1
    )
    assert found.rejection is not None
    assert (found.rejection.stage, found.rejection.guard) == ("correct", "kernel_error")
    assert [result.status for result in found.cells] == ["fail", "skipped"]
    assert next(check for check in found.checks if check.name == "kernel_error").status == "fail"


def test_a_capability_that_fails_rejects_nothing(replayer: Replayer) -> None:
    found = replayer.check(
        CompiledCandidate(TaskName("relu2"), (job(cell_of("relu2", "padded")),)), seed=1
    )
    assert found.rejection is None
    assert found.cells[0].status == "fail"


def test_capabilities_are_asked_for_at_once(
    replayer: Replayer, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [job(cell_of("relu2", label)) for label in ("padded-x1", "padded-aligned", "offset")]
    asked = asking(monkeypatch, replayer)
    found = replayer.check(CompiledCandidate(TaskName("relu2"), tuple(jobs)), seed=1)
    assert [result.status for result in found.cells] == [
        "fail",
        "fail",
        "fail",
    ] and found.rejection is None
    assert asked == [[one.cell.name for one in jobs]]


def test_what_one_capability_kept_from_an_answer_is_asked_again(
    replayer: Replayer, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [job(cell_of("relu2", label)) for label in ("padded-x1", "padded-aligned", "offset")]
    names = [one.cell.name for one in jobs]

    def fails(message: dict[str, Any]) -> None:
        if names[1] in [packed["cell"]["name"] for packed in message["jobs"]]:
            raise WorkerLost("timeout", WorkerStep(f"replaying {names[1]}", "candidate"), "")

    asked = asking(monkeypatch, replayer, fails)
    found = replayer.check(CompiledCandidate(TaskName("relu2"), tuple(jobs)), seed=1)
    assert found.rejection is None
    assert ["did not end" in result.detail for result in found.cells] == [False, True, False]
    assert {result.status for result in found.cells} == {"fail"}
    assert asked == [names, [names[0], names[2]]]


def test_an_unsound_plan_of_a_capability_leaves_them_unreached(replayer: Replayer) -> None:
    cells = [cell_of("relu2", label) for label in ("padded-x1", "offset")]
    beyond = replace(
        launching_plan(cells[0]), steps=(Fill(View(1, 0, (1 << 30,), (1,), "float32"), 0.0),)
    )
    found = replayer.check(
        CompiledCandidate(TaskName("relu2"), (ReplayJob(cells[0], beyond, {}), job(cells[1]))),
        seed=1,
    )
    assert [(result.status, result.detail) for result in found.cells] == [
        ("skipped", "not reached")
    ] * 2 and found.rejection is None


def test_an_unsound_plan_is_refused_by_the_worker_too(replayer: Replayer) -> None:
    cell = cell_of("relu2", "f32-37x4097")
    beyond = replace(
        launching_plan(cell), steps=(Fill(View(1, 0, (1 << 30,), (1,), "float32"), 0.0),)
    )
    found = replayer.check(
        CompiledCandidate(TaskName("relu2"), (ReplayJob(cell, beyond, {}),)), seed=1
    )
    assert found.rejection is not None
    assert found.rejection.stage == "trace"
    assert "beyond its buffer" in found.rejection.reason


def test_an_unknown_op_fails_and_the_next_request_works(replayer: Replayer) -> None:
    with pytest.raises(ReplayerError, match="UnknownOp"):
        replayer.check(
            CompiledCandidate(TaskName("no_such_op"), (job(cell_of("relu2", "padded")),)), seed=1
        )
    assert replayer.environment()["torch"]


def test_a_killed_worker_is_replaced_and_the_request_answered(replayer: Replayer) -> None:
    replayer.environment()
    before, pid = replayer.started, replayer.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert replayer.environment()["torch"]
    assert replayer.started == before + 1


def test_a_worker_killed_while_it_answers_is_replaced_once(replayer: Replayer) -> None:
    replayer.environment()
    pid = replayer.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    # The signal is delivered when the stopped process would continue: the request is already on its
    # way then.
    os.kill(pid, signal.SIGKILL)
    assert replayer.environment()["torch"]
    assert replayer.pid not in (None, pid)


def test_an_interrupted_request_fails_and_the_next_one_works(replayer: Replayer) -> None:
    replayer.environment()
    pid = replayer.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    caught: list[ReplayerError] = []

    def ask() -> None:
        with pytest.raises(ReplayerError) as error:
            replayer.environment()
        caught.append(error.value)

    asking = threading.Thread(target=ask)
    asking.start()
    while not replayer.busy and asking.is_alive():
        asking.join(0.001)
    replayer.interrupt()
    asking.join()
    assert [str(error) for error in caught] == ["interrupted"]
    assert replayer.environment()["torch"]


def test_an_interrupt_between_two_polls_is_not_lost(
    replayer: Replayer, monkeypatch: pytest.MonkeyPatch
) -> None:
    replayer.environment()
    worker = replayer._first
    running = worker._running

    def interrupted() -> WorkerProcess:
        monkeypatch.undo()
        replayer.interrupt()
        return running()

    monkeypatch.setattr(worker, "_running", interrupted)
    with pytest.raises(ReplayerError, match="interrupted"):
        replayer.environment()
    assert replayer.environment()["torch"]


def test_a_request_to_a_deaf_worker_misses_its_deadline(tmp_path: Path) -> None:
    worker = WorkerProcess(tmp_path, "referee.gpu.replay_worker", "cpu")
    os.kill(worker.pid, signal.SIGSTOP)
    with pytest.raises(WorkerLost) as lost:
        worker.request(wire.frame({"do": "hello"}, [bytes(8 << 20)]), seconds=0.1)
    assert lost.value.how == "timeout"
    worker.close()


def test_a_request_that_stalls_is_not_named_by_an_older_step(tmp_path: Path) -> None:
    worker = WorkerProcess(tmp_path, "referee.gpu.replay_worker", "cpu")
    cell = cell_of("relu2", "empty")
    empty = CompiledCandidate(
        TaskName("relu2"), (ReplayJob(cell, replace(launching_plan(cell), steps=()), {}),)
    )
    packed, _ = pack_jobs(empty.jobs)
    worker.request(
        wire.frame({"do": "check", "seed": 1, "jobs": packed, **empty.message()}), seconds=240
    )
    assert cell.name in worker.step.text
    os.kill(worker.pid, signal.SIGSTOP)
    with pytest.raises(WorkerLost) as lost:
        worker.request(wire.frame({"do": "hello"}), seconds=0.1)
    assert lost.value.step == WorkerStep("starting on the request", "referee")
    worker.close()


@pytest.mark.parametrize("words", ["replaying {}", "replaying {} again"])
def test_the_cell_at_which_a_kernel_hangs_is_named(
    words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [job(cell_of("relu2", label)) for label in ("f32-37x4097", "f16-1001x127")]
    names = [one.cell.name for one in jobs]

    def hang(*_: object) -> dict[str, object]:
        raise WorkerLost("timeout", WorkerStep(words.format(names[1]), "candidate"), "")

    replayer = Replayer(device="cpu")
    monkeypatch.setattr(replayer, "_ask", hang)
    found = replayer.check(CompiledCandidate(TaskName("relu2"), tuple(jobs)), seed=1)
    assert found.rejection is not None and found.rejection.guard == "timeout"
    assert [(cell.name, cell.status) for cell in found.cells] == [
        (names[0], "skipped"),
        (names[1], "fail"),
    ]


def test_a_missed_deadline_ends_the_whole_process_group(tmp_path: Path) -> None:
    worker = WorkerProcess(tmp_path, "referee.gpu.replay_worker", "cpu")
    os.kill(worker.pid, signal.SIGSTOP)
    with pytest.raises(WorkerLost) as lost:
        worker.request(wire.frame({"do": "hello"}), seconds=0.1)
    assert lost.value.how == "timeout"
    assert not worker.alive
    with pytest.raises(ProcessLookupError):
        os.killpg(worker.pid, 0)
    worker.close()


def test_the_worker_does_not_outlive_its_parent(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path; from referee.gpu.replayer import Replayer\n"
        "replayer = Replayer(device='cpu', cache=Path(sys.argv[1])); replayer.environment()\n"
        "print(replayer.pid, flush=True); os._exit(0)\n"
    )
    root = Path(ops.__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        cwd=root,
        stdout=subprocess.PIPE,
        check=True,
        timeout=600,
    )
    pid = int(done.stdout)
    try:
        # Readable as soon as the process has ended.
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    poll = select.poll()
    poll.register(handle)
    assert poll.poll(240_000)
    os.close(handle)


def test_jobs_survive_the_wire() -> None:
    jobs = [job(cell_of("relu2", "f32-37x4097")), job(cell_of("relu2", "padded"))]
    packed, blobs = pack_jobs(jobs)
    assert len(blobs) == 1
    assert unpack_jobs(packed, blobs) == jobs


def test_availability_is_a_sentence_or_none() -> None:
    found = Replayer.available()
    assert found is None or found.strip()


def test_a_gpu_is_not_needed_to_say_that_there_is_none() -> None:
    program = "import sys; from referee.gpu.replayer import Replayer; Replayer.available(); print('torch' in sys.modules)"
    root = Path(ops.__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, stdout=subprocess.PIPE, check=True, timeout=600
    )
    assert done.stdout.strip() == b"False"

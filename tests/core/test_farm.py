"""Several devices: the options, jobs as data, worker processes, and what is judged only once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from kmint_tui.core.farm.devices import CPU, Device, chosen, parse_gpus
from kmint_tui.core.farm.farm import Answer, Count, Tell, as_they_end
from kmint_tui.core.farm.grids import FarmGrid, KernelRejected, gate_on
from kmint_tui.core.farm.job import Job, Versions, opened, task_fields, task_of
from kmint_tui.core.farm.judging import FarmJudge
from kmint_tui.core.farm.local import LocalFarm
from kmint_tui.core.farm.verdicts import Found, Wanted, judge_all
from kmint_tui.core.farm.work import Workbench
from kmint_tui.core.keeping import Keeper
from kmint_tui.core.kernel_choice import Kernel
from kmint_tui.documents import compact, parse_json
from kmint_tui.errors import EnvironmentUnfit, KmintError, UsageError
from kmint_tui.typed import made
from referee import ops
from referee.grid import GridPoint, grid_cells, identity_of, place_of, read_record
from referee.problem import TaskName
from referee.verdict import Verdict
from tests.processes import still_living
from tests.save.test_host_code import GOOD

H200 = tuple(Device(number, "NVIDIA H200", f"GPU-{number}") for number in range(4))
MIXED = (*H200, Device(4, "NVIDIA A100", "GPU-4"))
CPUS = (Device(0, CPU, ""), Device(1, CPU, ""))
HERE = Versions("0.1", "2.13", "3.7")
JOB = Job(do="judge", sources=(GOOD,), op="softmax", device=CPU, versions=HERE, level="screen")
REFERENCE = "from factor import two\n\n\ndef shifted(x):\n    return x * two + 1\n"
KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def _kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, x * 2.0 + SHIFT, mask=at < n)


def run(x):
    y = torch.empty_like(x)
    n = x.numel()
    _kernel[(triton.cdiv(n, 64),)](x, y, n, BLOCK=64)
    return y
"""


class Answers:
    """A farm whose answers come from a function, the last given out first."""

    device, devices, places = "NVIDIA H200", 2, 4
    free = 2
    spent: dict[str, float] = {}

    def __init__(self, answer: Callable[[Job], dict[str, Any]]) -> None:
        self._answer = answer
        self.jobs: list[Job] = []

    def submit(
        self, job: Job, tell: Tell = lambda step: None, count: Count = lambda done, total: None
    ) -> Future[Answer]:
        self.jobs.append(job)
        future: Future[Answer] = Future()
        future.set_result(Answer(self._answer(job), "others idle"))
        return future


@pytest.fixture
def reference(tmp_path: Path) -> TaskName:
    """A function of two files, at a tiny size."""
    (tmp_path / "shifted.py").write_text(REFERENCE, encoding="utf-8")
    (tmp_path / "factor.py").write_text("two = 2\n", encoding="utf-8")
    return TaskName("shifted", str(tmp_path / "shifted.py"), "shifted", ("x=f32[4,8]",))


@pytest.mark.parametrize(
    ("text", "wanted"), [("all", "all"), ("2", 2), ("0,2", (0, 2)), ("3,1,0", (3, 1, 0))]
)
def test_the_ways_to_name_cards(text: str, wanted: object) -> None:
    assert parse_gpus(text) == wanted


@pytest.mark.parametrize("text", ["", "0", "two", "0,", "-1", "1,1", "0;2", "²", "9999999"])
def test_a_malformed_list_of_cards_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--gpus"):
        parse_gpus(text)


def test_only_cards_of_one_kind_are_chosen() -> None:
    assert [device.index for device in chosen((0, 2), MIXED)] == [0, 2]
    assert chosen(2, MIXED) == H200[:2] and chosen("all", H200) == H200
    with pytest.raises(EnvironmentUnfit, match=r"0,1,2,3 NVIDIA H200; 4 NVIDIA A100"):
        chosen("all", MIXED)
    for wanted in ((0, 7), 6):
        with pytest.raises(EnvironmentUnfit, match="not there: this host has 0 NVIDIA H200"):
            chosen(wanted, MIXED)


def test_a_job_is_named_by_its_content() -> None:
    again = made(Job, parse_json(compact(asdict(JOB))), "the job")
    assert again == JOB and again.address == JOB.address
    others = [
        replace(JOB, sources=(GOOD + "\n",)),
        replace(JOB, op="log_softmax"),
        replace(JOB, level="full"),
        replace(JOB, shapes=("1x2",)),
        replace(JOB, device="NVIDIA H200"),
        replace(JOB, versions=replace(HERE, triton="3.6")),
    ]
    assert len({JOB.address, *(other.address for other in others)}) == 7


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (JOB, "has triton 3.6, and the job needs triton 3.7"),
        (
            replace(JOB, versions=replace(HERE, triton="3.6"), device="NVIDIA H200"),
            "has cpu, and the job needs NVIDIA H200",
        ),
    ],
)
def test_a_worker_refuses_other_versions_and_devices(job: Job, words: str) -> None:
    said = Workbench(CPU, replace(HERE, triton="3.6")).do(job)
    with pytest.raises(EnvironmentUnfit, match=words):
        opened(said)


def test_a_job_keeps_the_timed_shapes_and_the_long_rows() -> None:
    tall, wide = "32768x1024:bfloat16", "2048x16384:bfloat16"
    task = TaskName("softmax", shapes=(tall, wide), timed=(wide,), wide=True)
    assert task_of(replace(JOB, **task_fields(task))) == task
    assert task_of(replace(JOB, **task_fields("softmax"))) == "softmax"


def test_a_function_travels_with_its_files(
    reference: TaskName, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = replace(JOB, **task_fields(reference))
    assert job.function is not None
    assert [file.name for file in job.function.files] == ["shifted.py", "factor.py"]
    monkeypatch.setenv("KMINT_HOME", str(tmp_path / "another host"))
    (tmp_path / "factor.py").unlink()
    there = task_of(job)
    assert isinstance(there, TaskName) and there.file is not None
    assert Path(there.file).read_text(encoding="utf-8") == REFERENCE
    assert task_fields(there)["function"] == job.function


def test_a_reference_with_files_outside_is_not_sent(tmp_path: Path) -> None:
    package = tmp_path / "package" / "inner"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").write_text("", encoding="utf-8")
    (package.parent / "factor.py").write_text("two = 2\n", encoding="utf-8")
    (package / "shifted.py").write_text(REFERENCE.replace("factor", "..factor"), encoding="utf-8")
    task = TaskName("shifted", str(package / "shifted.py"), "shifted", ("x=f32[4,8]",))
    with pytest.raises(UsageError, match="outside its folder"):
        task_fields(task)


def test_a_lost_worker_is_replaced_and_none_is_left() -> None:
    with LocalFarm(CPUS) as farm:
        judge = FarmJudge(farm, "files")
        first = [judge.job(f"{GOOD}\n# {number}\n", "softmax", level="screen") for number in (1, 2)]
        verdicts = [future.result().done["verdict"] for _, future in as_they_end(farm, first)]
        assert verdicts == ["unsure", "unsure"]
        pids = farm.pids
        assert len(pids) == 2
        running = [farm.submit(replace(job, level="compile")) for job in first]
        os.kill(pids[0], signal.SIGKILL)
        assert [future.result().done["verdict"] for future in running] == ["unsure", "unsure"]
        pids += farm.pids
        assert len(set(pids)) == 3
        refused_job = replace(first[0], versions=HERE)
        with pytest.raises(EnvironmentUnfit, match=r"the job needs kmint 0\.1"):
            farm.submit(refused_job).result()
    assert not still_living(set(pids))


def test_a_kept_verdict_is_not_made_again(reference: TaskName) -> None:
    shown: list[tuple[str, str, bool]] = []

    def show(one: Wanted, found: Found) -> None:
        shown.append((one.name, found.verdict.verdict, found.known))

    right, wrong = (KERNEL.replace("SHIFT", shift) for shift in ("1.0", "1.5"))
    keeper = Keeper("two devices", "correct")
    with LocalFarm(CPUS) as farm:
        judge = FarmJudge(farm, "files")
        wanted = [
            Wanted(name, "shifted", reference, judge.job(source, reference, level="correct"))
            for name, source in (("a", right), ("b", wrong), ("same as a", right))
        ]
        found = judge_all(farm, wanted, keeper, show)
    assert [one.verdict.verdict for one in found] == ["correct", "rejected", "correct"]
    assert [one.kept.draft for one in found if one.kept] == ["1.0", "1.1", "1.0"]
    assert found[0].verdict.environment["devices"].startswith("cpu ")
    assert not any(known for _, _, known in shown)
    nowhere = Answers(lambda job: pytest.fail("it is judged again"))
    assert [one.verdict for one in judge_all(nowhere, wanted, keeper, show)] == [
        made(Verdict, parse_json(compact(one.verdict.to_json())), "it") for one in found
    ]
    assert all(known for _, _, known in shown[3:])


def test_a_failure_is_raised_after_the_others_are_kept() -> None:
    verdict = Verdict("softmax", "correct", "done", "", None, "interpret").to_json()

    def answer(job: Job) -> dict[str, Any]:
        return dict(parse_json(compact(verdict)))

    class Failing(Answers):
        def submit(self, job: Job, *rest: Any) -> Future[Answer]:
            if job.sources[0].endswith("# 0\n"):
                future: Future[Answer] = Future()
                future.set_exception(EnvironmentUnfit("lost 3 times"))
                return future
            return super().submit(job, *rest)

    seen: list[str] = []
    wanted = [
        Wanted(str(number), "softmax", "softmax", replace(JOB, sources=(f"{GOOD}# {number}\n",)))
        for number in range(3)
    ]
    with pytest.raises(KmintError, match="lost 3 times"):
        judge_all(Failing(answer), wanted, None, lambda one, found: seen.append(one.name))
    assert sorted(seen) == ["1", "2"]


def grid_point(job: Job) -> dict[str, Any]:
    if job.do == "begin":
        return {"environment": {"device": job.device}}
    if job.do == "check":
        return {"rejection": None}
    assert job.cell is not None
    point = GridPoint(job.cell.rows, job.cell.columns, job.cell.dtype, "win", 1.5)
    return {"point": asdict(point), "seconds": {"timing": 0.5}}


def test_a_grid_on_a_farm_goes_on_where_it_stopped(tmp_path: Path) -> None:
    kernel = Kernel(GOOD, ops.get("softmax"), TaskName("softmax"), "softmax.py", "file")
    cells, record = grid_cells(kernel.op), tmp_path / "grid.jsonl"
    identity = identity_of(GOOD, "softmax", {"device": "NVIDIA H200"})
    first = Answers(grid_point)
    begun: Iterator[GridPoint] = FarmGrid(first, kernel, "files").points(cells, record, identity)
    done = {next(begun).place for _ in range(5)}
    assert {point.place for point in read_record(record, identity)} == done
    second = Answers(grid_point)
    points = list(FarmGrid(second, kernel, "files").points(cells, record, identity))
    assert {point.place for point in points} == {place_of(cell) for cell in cells}
    assert len(points) == len(cells)
    assert [job.do for job in second.jobs] == ["check", *["cell"] * (len(cells) - len(done))]


def test_every_device_begins_before_a_grid() -> None:
    kernel = Kernel(GOOD, ops.get("softmax"), TaskName("softmax"), "softmax.py", "file")
    farm = Answers(grid_point)
    found = FarmGrid(farm, kernel, "files").environment()
    assert found == {"device": "NVIDIA H200", "devices": 2}
    assert [job.do for job in farm.jobs] == ["begin"] * 2


def test_cells_are_measured_beside_the_check_and_count_after_it(tmp_path: Path) -> None:
    rejection = {"guard": "wrong", "reason": "differs", "stage": "correct"}
    checked = Future[Answer]()

    class Slow(Answers):
        def submit(
            self, job: Job, tell: Tell = lambda step: None, count: Count = lambda done, total: None
        ) -> Future[Answer]:
            found = super().submit(job)
            if len(self.jobs) == 4:
                checked.set_result(Answer({"rejection": rejection}, "others idle"))
            return checked if job.do == "check" else found

    kernel = Kernel(GOOD, ops.get("softmax"), TaskName("softmax"), "softmax.py", "file")
    record, farm = tmp_path / "grid.jsonl", Slow(grid_point)
    identity = identity_of(GOOD, "softmax", {"device": "NVIDIA H200"})
    with pytest.raises(KernelRejected) as found:
        list(FarmGrid(farm, kernel, "files").points(grid_cells(kernel.op), record, identity))
    assert found.value.rejection.reason == "differs"
    assert [job.do for job in farm.jobs[:2]] == ["check", "cell"]
    assert read_record(record, identity) == []


@pytest.mark.parametrize("rejected", [True, False])
def test_a_rejection_goes_before_the_failure_of_a_cell(tmp_path: Path, rejected: bool) -> None:
    """Every cell fails; the check ends after the first of them."""
    rejection = {"guard": "wrong", "reason": "differs", "stage": "correct"} if rejected else None
    checked = Future[Answer]()

    class Failing(Answers):
        def submit(
            self, job: Job, tell: Tell = lambda step: None, count: Count = lambda done, total: None
        ) -> Future[Answer]:
            self.jobs.append(job)
            if job.do == "check":
                return checked
            future: Future[Answer] = Future()
            future.set_exception(EnvironmentUnfit("lost 3 times"))
            if len(self.jobs) == 10:
                checked.set_result(Answer({"rejection": rejection}, "others idle"))
            return future

    kernel = Kernel(GOOD, ops.get("softmax"), TaskName("softmax"), "softmax.py", "file")
    record, farm = tmp_path / "grid.jsonl", Failing(grid_point)
    identity = identity_of(GOOD, "softmax", {"device": "NVIDIA H200"})
    with pytest.raises(KernelRejected if rejected else EnvironmentUnfit) as found:
        list(FarmGrid(farm, kernel, "files").points(grid_cells(kernel.op), record, identity))
    assert str(found.value) == ("differs" if rejected else "lost 3 times")


def test_a_rejection_waits_for_no_cell(tmp_path: Path) -> None:
    rejection = {"guard": "wrong", "reason": "differs", "stage": "correct"}

    class Endless(Answers):
        def submit(
            self, job: Job, tell: Tell = lambda step: None, count: Count = lambda done, total: None
        ) -> Future[Answer]:
            return super().submit(job) if job.do == "check" else Future[Answer]()

    kernel = Kernel(GOOD, ops.get("softmax"), TaskName("softmax"), "softmax.py", "file")
    farm = Endless(lambda job: {"rejection": rejection})
    record, identity = tmp_path / "grid.jsonl", identity_of(GOOD, "softmax", {})
    with pytest.raises(KernelRejected, match="differs"):
        list(FarmGrid(farm, kernel, "files").points(grid_cells(kernel.op), record, identity))


def test_the_runs_of_a_gate_make_one_report() -> None:
    kernel = Kernel(GOOD, ops.get("softmax"), TaskName("softmax"), "softmax.py", "file")
    ratio = {"ratio": 1.2, "low": 1.1, "confidence": 0.95, "rounds": 60, "blocks": 6}
    highs = iter([1.3, None, 1.3])

    def answer(job: Job) -> dict[str, Any]:
        assert job.do == "gate"
        run = {"seed": 1, "decision": "win", "bar": "eager", "candidate_us": 1.0, "bar_us": 1.2}
        return {
            "runs": [{**run, "ratio": {**ratio, "high": next(highs)}}],
            "environment": {"device": "NVIDIA H200"},
        }

    seen: list[object] = []
    found = gate_on(Answers(answer), kernel, 3, "files", seen.append)
    assert found.stable and len(found.runs) == len(seen) == 3
    assert found.environment == {"device": "NVIDIA H200", "devices": 2}
    assert sorted(run.ratio.high for run in found.runs if run.ratio)[2] == float("inf")


def test_variants_are_shared_and_come_back_in_order() -> None:
    def answer(job: Job) -> dict[str, Any]:
        assert job.sources[0] == "first"
        return {"laps": [{"us": float(len(text)), "ratio": 1.0} for text in job.sources]}

    farm = Answers(answer)
    laps = FarmJudge(farm, "files").time_variants(["first", "a", "bb", "ccc", "dddd"], "softmax")
    assert [lap.us for lap in laps] == [5.0, 1.0, 2.0, 3.0, 4.0]
    assert [job.sources for job in farm.jobs] == [("first", "a", "ccc"), ("first", "bb", "dddd")]
    assert len(FarmJudge(farm, "files").time_variants(["first"], "softmax")) == 1
    assert [job.sources for job in farm.jobs[2:]] == [("first",)]


@pytest.mark.parametrize("free", [0, 1])
def test_a_race_is_not_shared_where_other_devices_have_work(free: int) -> None:
    farm = Answers(lambda job: {"laps": [{"us": 1.0, "ratio": 1.0} for _ in job.sources]})
    farm.free = free
    assert len(FarmJudge(farm, "files").time_variants(["first", "a", "bb"], "softmax")) == 3
    assert [job.sources for job in farm.jobs] == [("first", "a", "bb")]

"""A busy machine rejects no kernel: the verdict says that the referee could not judge, or what it did
not judge. The waits for a processor are made up; the processes are real.
"""

from __future__ import annotations

import time

import pytest

from referee.candidate import Candidate, unless_rejected
from referee.case_runs import TIMEOUT
from referee.cases import CaseData, without_gpu
from referee.checks import batch_invariance
from referee.checks import capabilities as capability_checks
from referee.checks.capabilities import prepare_capabilities, trace_capabilities
from referee.checks.interpreter_checks import _programs
from referee.checks.masked_lanes import advised, check_masked_lanes
from referee.compiling.compile_jobs import _results, compile_jobs, request
from referee.cpu_path import CpuPath
from referee.interpreter.interpret import UNDECIDED, Execution, _answer, execute
from referee.judge import Referee
from referee.problem import Problem
from referee.reading.kernels import extract
from referee.report import Report
from referee.sandbox import clock, zygote_job
from referee.sandbox.clock import Reading, ThreadTime
from referee.sandbox.zygote import MachineBusy, Outcome
from referee.stages.trace import trace_cells
from referee.target import Target
from referee.tracing.trace import read_answer
from referee.verdict import CellResult, Rejection
from tests.referee.stand_in import SOURCE, Replayer, Servers, judged

ENDLESS = """@triton.jit
def _silu(x_ptr, y_ptr):
    pass


def run(x):
    while True:
        pass
"""
LOOP = "\n    for _ in range(1 << 40):\n        pass\n    at = "


@pytest.fixture
def starving(monkeypatch: pytest.MonkeyPatch) -> None:
    """No job gets a processor, as far as a clock can see."""

    def waiting(pid: int) -> Reading:
        return {pid: ThreadTime(ran=0.0, waited=time.monotonic(), state="R")}

    monkeypatch.setattr(zygote_job, "threads_of", waiting)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trace gets a hundredth of a second by its clock."""
    defaults = trace_cells.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "patience", 0.01 / defaults["seconds"])


@pytest.mark.usefixtures("hurried")
def test_an_endless_launcher_is_rejected(referee: Referee) -> None:
    verdict = referee.judge(ENDLESS, "silu", level="correct")
    assert (verdict.verdict, verdict.guard) == ("rejected", "timeout")


@pytest.mark.usefixtures("hurried", "starving")
def test_a_starved_trace_is_an_error_with_the_remedy(referee: Referee) -> None:
    verdict = referee.judge(ENDLESS, "silu", level="correct")
    assert (verdict.verdict, verdict.stage) == ("error", "trace")
    assert "the machine was too busy" in verdict.reason
    assert "run fewer jobs at the same time, and judge again" in verdict.reason


@pytest.mark.usefixtures("starving")
def test_capabilities_that_waited_are_traced(servers: Servers) -> None:
    cells = without_gpu(Problem("silu"), 1).capabilities
    candidate = candidate_of(servers)
    traced, results = trace_capabilities(candidate, cells)
    assert len(traced) == len(cells) and not results, "in time, though it waited"
    assert candidate.report.checks == {}


def test_capabilities_without_time_are_not_judged() -> None:
    cells = without_gpu(Problem("silu"), 1).capabilities

    def busy(items: list[int], seconds: float) -> list[int]:
        raise MachineBusy("the machine was too busy")

    def later(items: list[int], seconds: float) -> list[int] | Rejection:
        if len(items) > 1:
            return Rejection("trace", "trace_error", "one of them is wrong")
        return busy(items, seconds)

    for attempt in (busy, later):
        made, results = prepare_capabilities(
            attempt, list(range(len(cells))), cells, capability_checks.TRACE_SECONDS
        )
        assert not made and [one.name for one in results] == [cell.name for cell in cells]
        assert {(one.status, one.guard) for one in results} == {("skipped", TIMEOUT)}
        assert all("too busy" in one.detail for one in results)


@pytest.mark.usefixtures("starving")
def test_starved_compiling_and_interpreting_reject_nothing(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidate = candidate_of(servers)
    cells = without_gpu(candidate.problem, 1).required[:1]
    ((cell, plan),) = unless_rejected(trace_cells(candidate, cells))
    _, launch = plan.launches()[0]
    monkeypatch.setattr(clock, "SHORTEST", 0.001)
    jobs = compile_jobs(
        servers.workers, candidate.module, candidate.target, seconds=60.0, patience=1e-5
    )
    with pytest.raises(MachineBusy, match="judge again"):
        jobs.run({"key": request(launch.kernel, launch.configs[0])})
    endless = candidate.module.text.replace("\n    at = ", LOOP)
    assert LOOP in endless
    run = Execution(plan, candidate.problem.task("cpu").inputs(cell, 1))
    with pytest.raises(MachineBusy, match="judge again"):
        execute(servers.interpreters, endless, [run], seconds=0.01)


def test_every_reader_of_a_starved_job_says_so() -> None:
    starved = Outcome("starved", b"", "the machine was too busy", 1.0)
    for read in (
        lambda: read_answer(starved, [], extract(SOURCE)),
        lambda: _results(starved, {}),
        lambda: _answer(starved, 1, 0, 1.0),
    ):
        with pytest.raises(MachineBusy, match="too busy"):
            read()


@pytest.fixture
def no_interpreter(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every job of the interpreter is starved."""

    def busy(entry: str, payload: bytes, **options: object) -> Outcome:
        raise MachineBusy("the machine was too busy")

    monkeypatch.setattr(servers.interpreters, "run", busy)


@pytest.mark.usefixtures("no_interpreter")
def test_a_starved_interpreter_skips_what_is_not_required(servers: Servers) -> None:
    candidate = candidate_of(servers)
    cases = without_gpu(candidate.problem, 1)
    parts = batch_invariance.parts_of(cases.required, 1, long=False)
    cells = dict.fromkeys(cell for part in parts for cell in (part.whole, part.cell))
    traced = unless_rejected(trace_cells(candidate, tuple(cells)))
    data = CaseData(candidate.problem.task("cpu"), 1)
    path = CpuPath(
        workers=servers.interpreters, data=data, text=candidate.module.text, atomic=False
    )
    with pytest.raises(MachineBusy):
        path.required(traced)
    results = path.capabilities(traced)
    assert [(one.status, one.guard) for one in results] == [("skipped", TIMEOUT)] * len(traced)
    assert all("too busy" in one.detail for one in results)
    assert check_masked_lanes(path, traced).status == "skipped"
    assert batch_invariance.check(path, parts, dict(traced)).status == "skipped"
    with pytest.raises(MachineBusy):
        batch_invariance.check(path, parts, dict(traced), required=True)
    found = _programs(path, traced, None)
    assert found is not None and found.guard in UNDECIDED


@pytest.mark.usefixtures("no_interpreter")
def test_a_starved_interpreter_next_to_a_replay_rejects_nothing(servers: Servers) -> None:
    with pytest.raises(MachineBusy, match="too busy"):
        judged(servers, SOURCE, Replayer())


@pytest.mark.usefixtures("no_interpreter")
def test_a_wrong_answer_stays_rejected_without_its_advice(servers: Servers) -> None:
    candidate = candidate_of(servers)
    (pair,) = unless_rejected(
        trace_cells(candidate, without_gpu(candidate.problem, 1).required[:1])
    )
    path = CpuPath(
        workers=servers.interpreters,
        data=CaseData(candidate.problem.task("cpu"), 1),
        text=candidate.module.text,
        atomic=False,
    )
    wrong = Rejection("correct", "wrong_answer", "at a case: off")
    failed = CellResult(pair[0].name, pair[0].role, "fail")
    assert advised(path, [pair], [failed], wrong) == wrong


def candidate_of(servers: Servers) -> Candidate:
    return Candidate(
        report=Report("silu", "interpret", 1, environment={}),
        workers=servers.workers,
        cache=None,
        source=SOURCE,
        problem=Problem("silu"),
        module=extract(SOURCE),
        strict=True,
        target=Target(),
    )

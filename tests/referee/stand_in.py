"""Stands in for the replay worker where there is no GPU: it notes what it is asked, and fails the
cells named. All else is real.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from referee.gpu.jobs import Checked, CompiledCandidate, unreached
from referee.ops.spec import Cell
from referee.plans.plan import Launch
from referee.problem import Problem, TaskName
from referee.report import Rejected, Report
from referee.sandbox.zygote import Workers
from referee.sandbox.zygote_job import Outcome
from referee.stages.check_gpu import OnGpu
from referee.stages.screen import screened
from referee.timing.measurement import ChosenConfigs
from referee.verdict import CellResult, Check, Rejection, Verdict

SEED = 11
KERNEL = """@triton.jit
def _silu(x_ptr, y_ptr, total, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < total).to(tl.float32)
    tl.store(y_ptr + at, x * tl.sigmoid(x), mask=at < total)


def run(x):
    y = torch.empty_like(x)
"""
SOURCE = (
    KERNEL
    + """    BLOCK = 256
    _silu[(triton.cdiv(x.numel(), BLOCK),)](x, y, x.numel(), BLOCK=BLOCK)
    return y
"""
)
TUNED = f"""@triton.autotune([triton.Config({{"BLOCK": 256}}), triton.Config({{"BLOCK": 512}})], key=["total"])
{KERNEL}    _silu[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
    return y
"""


def checked(cells: Sequence[Cell], failing: Collection[str]) -> Checked:
    """One request's answer: nothing behind the first failure is reached, and every cell that is
    takes a tenth of a second.
    """
    first = next((number for number, cell in enumerate(cells) if cell.name in failing), len(cells))
    results = [CellResult(cell.name, cell.role, "pass") for cell in cells[:first]]
    rejection = None
    if first < len(cells):
        results.append(CellResult(cells[first].name, cells[first].role, "fail", detail="wrong"))
        rejection = Rejection("correct", "wrong_answer", f"at {cells[first].name}: wrong")
    checks = (
        Check(
            "wrong_answer",
            "fail" if rejection else "pass",
            rejection.reason if rejection else "agree",
        ),
    )
    seconds = {result.name: 0.1 for result in results}
    return Checked((*results, *map(unreached, cells[first + 1 :])), rejection, checks, seconds)


@dataclass
class Replayer:
    """Fails the cells named, and notes what it was asked."""

    failing: frozenset[str] = frozenset()
    checked: list[list[str]] = field(default_factory=list)
    choices: list[dict[int, int]] = field(default_factory=list)
    tuned: int = 0
    whenever: Callable[[], None] = lambda: None

    def expect_capabilities(self) -> None:
        return

    def check(self, prepared: CompiledCandidate, *, seed: int) -> Checked:
        assert seed == SEED
        self.whenever()
        cells = [job.cell for job in prepared.jobs]
        for job in prepared.jobs:
            launches = [
                (number, step)
                for number, step in enumerate(job.plan.steps)
                if isinstance(step, Launch)
            ]
            assert set(job.binaries) == {
                (number, config) for number, step in launches for config in range(len(step.configs))
            }
        self.checked.append([cell.name for cell in cells])
        self.choices.append(dict(prepared.choice))
        return checked(cells, self.failing)

    def tune(self, prepared: CompiledCandidate, *, seed: int) -> ChosenConfigs:
        self.tuned += 1
        return ChosenConfigs({0: 1}, {}, {})


@dataclass(frozen=True)
class Servers:
    """The fork servers: for tracing and compiling, and for the interpreter."""

    workers: Workers
    interpreters: Workers


def jobs_ended(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Outcome]]:
    """A list to which every job of the workers adds its entry and its outcome as it ends."""
    ended: list[tuple[str, Outcome]] = []
    run = servers.workers.run

    def watched(entry: str, payload: bytes, **options: Any) -> Outcome:
        outcome = run(entry, payload, **options)
        ended.append((entry, outcome))
        return outcome

    monkeypatch.setattr(servers.workers, "run", watched)
    return ended


def judged(
    servers: Servers,
    source: str,
    replayer: Replayer,
    op: str | TaskName = "silu",
    *,
    strict: bool = True,
) -> tuple[Report, Verdict | Rejection]:
    report = Report(
        op if isinstance(op, str) else op.op, "replay", SEED, environment={"device": "a stand-in"}
    )
    try:
        candidate = screened(report, source, Problem(op), servers.workers, None, strict=strict)
        way = OnGpu(replace(candidate, seed=SEED), cast("Any", replayer), servers.interpreters)
        return report, way.verdict("correct", None)
    except Rejected as rejected:
        return report, rejected.rejection

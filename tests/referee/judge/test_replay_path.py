"""The way of a candidate that is replayed, on a machine without a GPU: everything is real but the replay worker, which only notes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
import triton

from referee.compile import ENTRY
from referee.fresh_cells import fresh_cells
from referee.gpu import Checked, Frozen
from referee.jobs import Prepared
from referee.judgement import Judgement
from referee.plan import Launch
from referee.report import Rejected, Report
from referee.subject import Subject, capabilities, partition_by_rows, required
from referee.target import Target
from referee.verdict import Rejection, Verdict
from referee.workers import Workers
from referee.zygote import Outcome
from tests.referee.stand_in import checked

KERNEL = """@triton.jit
def _silu(x_ptr, y_ptr, total, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < total).to(tl.float32)
    tl.store(y_ptr + at, x * tl.sigmoid(x), mask=at < total)


def run(x):
    y = torch.empty_like(x)
"""
SOURCE = KERNEL + """    BLOCK = 256
    _silu[(triton.cdiv(x.numel(), BLOCK),)](x, y, x.numel(), BLOCK=BLOCK)
    return y
"""
DIFFERENT_BLOCKS = SOURCE.replace("BLOCK = 256", "BLOCK = triton.next_power_of_2(x.shape[1])")
ASSERTION = '    tl.static_assert((BLOCK != 128) & (BLOCK > 1), "a block of this size")'
BROKEN_FOR_SOME = DIFFERENT_BLOCKS.replace("    x = tl.load", f"{ASSERTION}\n    x = tl.load")
TUNED = f"""@triton.autotune([triton.Config({{"BLOCK": 256}}), triton.Config({{"BLOCK": 512}})], key=["total"])
{KERNEL}    _silu[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
    return y
"""
ALIKE = '@triton.autotune([triton.Config({}), triton.Config({})], key=["total"])\n'
SEED = 11


@dataclass
class Replayer:
    """Fails the cells named, and notes what it was asked."""

    failing: frozenset[str] = frozenset()
    checked: list[list[str]] = field(default_factory=list)
    choices: list[dict[int, int]] = field(default_factory=list)
    tuned: int = 0
    whenever: Callable[[], None] = lambda: None

    def check(self, prepared: Prepared, *, seed: int) -> Checked:
        assert seed == SEED
        self.whenever()
        cells = [job.cell for job in prepared.jobs]
        for job in prepared.jobs:
            launches = [(number, step) for number, step in enumerate(job.plan.steps) if isinstance(step, Launch)]
            assert set(job.binaries) == {(number, config) for number, step in launches for config in range(len(step.configs))}
        self.checked.append([cell.name for cell in cells])
        self.choices.append(dict(prepared.choice))
        return checked(cells, self.failing)

    def tune(self, prepared: Prepared, *, seed: int) -> Frozen:
        self.tuned += 1
        return Frozen({0: 1}, {}, {})


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    found = Workers()
    yield found
    found.close()


def names() -> list[str]:
    subject = Subject("silu")
    usual, many = partition_by_rows([*required(subject.cells("gpu")), *fresh_cells(subject.op, SEED, gpu=True)])
    return [cell.name for cell in (*usual, *many)]


def columns(name: str) -> int:
    return int(name.split("-")[1].split("x")[1])


def judged(workers: Workers, source: str, replayer: Replayer) -> tuple[Report, Verdict | Rejection]:
    report = Report("silu", "replay", SEED, environment={"device": "a stand-in"})
    judgement = Judgement(report, source, Subject("silu"), Target(), workers, None)
    try:
        return report, judgement.replay(judgement.screen(), cast("Any", replayer), "correct", None)
    except Rejected as rejected:
        return report, rejected.rejection


def test_every_cell_is_checked_once_and_reported_in_its_order(workers: Workers) -> None:
    replayer = Replayer()
    report, verdict = judged(workers, DIFFERENT_BLOCKS, replayer)
    assert isinstance(verdict, Verdict) and verdict.verdict == "correct", verdict
    extra = [cell.name for cell in capabilities(Subject("silu").cells("gpu"))]
    assert sorted(name for asked in replayer.checked for name in asked) == sorted([*names(), *extra])
    assert [cell.name for cell in report.cells] == [*names(), *extra]
    assert {"trace", "compile", "correct"} <= set(report.seconds)


def test_cells_are_checked_while_others_are_compiled(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []
    run = workers.run

    def watched(entry: str, payload: bytes, **options: Any) -> Outcome:
        outcome = run(entry, payload, **options)
        ended.append(entry)
        return outcome

    seen: list[int] = []
    monkeypatch.setattr(workers, "run", watched)
    monkeypatch.setattr("referee.compile.os.cpu_count", lambda: 16)
    judged(workers, DIFFERENT_BLOCKS, Replayer(whenever=lambda: seen.append(ended.count(ENTRY))))
    assert seen[0] < ended.count(ENTRY) - 1


def test_the_cell_that_fails_does_not_depend_on_which_was_ready_first(workers: Workers) -> None:
    failing = frozenset(["f16-3x8200-sorted-x8", "bf16-1000x4096-normal-x1", "f16-65x4096-mixed-x0.015625"])
    for _ in range(2):
        report, found = judged(workers, DIFFERENT_BLOCKS, Replayer(failing))
        assert found == Rejection("correct", "wrong_answer", "at f16-65x4096-mixed-x0.015625: wrong")
        assert [cell.name for cell in report.cells] == names()
        by_block = sorted(report.cells, key=lambda cell: triton.next_power_of_2(columns(cell.name)))
        statuses = [cell.status for cell in by_block]
        last = statuses.index("fail")
        assert statuses == ["pass"] * last + ["fail"] + ["skipped"] * (len(statuses) - last - 1)


def test_what_does_not_compile_is_told_before_what_is_wrong(workers: Workers) -> None:
    report, found = judged(workers, BROKEN_FOR_SOME, Replayer(frozenset(names()[:1])))
    assert isinstance(found, Rejection) and (found.stage, found.guard) == ("compile", "compile_error"), found
    assert "a block of this size" in found.reason
    assert not report.cells


def test_an_autotuned_launch_is_settled_before_anything_is_checked(workers: Workers) -> None:
    replayer = Replayer()
    report, verdict = judged(workers, TUNED, replayer)
    assert isinstance(verdict, Verdict) and verdict.verdict == "correct", verdict
    assert replayer.tuned == 1
    assert replayer.checked[0] == names()
    assert all(choice == {0: 1} for choice in replayer.choices)
    assert report.checks["autotune"].detail == "configuration by step: {0: 1}"


def test_where_one_of_several_configurations_is_left_all_cells_are_checked_at_once_too(workers: Workers) -> None:
    replayer = Replayer()
    _, verdict = judged(workers, ALIKE + DIFFERENT_BLOCKS, replayer)
    assert isinstance(verdict, Verdict) and verdict.verdict == "correct", verdict
    assert (replayer.tuned, replayer.checked[0]) == (0, names())

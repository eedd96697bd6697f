"""Cells that only earn badges are replayed beside the others, and neither hold up a rejection nor
change a verdict.
"""

from __future__ import annotations

import pytest

from referee.tracing.trace import ENTRY
from referee.verdict import Rejection, Verdict
from tests.referee.stand_in import SOURCE, TUNED, Replayer, Servers, jobs_ended, judged

HANGS_AT_VIEWS = SOURCE.replace(
    "    y = torch",
    "    while x.shape[0] > 1 and x.stride(0) > max(x.shape[1], 1):\n        pass\n    y = torch",
)


@pytest.mark.parametrize("source", [SOURCE, TUNED], ids=["plain", "tuned"])
def test_a_badge_that_is_not_earned_costs_nothing_else(servers: Servers, source: str) -> None:
    report, found = judged(servers, source, Replayer())
    assert isinstance(found, Verdict) and found.verdict == "correct", found
    badges = [cell.name for cell in report.cells if cell.role == "capability"]
    assert len(badges) > 2 and [cell.name for cell in report.cells][-len(badges) :] == badges
    report, found = judged(servers, source, Replayer(frozenset(badges[:1])))
    assert isinstance(found, Verdict) and found.verdict == "correct", found
    assert {cell.name for cell in report.cells if cell.status == "fail"} == set(badges[:1])


def test_a_badge_that_cannot_be_tried_is_told_of(servers: Servers) -> None:
    report, found = judged(
        servers,
        SOURCE.replace("    y = torch", "    assert x.is_contiguous()\n    y = torch"),
        Replayer(),
    )
    assert isinstance(found, Verdict) and found.verdict == "correct", found
    assert {cell.name for cell in report.cells if cell.status == "fail"} == {
        cell.name for cell in report.cells if "-padded-" in cell.name
    }


def test_what_is_wrong_at_once_is_not_replayed_for_badges(servers: Servers) -> None:
    right = Replayer()
    report, _ = judged(servers, SOURCE, right)
    badges = {cell.name for cell in report.cells if cell.role == "capability"}
    assert badges & {name for request in right.checked for name in request}
    wrong = Replayer(frozenset(cell.name for cell in report.cells))
    _, found = judged(servers, SOURCE, wrong)
    assert isinstance(found, Rejection) and found.guard == "wrong_answer"
    assert wrong.checked and not badges & {name for request in wrong.checked for name in request}


def test_a_trace_for_badges_ends_with_the_verdict(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    report, _ = judged(servers, SOURCE, Replayer())
    wrong = Replayer(frozenset(cell.name for cell in report.cells))
    ended = jobs_ended(servers, monkeypatch)
    _, found = judged(servers, HANGS_AT_VIEWS, wrong, strict=False)
    assert isinstance(found, Rejection) and found.guard == "wrong_answer"
    assert {
        outcome.detail for entry, outcome in ended if entry == ENTRY and outcome.status == "timeout"
    } == {"stopped"}

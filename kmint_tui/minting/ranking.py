"""The order in which drafts are shown: the best first, by what the referee can vouch for.

Wins come first by how much they win, then ties, undecided ones, losses; kernels known only to be correct follow, the
simpler before the longer; then rejected ones, the further they got the earlier; then what was not judged. Drafts that are
equal in all this keep the order of their numbers, so the same verdicts always give the same table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from kmint_tui.minting.drafts import Draft
from referee.verdict import Stage, Verdict

_OUTCOMES = ("win", "tie", "unsure", "loss", "correct", "rejected", "error")
_STAGES: tuple[str, ...] = get_args(Stage)


def ratio(timing: Mapping[str, Any] | None) -> float | None:
    """Time of the fastest baseline over the kernel's own, out of a verdict's timing; None where it was not timed."""
    interval = timing.get("ratio") if timing else None
    value = interval.get("ratio") if isinstance(interval, Mapping) else None
    return float(value) if isinstance(value, (int, float)) else None


def rank(drafts: Sequence[Draft], verdicts: Mapping[int, Verdict]) -> tuple[int, ...]:
    """The indices of all drafts in the order to show them; duplicates follow the judged ones, in their original's order."""
    judged = sorted((draft for draft in drafts if draft.index in verdicts), key=lambda draft: _key(draft, verdicts[draft.index]))
    place = {draft.index: at for at, draft in enumerate(judged)}
    last = len(place)
    rest = [draft for draft in drafts if draft.index not in verdicts]
    rest.sort(
        key=lambda draft: (
            draft.duplicate_of is None,
            place.get(-1 if draft.duplicate_of is None else draft.duplicate_of, last),
            draft.index,
        )
    )
    return tuple(draft.index for draft in (*judged, *rest))


def best(ranking: Sequence[int], verdicts: Mapping[int, Verdict]) -> int | None:
    """The first of the ranking that is a correct kernel."""
    return next((index for index in ranking if index in verdicts and verdicts[index].passed), None)


def _key(draft: Draft, verdict: Verdict) -> tuple[int, float, int, int]:
    order = _OUTCOMES.index(verdict.verdict)
    if verdict.verdict == "correct":
        return order, 0.0, _size(draft.source), draft.index
    if verdict.passed:
        return order, -(ratio(verdict.timing) or 0.0), 0, draft.index
    return order, 0.0, -_STAGES.index(verdict.stage), draft.index


def _size(source: str) -> int:
    return sum(len(line.strip()) for line in source.splitlines() if not line.strip().startswith("#"))

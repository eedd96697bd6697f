"""The ranked table of a minting session, as it is printed on stdout."""

from __future__ import annotations

from kmint_tui.cli.output import Cell, Output, Table
from kmint_tui.cli.referee import device_microseconds, why
from kmint_tui.cli.style import VERDICT_STYLES
from kmint_tui.history.records import draft_id
from kmint_tui.minting.drafts import Draft
from kmint_tui.minting.ranking import ratio
from kmint_tui.minting.result import MintResult
from referee.verdict import Verdict


def show_result(out: Output, result: MintResult) -> None:
    """Every draft in the order of its rank, with the reason, and the id of the best. Times are shown where there are any."""
    drafts = {draft.index: draft for draft in result.drafts}
    timed = any(verdict.timing for verdict in result.verdicts.values())
    rows = [_row(result, drafts[index], timed=timed) for index in result.ranking]
    headers = ("draft", "tokens", "verdict", *(("time", "ratio") if timed else ()), "why")
    out.table(Table(headers, rows, frozenset({"tokens", "time", "ratio"})))
    out.text("")
    counted = f"{result.passed} of {len(result.drafts)} drafts correct"
    out.text(f"{counted}, best: {result.best_id}" if result.best_id else f"{counted}, no kernel")


def _row(result: MintResult, draft: Draft, *, timed: bool) -> tuple[Cell | str, ...]:
    verdict = result.verdicts.get(draft.index)
    times = _times(verdict) if timed else ()
    return draft_id(result.session, draft.index), str(draft.tokens), _outcome(draft, verdict), *times, _why(result, draft, verdict)


def _times(verdict: Verdict | None) -> tuple[str, str]:
    timing = verdict.timing if verdict else None
    time, gained = device_microseconds(timing), ratio(timing)
    return f"{time:.1f} us" if time else "", f"{gained:.3f}x" if gained else ""


def _outcome(draft: Draft, verdict: Verdict | None) -> Cell:
    if draft.duplicate_of is not None:
        return Cell("same", "dim")
    if verdict is None:
        return Cell("stopped" if draft.finish == "cancelled" else "not judged", "dim")
    return Cell(verdict.verdict, VERDICT_STYLES[verdict.verdict])


def _why(result: MintResult, draft: Draft, verdict: Verdict | None) -> str:
    origin = _origin(result, draft)
    found = _reason(result, draft, verdict)
    return f"{origin}; {found}" if origin and found else origin or found


def _origin(result: MintResult, draft: Draft) -> str:
    """Where a draft comes from that is not of the first round."""
    if draft.parent is None:
        return ""
    parent = draft_id(result.session, draft.parent)
    return f"by the tuner from {parent} ({draft.changes})" if draft.author == "tuner" else f"repairs {parent}"


def _reason(result: MintResult, draft: Draft, verdict: Verdict | None) -> str:
    if draft.duplicate_of is not None:
        return f"the same kernel as {draft_id(result.session, draft.duplicate_of)}"
    if verdict is None:
        return ""
    if draft.truncated and not verdict.passed:
        return f"cut off after {draft.tokens} tokens (raise --max-tokens); {why(verdict)}"
    return why(verdict)

"""The ranked table of a minting session, as it is printed on stdout."""

from __future__ import annotations

from kmint_tui.cli.output import Cell, Output, Table
from kmint_tui.cli.referee import device_microseconds, why
from kmint_tui.cli.style import VERDICT_STYLES
from kmint_tui.history.records import draft_id
from kmint_tui.minting.drafts import Draft
from kmint_tui.minting.ranking import ratio
from kmint_tui.minting.result import MintResult


def show_result(out: Output, result: MintResult) -> None:
    """Every draft in the order of its rank, with the reason, and the id of the best."""
    drafts = {draft.index: draft for draft in result.drafts}
    rows = [_row(result, drafts[index]) for index in result.ranking]
    out.table(Table(("draft", "tokens", "verdict", "time", "ratio", "why"), rows, frozenset({"tokens", "time", "ratio"})))
    out.text("")
    counted = f"{result.passed} of {len(result.drafts)} drafts correct"
    out.text(f"{counted}, best: {result.best_id}" if result.best_id else f"{counted}, no kernel")


def _row(result: MintResult, draft: Draft) -> tuple[Cell | str, ...]:
    number, tokens = draft_id(result.session, draft.index), str(draft.tokens)
    if draft.duplicate_of is not None:
        return number, tokens, Cell("same", "dim"), "", "", f"the same kernel as {draft_id(result.session, draft.duplicate_of)}"
    verdict = result.verdicts.get(draft.index)
    if verdict is None:
        return number, tokens, Cell("stopped" if draft.finish == "cancelled" else "not judged", "dim"), "", "", ""
    time, gained = device_microseconds(verdict.timing), ratio(verdict.timing)
    reason = why(verdict)
    if draft.truncated and not verdict.passed:
        reason = f"cut off after {draft.tokens} tokens (raise --max-tokens); {reason}"
    shown = Cell(verdict.verdict, VERDICT_STYLES[verdict.verdict])
    return number, tokens, shown, f"{time:.1f} us" if time else "", f"{gained:.3f}x" if gained else "", reason

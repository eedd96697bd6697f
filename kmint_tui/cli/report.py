"""The ranked table of a minting session, as it is printed on stdout."""

from __future__ import annotations

from itertools import groupby

from kmint_tui.cli.streams import VERDICT_STYLES, Cell, Output, Table
from kmint_tui.history.verdicts import device_microseconds, ratio
from kmint_tui.minting.drafts import MintDraft
from kmint_tui.minting.reasons import reason_without_sandbox, weakness, why
from kmint_tui.minting.result import MintResult, best_of, how_many, ranges
from referee.verdict import Verdict

_RIGHT = frozenset({"tokens", "time", "ratio"})


def show_result(out: Output, result: MintResult) -> None:
    """Write every draft in the order of its rank with a short reason, then the best one with the
    whole reason.

    Drafts that repeat the same kernel share a row. Times are shown where there are any. One line
    names the missing layers of the sandbox.
    """
    drafts = {draft.index: draft for draft in result.drafts}
    timed = any(verdict.timing for verdict in result.verdicts.values())
    ranked = [drafts[index] for index in result.ranking]
    rows = [
        _row(result, list(group), timed=timed)
        for _, group in groupby(ranked, key=lambda draft: _kind(result, draft))
    ]
    headers = ("draft", "tokens", "verdict", *(("time", "ratio") if timed else ()), "why")
    out.table(Table(headers, rows, _RIGHT))
    out.text("")
    out.text(how_many(result))
    out.text(best_of(result))
    if result.best is not None:
        out.text(reason_without_sandbox(result.verdicts[result.best]))
    if weak := next(filter(None, map(_weakness, result.verdicts.values())), ""):
        out.text(weak)


def _weakness(verdict: Verdict) -> str:
    return weakness(verdict.environment)


def _kind(result: MintResult, draft: MintDraft) -> object:
    """Equal for drafts that share a row: those that repeat the same kernel in the same way."""
    return draft.index if draft.duplicate_of is None else _why(result, draft)


def _row(result: MintResult, drafts: list[MintDraft], *, timed: bool) -> tuple[Cell | str, ...]:
    first = drafts[0]
    verdict = result.verdicts.get(first.index)
    times = _times(verdict) if timed else ()
    name = ranges([draft.index for draft in drafts], f"{result.session}.")
    return name, _tokens(drafts), _outcome(first, verdict), *times, _why(result, first)


def _tokens(drafts: list[MintDraft]) -> str:
    """Tokens of one draft; the template and the tuner write none."""
    least, most = (limit(draft.tokens for draft in drafts) for limit in (min, max))
    if drafts[0].author != "smith":
        return ""
    return str(least) if least == most else f"{least} to {most}"


def _times(verdict: Verdict | None) -> tuple[str, str]:
    timing = verdict.timing if verdict else None
    time, gained = device_microseconds(timing), ratio(timing)
    return f"{time:.1f} us" if time else "", f"{gained:.3f}x" if gained else ""


def _outcome(draft: MintDraft, verdict: Verdict | None) -> Cell:
    if draft.duplicate_of is not None:
        return Cell("same", "dim")
    if verdict is None:
        return Cell("stopped" if draft.finish == "cancelled" else "not judged", "dim")
    return Cell(verdict.verdict, VERDICT_STYLES[verdict.verdict])


def _why(result: MintResult, draft: MintDraft) -> str:
    verdict = result.verdicts.get(draft.index)
    return why(draft, verdict, result.id_of, cut_off=" (raise --max-tokens)")

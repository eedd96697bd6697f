"""The reason for a draft's verdict: a short text for a table row, a long text that stands alone.

A stored verdict (a `kmint.verdict/1` document) gives the same text as a new one. `why` is the one
text for a draft's row, in the terminal and in the application.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kmint_tui.minting.drafts import MintDraft
    from referee.verdict import Verdict

TEMPLATE = "kmint's template"
TUNER = "the tuner"
_STOPPED = ("rejected", "error")


def short_reason(verdict: Verdict | Mapping[str, Any]) -> str:
    """The number of passed cases of a correct kernel, else the failed stage and the reason."""
    found = _document(verdict)
    if found.get("verdict") not in _STOPPED:
        passed = sum(
            case.get("status") == "pass" and case.get("role") != "capability"
            for case in found.get("cells") or ()
        )
        if passed:
            return counted(passed, "case")
    return long_reason(found)


def long_reason(verdict: Verdict | Mapping[str, Any]) -> str:
    """The whole reason; with the failed stage for a rejected kernel."""
    found = _document(verdict)
    reason = str(found.get("reason") or "")
    return f"{found.get('stage')}: {reason}" if found.get("verdict") in _STOPPED else reason


def why(
    draft: MintDraft,
    verdict: Verdict | None,
    name: Callable[[int], str],
    *,
    long: bool = False,
    cut_off: str = "",
) -> str:
    """The origin of a draft and the reason for its verdict, as in "repairs 1.3; compile: ...".

    `name` gives the text for another draft's index. `cut_off` follows the words on a draft that
    reached the token limit. Empty for a draft of the first round without a verdict.
    """
    return "; ".join(
        filter(None, (origin(draft, name), outcome(draft, verdict, name, long, cut_off)))
    )


def origin(draft: MintDraft, name: Callable[[int], str]) -> str:
    """The source of a draft that is not of the smith's first round; else empty."""
    if draft.author == "template":
        return f"by {TEMPLATE} ({draft.changes})" if draft.changes else f"by {TEMPLATE}"
    if draft.parent is None:
        return ""
    parent = name(draft.parent)
    return (
        f"by {TUNER} from {parent} ({draft.changes})"
        if draft.author == "tuner"
        else f"repairs {parent}"
    )


def outcome(
    draft: MintDraft,
    verdict: Verdict | None,
    name: Callable[[int], str],
    long: bool = False,
    cut_off: str = "",
) -> str:
    """The reason for a draft's verdict, or the kernel that it repeats; see `why`."""
    if draft.duplicate_of is not None:
        return f"the same kernel as {name(draft.duplicate_of)}"
    if verdict is None:
        return ""
    reason = long_reason(verdict) if long else short_reason(verdict)
    if draft.truncated and not verdict.passed:
        return f"cut off after {draft.tokens} tokens{cut_off}; {reason}"
    return reason


def weakness(environment: Mapping[str, Any]) -> str:
    """The layers of the sandbox that were missing at a verdict, in one line; "" when none was."""
    from referee.sandbox.demand import Protection, weakness_text

    return weakness_text([Protection(**layer) for layer in environment.get("sandbox", ())])


def reason_without_sandbox(verdict: Verdict) -> str:
    """The whole reason without the missing layers of the sandbox: a table names these once below."""
    return long_reason(verdict).removesuffix(f"; {weakness(verdict.environment)}")


def cell_status(status: str, role: str) -> str:
    """The word for the outcome of a test case: "no" for a capability that the kernel lacks.

    A missing capability is no failure: the verdict stands, and a saved file refuses such inputs.
    """
    return "no" if role == "capability" and status == "fail" else status


def counted(number: int, noun: str) -> str:
    """A number with its noun, such as "1 case" and "2 cases"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _document(verdict: Verdict | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(verdict, Mapping):
        return verdict
    # `to_json` copies every case and check, which takes too long for a table at every change.
    return {**vars(verdict), "cells": [vars(case) for case in verdict.cells]}

"""What a smith is told of a draft that the referee rejected: one line, in full or in brief.

In full it is the stage and the referee's own reason, as the large smiths were trained on. A very small smith knows no words
but those of its training, and any others spoil its answer: in brief it is only told at which cell and how far it is off, or
the stage where it fell. Which form a smith gets is in its entry of `models.toml`; `bench/dialects.py` measures both.
"""

from __future__ import annotations

import math
import re

from kmint_tui.minting.drafts import Draft
from kmint_tui.models.registry import Feedback
from referee.verdict import Verdict

_WRONG = re.compile(r"(\d+) of \d+ elements wrong")


def feedback(draft: Draft, verdict: Verdict, form: Feedback) -> str:
    """The line about one rejected draft."""
    if form == "brief":
        return _brief(verdict)
    line = f"{verdict.stage}: {verdict.reason}"
    return f"the answer was cut off after {draft.tokens} tokens, write a shorter kernel; {line}" if draft.truncated else line


def _brief(verdict: Verdict) -> str:
    """The failing cell and how far it is off; for anything else than a wrong answer only the stage."""
    cell = next((cell for cell in verdict.cells if cell.status == "fail" and cell.role != "capability"), None)
    wrong = _WRONG.search(verdict.reason)
    if cell is None or wrong is None:
        return verdict.stage if verdict.stage in ("screen", "trace", "compile") else "incorrect"
    if cell.error is None or not math.isfinite(cell.error):
        return f"incorrect: the output holds NaN at {cell.name}; subtract the row maximum and mask the tail of the row"
    return f"incorrect: error {cell.error:.3g} at {cell.name}, {wrong.group(1)} elements over the tolerance"

"""How a crown changes hands: only by a win in a head-to-head replay of both kernels in one run.

A vacant crown goes to the first kernel that beat every baseline. A tie or an undecided duel leaves it where it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kmint_tui.crowns.records import Claim, Duel, Outcome, Reign
from kmint_tui.crowns.store import Crowns

Replay = Callable[[str, str, str], Duel]
"""(challenger's source, champion's source, op) timed head to head."""

ATTEMPTS = 5


@dataclass(frozen=True)
class Result:
    """What came of a claim: the holder afterwards, who held it before, and the duel if there was one."""

    outcome: Outcome
    holder: Reign
    before: Reign | None
    duel: Duel | None


def challenge(crowns: Crowns, claim: Claim, replay: Replay) -> Result:
    """Let a claim be decided. Raises what `replay` raises, and then nothing has changed; RuntimeError if others keep winning."""
    for _ in range(ATTEMPTS):
        champion = crowns.holder(claim.crown)
        if champion is not None and champion.source == claim.source:
            return Result("held", champion, champion, None)
        duel = replay(claim.source, champion.source, claim.crown.op) if champion else None
        outcome = crowns.settle(claim, champion, duel)
        if outcome is not None:
            holder = crowns.holder(claim.crown)
            assert holder is not None
            return Result(outcome, holder, champion, duel)
    raise RuntimeError(f"the crown for {claim.crown.op} changed hands {ATTEMPTS} times while it was being claimed")

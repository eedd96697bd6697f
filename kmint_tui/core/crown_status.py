"""Every crown with its holder, earlier holders, and the drafts that could challenge it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kmint_tui.core import duel
from kmint_tui.core.jobs import Job
from kmint_tui.core.referee import demand
from kmint_tui.crowns.records import Claim, Crown, Duel, NoClaim, Reign
from kmint_tui.crowns.records import claim as claim_of
from kmint_tui.crowns.store import Crowns, Result, challenge
from kmint_tui.errors import UsageError
from kmint_tui.history.records import parse_id
from kmint_tui.history.store import History


@dataclass(frozen=True)
class CrownStatus:
    """One crown. `reigns` has the newest first; `challengers` has the fastest draft first."""

    crown: Crown
    reigns: tuple[Reign, ...]
    challengers: tuple[Claim, ...]

    @property
    def key(self) -> str:
        """A text that is unique among crowns."""
        crown = self.crown
        return "\t".join((crown.op, crown.cell, crown.device, crown.torch, crown.triton))

    @property
    def holder(self) -> Reign | None:
        """The current holder; None for a vacant crown."""
        return next((reign for reign in self.reigns if reign.ended is None), None)


def crown_statuses(history_file: Path) -> tuple[CrownStatus, ...]:
    """All crowns with a holder, an earlier holder or a possible claim, sorted by operation and
    device.
    """
    if not history_file.exists():
        return ()
    reigns: dict[Crown, list[Reign]] = {}
    claims: dict[Crown, list[Claim]] = {}
    with Crowns(history_file) as store:
        for reign in store.reigns(past=True):
            reigns.setdefault(reign.crown, []).append(reign)
    for claim in _claims(history_file):
        claims.setdefault(claim.crown, []).append(claim)
    found = []
    for crown in dict.fromkeys((*reigns, *claims)):
        held = tuple(reigns.get(crown, ()))
        holding = {reign.source for reign in held if reign.ended is None}
        challengers = sorted(
            (claim for claim in claims.get(crown, ()) if claim.source not in holding),
            key=lambda claim: claim.device_us,
        )
        found.append(CrownStatus(crown, held, tuple(challengers)))
    return tuple(
        sorted(found, key=lambda status: (status.crown.op, status.crown.device, status.key))
    )


def claim(history_file: Path, identity: str, job: Job) -> Result:
    """Claim a crown for a draft; a held crown needs a win in a head-to-head replay.

    Raises UsageError for a draft that cannot claim, EnvironmentUnfit without a replay, and
    Cancelled. After an error nothing has changed.
    """
    where = parse_id(identity)
    if where.number is None:
        raise UsageError(f"{identity} is a session", fix="name one of its drafts")
    with History(history_file) as history:
        claimed = claim_of(
            history.session(where.session), history.draft(where.session, where.number)
        )

    def replay(challenger: str, champion: str, crown: Crown) -> Duel:
        job.go_on()
        found = duel.head_to_head(challenger, champion, crown, demand=demand())
        job.go_on()
        return found

    with Crowns(history_file) as store:
        return challenge(store, claimed, replay)


def claim_text(result: Result) -> str:
    """The result of a claim in one line."""
    holder, fought = result.holder, result.duel
    against = (
        f": {fought.ratio:.3f}x ({fought.low:.3f} to {fought.high:.3f}), {fought.decision}"
        if fought
        else ""
    )
    verb = {
        "vacant": "takes the vacant crown",
        "held": "holds it already",
        "taken": "takes the crown",
        "kept": "keeps the crown",
    }
    return f"{holder.draft} {verb[result.outcome]} for {holder.crown.op} on {holder.crown.device}{against}"


def _claims(history_file: Path) -> Iterable[Claim]:
    with History(history_file) as history:
        for summary in history.summaries():
            if summary.best != "win":
                continue
            session, sources = history.session(summary.id), set()
            for draft in history.drafts(summary.id):
                if draft.outcome != "win" or draft.source in sources:
                    continue
                sources.add(draft.source)
                try:
                    yield claim_of(session, draft)
                except NoClaim:
                    continue

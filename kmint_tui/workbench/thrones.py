"""Every crown with its holder, those who reigned before, and the drafts of the history that could challenge."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kmint_tui.cli import duel
from kmint_tui.crowns.challenge import Result, challenge
from kmint_tui.crowns.records import Claim, Crown, Duel, NoClaim, Reign
from kmint_tui.crowns.records import claim as claim_of
from kmint_tui.crowns.store import Crowns
from kmint_tui.errors import UsageError
from kmint_tui.history.records import parse_id
from kmint_tui.history.store import History
from kmint_tui.workbench.jobs import Job


@dataclass(frozen=True)
class Throne:
    """One crown. `reigns` are all of it, the newest first; `challengers` the drafts that may claim it, the fastest first."""

    crown: Crown
    reigns: tuple[Reign, ...]
    challengers: tuple[Claim, ...]

    @property
    def key(self) -> str:
        """What tells it from the others."""
        crown = self.crown
        return "\t".join((crown.op, crown.cell, crown.device, crown.torch, crown.triton))

    @property
    def holder(self) -> Reign | None:
        """Who reigns now; None while the crown is vacant."""
        return next((reign for reign in self.reigns if reign.ended is None), None)


def thrones(history_file: Path) -> tuple[Throne, ...]:
    """All crowns that are or were held or that a draft could claim, by operation, device and versions."""
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
        challengers = sorted((claim for claim in claims.get(crown, ()) if claim.source not in holding), key=lambda claim: claim.device_us)
        found.append(Throne(crown, held, tuple(challengers)))
    return tuple(sorted(found, key=lambda throne: (throne.crown.op, throne.crown.device, throne.key)))


def claim(history_file: Path, identity: str, job: Job) -> Result:
    """Let a draft claim its crown; a crown that is held is fought for head to head.

    Raises UsageError for a draft that cannot, EnvironmentUnfit where no duel can be fought, Cancelled; then nothing has changed.
    """
    where = parse_id(identity)
    if where.number is None:
        raise UsageError(f"{identity} is a session", fix="name one of its drafts")
    with History(history_file) as history:
        claimed = claim_of(history.session(where.session), history.draft(where.session, where.number))

    def replay(challenger: str, champion: str, op: str) -> Duel:
        job.go_on()
        found = duel.head_to_head(challenger, champion, op)
        job.go_on()
        return found

    with Crowns(history_file) as store:
        return challenge(store, claimed, replay)


def told(result: Result) -> str:
    """What came of a claim, in one line."""
    holder, fought = result.holder, result.duel
    against = f": {fought.ratio:.3f}x ({fought.low:.3f} to {fought.high:.3f}), {fought.decision}" if fought else ""
    verb = {"vacant": "takes the vacant crown", "held": "holds it already", "taken": "takes the crown", "kept": "keeps the crown"}
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

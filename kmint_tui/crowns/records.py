"""Crowns as frozen dataclasses: what one is for, who claims it, who reigned, and what a head-to-head replay said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from kmint_tui.errors import UsageError
from kmint_tui.history.records import Draft, Session

if TYPE_CHECKING:
    from referee.measuring.stats import Decision

Outcome = Literal["vacant", "taken", "kept", "held"]
"""The claimant got a vacant crown, took it from another kernel, did not, or is the holder already."""


class NoClaim(UsageError):
    """A draft that cannot claim a crown; says why."""

    title = "no claim to a crown"


@dataclass(frozen=True)
class Crown:
    """What a crown is for. Times on different devices or versions are never compared."""

    op: str
    cell: str
    device: str
    torch: str
    triton: str


@dataclass(frozen=True)
class Claim:
    """A draft that beat every baseline, with its own timing there: microseconds, and the ratio to the fastest baseline."""

    crown: Crown
    draft: str
    model: str
    source: str
    device_us: float
    ratio: float
    bar: str


@dataclass(frozen=True)
class Duel:
    """A head-to-head replay in one run. `ratio` is champion / challenger, above 1: the challenger is faster."""

    decision: Decision
    reason: str
    ratio: float
    low: float
    high: float
    challenger_us: float
    champion_us: float
    rounds: int
    seed: int

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


@dataclass(frozen=True)
class Reign:
    """One kernel's time on the throne; `ended` is None while it lasts. `duel` is how it was won, None if it was vacant."""

    id: int
    crown: Crown
    draft: str
    model: str
    source: str
    began: str
    ended: str | None
    device_us: float
    ratio: float
    bar: str
    duel: Mapping[str, Any] | None

    def to_json(self) -> dict[str, Any]:
        """For `kmint.crowns/1`, without the source."""
        return {name: value for name, value in asdict(self).items() if name != "source"}


def claim(session: Session, draft: Draft) -> Claim:
    """The claim of a draft that won. Raises NoClaim for one that did not beat the fastest baseline in a timed verdict."""
    verdict = draft.verdict or {}
    timing = verdict.get("timing")
    if draft.outcome != "win" or not timing:
        said = draft.outcome or "not judged"
        raise NoClaim(f"draft {draft.id} is {said}; only a timed win over every baseline can claim a crown")
    environment = verdict.get("environment") or {}
    device = {name: environment.get(name) or (timing.get("environment") or {}).get(name) for name in ("device", "torch", "triton")}
    unknown = [name for name, value in device.items() if not value]
    if unknown:
        raise NoClaim(f"the verdict on draft {draft.id} does not say its {' and '.join(unknown)}", fix="judge it again")
    return Claim(
        crown=Crown(session.op, str(timing["cell"]), str(device["device"]), str(device["torch"]), str(device["triton"])),
        draft=draft.id,
        model=draft.maker(session.model),
        source=draft.source,
        device_us=float(timing["device"]["candidate"]["median"]),
        ratio=float(timing["ratio"]["ratio"]),
        bar=str(timing["bar"]),
    )

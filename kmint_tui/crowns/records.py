"""Crowns as frozen dataclasses: the crown, the claim, the reigns, and the result of a duel."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from kmint_tui.errors import UsageError
from kmint_tui.history.records import Draft, Session
from kmint_tui.history.verdicts import speed
from referee.versions import compiler_name

if TYPE_CHECKING:
    from referee.timing.stats import Decision

Outcome = Literal["vacant", "taken", "kept", "held"]
"""Outcome of a claim: a vacant crown, a crown taken from another kernel, a loss, or no change."""

_ASKED = re.compile(r"(f32|f16|bf16)-(\d+)x(\d+)-asked-")
"""The name of every case that `--shape` or `--dtype` made."""
_LONG = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}


class NoClaim(UsageError):
    """A draft that cannot claim a crown, with the reason."""

    title = "no claim to a crown"


@dataclass(frozen=True)
class Crown:
    """The operation, timed cell, device and versions of a record. Others are never compared."""

    op: str
    cell: str
    device: str
    torch: str
    triton: str

    def differences(self, environment: Mapping[str, Any]) -> tuple[str, ...]:
        """The names that `environment` gives another value: device, torch, or triton and its
        switches. Names that it lacks do not count.
        """
        here = {name: environment[name] for name in ("device", "torch") if name in environment}
        if "triton" in environment:
            here["triton"] = compiler_name(environment)
        return tuple(name for name, value in here.items() if str(value) != getattr(self, name))


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A draft that beat every baseline, with its own timing there: microseconds, and the ratio to
    the fastest baseline.
    """

    crown: Crown
    draft: str
    model: str
    source: str
    device_us: float
    ratio: float
    bar: str


@dataclass(frozen=True, kw_only=True)
class Duel:
    """A head-to-head replay in one run. `ratio` is champion / challenger, above 1: the challenger
    is faster.
    """

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


@dataclass(frozen=True, kw_only=True)
class Reign:
    """The time in which one kernel held a crown; `ended` is None for the present holder.

    `duel` is the duel that the kernel won, None if the crown was vacant.
    """

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


def shape_of(cell: str) -> str | None:
    """The shape of an asked case as `--shape` takes it; None for a usual case."""
    found = _ASKED.match(cell)
    return f"{found[2]}x{found[3]}:{_LONG[found[1]]}" if found else None


def claim(session: Session, draft: Draft, shape: str | None = None) -> Claim:
    """The claim of a draft that won, at its usual shape or at `shape` (32768x1024:bfloat16).

    Raises NoClaim for one that did not beat the fastest baseline there in a timed verdict.
    """
    verdict = draft.verdict or {}
    timing, outcome = verdict.get("timing") or {}, draft.outcome
    if shape is not None:
        timing, outcome = _timing_at(draft, timing, shape)
    found = speed({"timing": timing})
    if outcome != "win" or found is None:
        said = outcome or "not judged"
        raise NoClaim(
            f"draft {draft.id} is {said}; only a timed win over every baseline can claim a crown"
        )
    if verdict.get("host_code"):
        line, what = verdict["host_code"][0]["line"], verdict["host_code"][0]["what"]
        raise NoClaim(
            f"the verdict on draft {draft.id} does not vouch for its host code (line {line}, "
            f"{what})",
            fix="write the host code anew with shapes, allocations and launches alone",
        )
    if shape is None and (own := shape_of(str(timing.get("cell")))):
        raise NoClaim(
            f"draft {draft.id} was timed at {own}, a shape that was asked for",
            fix=f"`kmint crowns claim {draft.id} --shape {own}` claims the crown of that shape",
        )
    if verdict.get("holds"):
        raise NoClaim(
            f"the verdict on draft {draft.id} does not hold for every case",
            fix="a crown is for a kernel that holds for every case of its operation",
        )
    environment = verdict.get("environment") or {}
    environment = {
        **(timing.get("environment") or {}),
        **{name: value for name, value in environment.items() if value},
    }
    device = {name: environment.get(name) for name in ("device", "torch", "triton")}
    unknown = [name for name, value in device.items() if not value]
    if unknown:
        raise NoClaim(
            f"the verdict on draft {draft.id} does not say its {' and '.join(unknown)}",
            fix="judge it again",
        )
    return Claim(
        crown=Crown(
            session.op,
            found.cell,
            str(device["device"]),
            str(device["torch"]),
            compiler_name(environment),
        ),
        draft=draft.id,
        model=draft.maker(session.model),
        source=draft.source,
        device_us=found.microseconds,
        ratio=found.ratio,
        bar=found.bar,
    )


def _timing_at(draft: Draft, timing: Mapping[str, Any], shape: str) -> tuple[Any, str]:
    """The timing of a verdict at one asked shape, and the decision there. Raises NoClaim."""
    for one in timing.get("shapes") or [timing]:
        if shape_of(str(one.get("cell"))) == shape:
            return one, str(one.get("decision") or draft.outcome)
    raise NoClaim(
        f"draft {draft.id} was not timed at {shape}",
        fix=f"`kmint tune {draft.id} --shape {shape}` times it there, and its winner can claim",
    )

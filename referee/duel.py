"""Two kernels head to head: traced, compiled and checked by the same rules, then timed against each other in one run.

Both are checked at every required cell with the same secret seed. Then a process of its own, which ends with the duel, times them
(`duel_worker.py`): rounds of {challenger, champion, floor} in random order under the protocol of `timing.py`. Needs a GPU here.
Torch-free on this side.
"""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from referee import ops
from referee.device import wire
from referee.device.gpu import Replayer, ReplayerError, default_cache
from referee.device.gpu_worker import WorkerLost, WorkerProcess
from referee.device.jobs import Prepared, TaskName, pack_jobs, rejection_from_json
from referee.device.prepare import prepare, settle
from referee.measuring.measurement import TimingOptions
from referee.measuring.stats import Decision, Interval, Summary
from referee.sandbox.workers import Workers
from referee.subject import required
from referee.target import Target
from referee.verdict import Rejection

Side = Literal["challenger", "champion"]

SEED_BITS = 63
REQUEST_SECONDS = 180.0


class DuelRefused(Exception):
    """One of the two does not pass the referee, alone or beside the other. Nobody has won, whichever it is."""

    def __init__(self, whose: Side, rejection: Rejection) -> None:
        super().__init__(f"the {whose} does not pass: {rejection.reason}")
        self.whose: Side = whose
        self.rejection = rejection


@dataclass(frozen=True)
class DuelResult:
    """`ratio` is champion / challenger (above 1: the challenger is faster); times are device microseconds with a cold L2."""

    decision: Decision
    reason: str
    ratio: Interval
    challenger: Summary
    champion: Summary
    floor: Summary | None
    seed: int
    environment: dict[str, Any]


def duel(
    challenger: str, champion: str, op: str, *, seed: int | None = None, options: TimingOptions | None = None, cache: Path | None = None
) -> DuelResult:
    """Time two candidates' sources for a catalogue op head to head.

    Raises DuelRefused when one does not pass, ReplayerError when there is no GPU, the machinery fails or a time cannot be true, UnknownOp.
    """
    secret = secrets.randbits(SEED_BITS) if seed is None else seed
    sources: tuple[tuple[Side, str], ...] = (("challenger", challenger), ("champion", champion))
    cells = required(ops.cells(ops.get(op), profile="gpu"))
    with Workers() as workers, Replayer(cache=cache) as replayer:
        device = replayer.environment()
        target = Target.from_json(device["target"]) if device.get("target") else Target()
        sides: dict[Side, Prepared] = {}
        for side, source in sources:
            found = _passed(side, prepare(workers, source, TaskName(op), cells, target))
            found = _passed(side, settle(replayer, found, seed=secret))
            if rejection := replayer.check(found, seed=secret).rejection:
                raise DuelRefused(side, rejection)
            sides[side] = found
    answer = _timed(sides, secret, options or TimingOptions(), cache or default_cache())
    if answer["rejection"] is not None:
        rejection = rejection_from_json(answer["rejection"])
        assert rejection is not None
        raise DuelRefused(answer["whose"], rejection)
    return DuelResult(
        decision=answer["decision"],
        reason=answer["reason"],
        ratio=Interval(**answer["ratio"]),
        challenger=Summary(**answer["challenger"]),
        champion=Summary(**answer["champion"]),
        floor=Summary(**answer["floor"]) if answer["floor"] else None,
        seed=secret,
        environment=device,
    )


def _passed(side: Side, found: Prepared | Rejection) -> Prepared:
    if isinstance(found, Rejection):
        raise DuelRefused(side, found)
    return found


def _timed(sides: dict[Side, Prepared], seed: int, options: TimingOptions, cache: Path) -> dict[str, Any]:
    jobs = [side.bench for side in sides.values() if side.bench is not None]
    if len(jobs) != len(sides):
        raise ReplayerError("this operation has no cell to time")
    packed, blobs = pack_jobs(jobs)
    message = {
        "jobs": packed,
        "task": asdict(sides["challenger"].task),
        "sides": [{"name": name, "choice": dict(side.choice), "atomics": side.atomics} for name, side in sides.items()],
        "seed": seed,
        "options": asdict(options),
    }
    process = WorkerProcess(cache, "referee.device.duel_worker")
    try:
        answer = process.request(wire.frame(message, blobs), seconds=REQUEST_SECONDS)
    except WorkerLost as lost:
        raise ReplayerError(str(lost)) from lost
    finally:
        process.close()
    if "broken" in answer:
        raise ReplayerError(f"the duel failed: {answer['broken']}")
    return answer

"""Times two kernels head to head, after tracing, compiling and checking both by the same rules.

Both are checked at every required cell with the same secret seed. A separate process then times
them (`duel_worker.py`), in rounds of {challenger, champion, floor} in random order, under the
protocol of `referee/timing`. The module needs a GPU. It is torch-free on this side.
"""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from referee.gpu import wire
from referee.gpu.compile_candidate import choose_autotune_config, compile_candidate
from referee.gpu.jobs import CompiledCandidate, pack_jobs, rejection_from_json
from referee.gpu.replayer import Replayer, ReplayerError, default_cache
from referee.gpu.worker_process import WorkerLost, WorkerProcess
from referee.problem import Problem, TaskName, required
from referee.sandbox.demand import Demand
from referee.sandbox.zygote import Workers
from referee.target import Target
from referee.timing.measurement import TimingOptions
from referee.timing.stats import Decision, Interval, Summary
from referee.verdict import Rejection

Side = Literal["challenger", "champion"]

SEED_BITS = 63
REQUEST_SECONDS = 180.0


class HeadToHeadRefused(Exception):
    """One of the two does not pass the referee, so neither has won."""

    def __init__(self, whose: Side, rejection: Rejection) -> None:
        super().__init__(f"the {whose} does not pass: {rejection.reason}")
        self.whose: Side = whose
        self.rejection = rejection


@dataclass(frozen=True)
class HeadToHeadResult:
    """`ratio` is champion / challenger. Times are device microseconds with a cold L2."""

    decision: Decision
    reason: str
    ratio: Interval
    challenger: Summary
    champion: Summary
    floor: Summary | None
    seed: int
    environment: dict[str, Any]


def time_head_to_head(
    challenger: str,
    champion: str,
    op: str | TaskName,
    *,
    seed: int | None = None,
    options: TimingOptions | None = None,
    cache: Path | None = None,
    demand: Demand = "files",
) -> HeadToHeadResult:
    """Time two candidates' sources for a catalogue operation head to head, at its timed case.

    `demand` names the sandbox layers that must be active. Raises HeadToHeadRefused if one does not
    pass, UnknownOp, and ReplayerError without a GPU, for a failed replay or an impossible time.
    """
    secret = secrets.randbits(SEED_BITS) if seed is None else seed
    sources: tuple[tuple[Side, str], ...] = (("challenger", challenger), ("champion", champion))
    cells = required(Problem(op).cells("gpu"))
    task = TaskName.of(op) if isinstance(op, str) else op
    with Workers(demand=demand) as workers, Replayer(cache=cache) as replayer:
        device = replayer.environment()
        target = Target.from_json(device["target"]) if device.get("target") else Target()
        sides: dict[Side, CompiledCandidate] = {}
        for side, source in sources:
            found = _passed(side, compile_candidate(workers, source, task, cells, target))
            found = _passed(side, choose_autotune_config(replayer, found, seed=secret))
            if rejection := replayer.check(found, seed=secret).rejection:
                raise HeadToHeadRefused(side, rejection)
            sides[side] = found
    answer = _timed(sides, secret, options or TimingOptions(), cache or default_cache())
    if answer["rejection"] is not None:
        rejection = rejection_from_json(answer["rejection"])
        assert rejection is not None
        raise HeadToHeadRefused(answer["whose"], rejection)
    return HeadToHeadResult(
        decision=answer["decision"],
        reason=answer["reason"],
        ratio=Interval(**answer["ratio"]),
        challenger=Summary(**answer["challenger"]),
        champion=Summary(**answer["champion"]),
        floor=Summary(**answer["floor"]) if answer["floor"] else None,
        seed=secret,
        environment=device,
    )


def _passed(side: Side, found: CompiledCandidate | Rejection) -> CompiledCandidate:
    if isinstance(found, Rejection):
        raise HeadToHeadRefused(side, found)
    return found


def _timed(
    sides: dict[Side, CompiledCandidate], seed: int, options: TimingOptions, cache: Path
) -> dict[str, Any]:
    jobs = [side.bench for side in sides.values() if side.bench is not None]
    if len(jobs) != len(sides):
        raise ReplayerError("this operation has no cell to time")
    packed, blobs = pack_jobs(jobs)
    message = {
        "jobs": packed,
        "task": asdict(sides["challenger"].task),
        "sides": [
            {"name": name, "choice": dict(side.choice), "atomics": side.atomics}
            for name, side in sides.items()
        ],
        "seed": seed,
        "options": asdict(options),
    }
    process = WorkerProcess(cache, "referee.gpu.duel_worker")
    try:
        answer = process.request(wire.frame(message, blobs), seconds=REQUEST_SECONDS)
    except WorkerLost as lost:
        raise ReplayerError(str(lost)) from lost
    finally:
        process.close()
    if "broken" in answer:
        raise ReplayerError(f"the duel failed: {answer['broken']}")
    return answer

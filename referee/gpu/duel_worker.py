"""The process of one duel: times two plans against each other for one request, answers, and ends.

It runs kmint's code only, on CUDA only.
"""

from __future__ import annotations

import math
import os
import time
import traceback
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from typing import Any, Literal

import numpy as np
import torch

from referee.gpu import wire
from referee.gpu.jobs import unpack_jobs
from referee.gpu.replay_service import Loaded
from referee.ops.task import load
from referee.plans.plan_parse import PlanError
from referee.problem import TaskName
from referee.reference.task import load_task
from referee.replaying.driver import Driver
from referee.replaying.replay import PlanFault
from referee.replaying.replay_check import (
    CANDIDATE_SECONDS,
    FAULTS,
    REFEREE_SECONDS,
    Host,
    as_fault,
    out_of_memory,
)
from referee.timing import floor, stats
from referee.timing.baselines import Baselines
from referee.timing.contest import Contest
from referee.timing.decision import SETTLED, enough, firm
from referee.timing.measurement import CANDIDATE, FLOOR, TimingOptions
from referee.timing.nvml import Clocks, Sample
from referee.timing.pace import paced
from referee.timing.rounds import Entry, Flush, run_block
from referee.timing.stage import Stage
from referee.timing.stage_layout import subseed
from referee.timing.timer import MOST_DROPPED, WARM_UP, call_us
from referee.verdict import Rejection

NOBODY = Baselines({}, {}, {})
ALONE = -1
"""The block number for a block with only the failing side."""


class ImpossibleTime(RuntimeError):
    """A side took less time than the work can take, which counts as a measuring error."""


class Match:
    """Two contests at one test case, each with its own stage and values."""

    def __init__(self, host: Host, contests: Mapping[str, Contest], options: TimingOptions) -> None:
        assert host.driver is not None
        self._host, self._contests, self._options = host, contests, options
        seed, cell = next((contest.seed, contest.cell) for contest in contests.values())
        self._stages = {
            name: Stage(host, contest, options.rounds) for name, contest in contests.items()
        }
        self._floor = floor.Floor(*floor.bytes_moved(cell), floor.rated_bandwidth(host.driver))
        self._flush = Flush(torch.cuda.get_device_properties(0).L2_cache_size)
        self._clocks = Clocks.open(host.driver.pci_bus_id())
        self._generator = np.random.default_rng(subseed(seed, "order"))
        self._blocks: list[dict[str, stats.Floats]] = []
        self._own = 0.0
        self.failing: str | None = None

    def measure(self) -> dict[str, Any]:
        """Runs blocks of rounds until the ratio is certain.

        Raises PlanFault for a wrong timed output, with the side in `failing`, and ImpossibleTime.
        """
        self._slow = self._slowness()
        options = self._paced()
        # The time limit excludes the calls themselves, which the check repeats, and kmint's work on
        # them.
        seconds = options.seconds + 1e-6 * self._slow * options.least_rounds * 2 * len(self._stages)
        started, dropped, number, counted = time.monotonic(), 0, 0, 0
        while (
            counted < options.most_rounds
            and time.monotonic() - started < seconds + self._own
            and dropped <= MOST_DROPPED
        ):
            number += 1
            dropped += not self._one_block(number) and number > 1
            options = self._paced()
            counted = sum(block[FLOOR].size for block in self._blocks)
            if counted >= options.least_rounds and self._enough(options):
                break
        found = self._between(*self._contests)
        ratio = found.interval(0.95)
        summaries = {name: stats.summarise(self._times(name)) for name in (*self._contests, FLOOR)}
        if not self._blocks or any(summaries[name] is None for name in self._contests):
            raise RuntimeError("no block of rounds was usable")
        self._disbelieve(summaries)
        plain = {name: asdict(summary) if summary else None for name, summary in summaries.items()}
        decision, reason = firm(stats.decide(ratio), found.interval(SETTLED), options.least_rounds)
        plain |= {"rejection": None, "ratio": asdict(ratio)}
        return {**plain, "decision": decision, "reason": reason}

    def _paced(self) -> TimingOptions:
        """The options, with few rounds where calls are slow; sizes the next block."""
        options = paced(self._options, self._slow)
        self._rounds = min(options.rounds, *(stage.rounds for stage in self._stages.values()))
        return options

    def _slowness(self) -> float:
        """Microseconds of one call of the slower side, to size the blocks."""
        found = []
        for name, stage in self._stages.items():
            self._host.progress("drawing inputs to time", REFEREE_SECONDS, "referee")
            stage.refill(0, 1, {})
            entry = stage.entry(name)
            assert entry.before
            entry.before(0)
            self._host.wait()
            self._host.progress(f"replaying the {name} for timing", CANDIDATE_SECONDS, "candidate")
            found.append(call_us(self._host, partial(entry.call, 0)))
        return max(found)

    def _one_block(self, number: int) -> bool:
        """Runs one block; True if it counts. The first one only warms up."""
        rounds = min(WARM_UP, self._rounds) if number == 1 else self._rounds
        self._host.progress("drawing inputs to time", REFEREE_SECONDS, "referee")
        started = time.monotonic()
        for stage in self._stages.values():
            stage.refill(number, rounds, {})
        self._own += time.monotonic() - started
        self._host.progress(f"timing block {number}", 6 * CANDIDATE_SECONDS, "candidate")
        samples: list[Sample] = []
        meanwhile = partial(self._meanwhile, samples)
        block = run_block(self._entries(), rounds, self._flush, self._generator, during=meanwhile)
        self._host.wait()
        # A first call may be slow because it loads code; the measured median is better.
        self._slow = min(self._slow, max(_median(block.times[name]) for name in self._contests))
        if number == 1:
            return False
        self._host.progress("checking the timed outputs", REFEREE_SECONDS, "referee")
        started = time.monotonic()
        self._check()
        self._own += time.monotonic() - started
        # Later failures, such as at the next launch, are not this side's.
        self.failing = None
        if any(sample.slowdowns for sample in samples):
            return False
        self._blocks.append(block.times)
        return True

    def _check(self) -> None:
        """Checks both sides' outputs of a block. Raises PlanFault with the faulty side in
        `failing`.

        A kernel that fails now and then looks as if the other side had failed. In either case no
        side wins.
        """
        for name, stage in self._stages.items():
            self.failing = name
            try:
                stage.check()
            except PlanFault as found:
                # A kernel may write into the other side's memory; alone, each side passed.
                if found.sticky or self._fails_alone(stage, name):
                    raise
                self.failing = next(other for other in self._stages if other != name)
                together = "together with this kernel, and not without it"
                reason = f"{together}, the {name} goes wrong: {found.reason}"
                raise PlanFault(found.guard, reason) from found

    def _fails_alone(self, stage: Stage, name: str) -> bool:
        self._host.progress("drawing inputs to time", REFEREE_SECONDS, "referee")
        stage.refill(ALONE, self._rounds, {})
        self._host.progress(f"replaying the {name} alone", 6 * CANDIDATE_SECONDS, "candidate")
        run_block([stage.entry(name)], self._rounds, self._flush, self._generator)
        self._host.wait()
        try:
            stage.check()
        except PlanFault:
            return True
        return False

    def _disbelieve(self, summaries: Mapping[str, stats.Summary | None]) -> None:
        """Raises ImpossibleTime for a time below the floor.

        The other side is no evidence: both may be wrong in the same way.
        """
        known = {name: summary for name, summary in summaries.items() if summary}
        for name, contest in self._contests.items():
            # A user's reference may ignore inputs; only the catalogue's operations surely read
            # every byte.
            if contest.task.op.is_function:
                continue
            if problem := self._floor.problem(
                {**known, CANDIDATE: known[name]},
                {FLOOR: self._between(name, FLOOR).interval(0.95)},
            ):
                raise ImpossibleTime(f"the {name}'s time cannot be true: {problem}")

    def _entries(self) -> list[Entry]:
        return [
            *(stage.entry(name) for name, stage in self._stages.items()),
            Entry(FLOOR, self._floor.call),
        ]

    def _meanwhile(self, samples: list[Sample]) -> None:
        if isinstance(self._clocks, Clocks):
            samples.append(self._clocks.sample())
        for stage in self._stages.values():
            stage.ahead()

    def _times(self, name: str) -> stats.Floats:
        return np.concatenate([np.empty(0), *(block[name] for block in self._blocks)])

    def _enough(self, options: TimingOptions) -> bool:
        found = self._between(*self._contests)
        return enough(found.interval(0.95), found.interval(SETTLED), options)

    def _between(self, name: str, other: str) -> stats.Resampled:
        mine, theirs = ([block[one] for block in self._blocks] for one in (name, other))
        return stats.resample(stats.log_ratios(mine, theirs))


def _median(times: stats.Floats) -> float:
    return found.median if (found := stats.summarise(times)) else math.inf


def answer(host: Host, message: wire.Message, blobs: list[bytes]) -> wire.Message:
    """The duel's result, the rejection of one side, or the reason why there is neither."""
    sides = message["sides"]
    match: Match | None = None
    try:
        jobs = unpack_jobs(message["jobs"], blobs)
        asked = TaskName.from_json(message["task"]).asked
        task = load_task(asked, "gpu") if asked else load(message["task"]["op"], "gpu")
        with ExitStack() as loaded:
            contests = {}
            for side, job in zip(sides, jobs, strict=True):
                runner = loaded.enter_context(Loaded(host, job))
                choice = {int(step): int(config) for step, config in side["choice"].items()}
                # Separate seeds: neither side may find the other's answer to its values.
                seed = subseed(message["seed"], side["name"])
                contests[side["name"]] = Contest(
                    task=task,
                    cell=job.cell,
                    runner=runner,
                    choice=choice,
                    atomics=side["atomics"],
                    baselines=NOBODY,
                    seed=seed,
                )
            match = Match(host, contests, TimingOptions(**message["options"]))
            return match.measure()
    except PlanError as error:
        rejection = Rejection("timing", error.guard, str(error))
    except ImpossibleTime as error:
        return {"broken": str(error)}
    except FAULTS as error:
        found = as_fault(error)
        rejection = Rejection("timing", found.guard, found.reason)
    # A lost context does not name the faulty kernel. Both passed before, so the newcomer gets the
    # blame.
    whose = match.failing if match and match.failing else sides[0]["name"]
    return {"rejection": asdict(rejection), "whose": whose}


def main() -> None:
    """Serves the one request on standard input; prints of libraries go to standard error."""
    answers, incoming = os.dup(1), os.dup(0)
    os.dup2(2, 1)

    def progress(text: str, seconds: float, whose: Literal["candidate", "referee"]) -> None:
        wire.send(answers, wire.frame({"progress": text, "seconds": seconds, "whose": whose}))

    message, blobs = wire.receive(wire.blocking_reader(incoming))
    progress("starting CUDA", 180.0, "referee")
    try:
        torch.set_grad_enabled(False)
        torch.zeros(1, device="cuda")
        found = answer(Host("cuda", Driver(), progress), message, blobs)
    except torch.OutOfMemoryError as error:
        found = {"broken": out_of_memory(error)}
    except Exception:  # reported to the judge, which decides
        traceback.print_exc()
        found = {"broken": traceback.format_exc(limit=-4)}
    wire.send(answers, wire.frame(found))
    # A lost context makes orderly shutdown hang or crash, so there is none.
    os._exit(0)


if __name__ == "__main__":
    main()

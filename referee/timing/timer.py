"""Times a candidate against its baselines: blocks of interleaved rounds until the ratio is certain.

Each block runs on separate memory (`stage`), with new values at new addresses for every call.
Afterwards all timed outputs of the candidate are checked. Baselines far from the fastest and the
floor cannot decide, so they take part in some rounds of some blocks only. Measuring stops early for
a certain result, once a repeated verdict would be the same. It also stops for a result on a border;
one near a border is measured to the end. With too few rounds, no result is a win.

The floor is a plain device copy of as many bytes as the operation must move. Runs in the replay
worker, CUDA only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np

from referee.replaying.replay import PlanFault
from referee.replaying.replay_check import CANDIDATE_SECONDS, REFEREE_SECONDS, Host
from referee.timing import floor, stats
from referee.timing.contest import Contest
from referee.timing.decision import SETTLED, decided, firm
from referee.timing.graphs import ROUNDS as GRAPH_ROUNDS
from referee.timing.graphs import graph_times
from referee.timing.measurement import (
    BARS,
    BELOW_FLOOR,
    CANDIDATE,
    FLOOR,
    GRAPHED,
    Span,
    Timing,
    TimingOptions,
)
from referee.timing.nvml import Clocks, Sample
from referee.timing.pace import FAR_OFF, SLOW_CALL_US, few, paced, shares
from referee.timing.record import Record
from referee.timing.rounds import Entry, Flush, empty_window, host_times, run_block
from referee.timing.stage import Stage
from referee.timing.stage_layout import subseed

MOST_DROPPED = 6
"""Dropped blocks (in rounds) after which measuring stops."""
SLOWEST_CLOCK = 0.75
"""Share of the highest clock so far, below which a block does not count."""
SHORT_US = 30.0
"""Microseconds below which kernels are also timed as CUDA graphs."""
CALL_REPEATS, SLOW_CALL_REPEATS, FIRST_CALLS = 15, 6, 3
"""Host-timed calls, the same for slow calls, and the number of first calls that do not count."""
BASELINE_PATIENCE = 3.0
"""Multiple of their first call's time that baselines may add to a step of the candidate."""
CALLS, GRAPHS = -1, -2
"""Numbers of the blocks for call times and CUDA graphs."""
WARM_UP = 10
"""Rounds of the first block, which is neither counted nor checked."""


def call_us(host: Host, call: Callable[[], object]) -> float:
    """Microseconds of one call and its wait."""
    start = time.perf_counter()
    kept = call()
    host.wait()
    del kept
    return 1e6 * (time.perf_counter() - start)


class Timer:
    """Runs the protocol for one contest; `record` has every round's times.

    The object allocates its memory once.
    """

    def __init__(
        self,
        host: Host,
        contest: Contest,
        options: TimingOptions,
        flush: Flush,
        clocks: Clocks | str,
    ) -> None:
        self.host, self.contest, self.flush, self.clocks = host, contest, flush, clocks
        self.options = options
        assert host.driver is not None
        self._driver = host.driver
        self.record = Record()
        self._spent: dict[str, float] = {}
        self._generator = np.random.default_rng(subseed(contest.seed, "order"))
        self.read, self.written = floor.bytes_moved(contest.cell)
        with self._clocked("setting up"):
            self._stage = Stage(host, contest, options.rounds)
            self._floor = floor.Floor(self.read, self.written, floor.rated_bandwidth(self._driver))
        self.rounds = self._stage.rounds

    def measure(self) -> Timing:
        """Runs the protocol. Raises PlanFault for a wrong timed output or a GPU error."""
        with self._clocked("setting up"):
            window = empty_window(self.flush)
            slow = self._slow = self._slowness()
        record, notes = self.record, list[str]()
        record.warm_up = {name: np.array([took]) for name, took in slow.items()}
        options, slowest = self._paced(record)
        started, number, seconds = time.monotonic(), 0, options.seconds
        while record.rounds < options.most_rounds and time.monotonic() - started < seconds:
            number += 1
            before = self._own()
            needed = self._one_block(number, record, warm_up=number == 1)
            options, slowest = self._paced(record)
            # Until there are enough calls, the time limit excludes them and the referee's work on
            # them.
            seconds += (
                needed + self._own() - before if record.rounds < options.least_rounds else 0.0
            )
            if sum(record.dropped.values()) > MOST_DROPPED * self.rounds + self.rounds:
                notes.append("too many rounds were dropped; measuring stopped early")
                break
            bar = self._bar(record)
            if record.blocks and (bar is None or record.enough(bar, options)):
                break
        if slowest:
            notes.append(f"{slowest}, so only {options.least_rounds} rounds were timed")
        return self._report(record, window, notes, options.least_rounds)

    def _own(self) -> float:
        return self._spent.get("preparing", 0.0) + self._spent.get("checking", 0.0)

    def _paced(self, record: Record) -> tuple[TimingOptions, str]:
        """The options, with few rounds for slow calls, and a description of the slow calls; sizes
        the next block.

        The candidate and the fastest baseline take part in every round, so their times count. A
        first call may be slow because it loads or compiles code; later measurements are better.
        """
        slow = {name: min(took, record.median(name)) for name, took in self._slow.items()}
        fastest = sorted((name for name in BARS if name in slow), key=slow.__getitem__)[:1]
        slowest = max([CANDIDATE, *fastest], key=slow.__getitem__)
        options = paced(self.options, slow[slowest])
        self.rounds = min(self._stage.rounds, options.rounds)
        whose = "a call" if slowest == CANDIDATE else f"a call of {slowest}"
        return (
            options,
            "" if options is self.options else f"{whose} takes {slow[slowest] / 1000:.0f} ms",
        )

    def entries(self, shares: Mapping[str, int], floor_rounds: int = 0) -> list[Entry]:
        """The contestants of a block: the candidate always, others in the first rounds only."""
        ready = self.contest.baselines.ready
        theirs = [self._stage.rival(name, ready[name], share) for name, share in shares.items()]
        return [
            self._stage.entry(CANDIDATE),
            *theirs,
            *([Entry(FLOOR, self._floor.call, rounds=floor_rounds)] if floor_rounds else []),
        ]

    def _slowness(self) -> dict[str, float]:
        """Microseconds of each contestant's first call, which warms it up, to size the blocks."""
        ones = dict.fromkeys(self.contest.baselines.ready, 1)
        self._refill(0, 1, ones)
        found = {}
        for entry in self.entries(ones):
            assert entry.before
            entry.before(0)
            self.host.wait()
            if entry.name == CANDIDATE:
                self.host.progress(
                    f"replaying {self.contest.cell.name} for timing", CANDIDATE_SECONDS, "candidate"
                )
            else:
                self.host.progress(f"calling the baseline {entry.name}", REFEREE_SECONDS, "referee")
            found[entry.name] = call_us(self.host, partial(entry.call, 0))
        return found

    def _refill(self, number: int, rounds: int, shares: Mapping[str, int]) -> None:
        self.host.progress("drawing inputs to time", REFEREE_SECONDS, "referee")
        self._stage.refill(number, rounds, shares)

    def _needed(self, shares: Mapping[str, int]) -> float:
        return 1e-6 * sum(share * self._slow[name] for name, share in shares.items())

    def _timing(self, what: str, baselines: Mapping[str, int]) -> None:
        """Reports the progress of the candidate, whose time leaves out the baselines' calls."""
        self.host.progress(
            what, 6 * CANDIDATE_SECONDS + BASELINE_PATIENCE * self._needed(baselines), "candidate"
        )

    def _one_block(self, number: int, record: Record, *, warm_up: bool) -> float:
        """Adds a block to the record, unless it does not count. Returns its calls' seconds."""
        rounds = min(WARM_UP, self.rounds) if warm_up else self.rounds
        others = few(number, len(record.blocks))
        taking = shares(
            {name: record.median(name) for name in self.contest.baselines.ready}, rounds, others
        )
        with self._clocked("preparing"):
            self._refill(number, rounds, taking)
        self._timing(f"timing block {number}", taking)
        samples: list[Sample] = []
        with self._clocked("rounds"):
            contestants = self.entries(taking, others)
            block = run_block(
                contestants,
                rounds,
                self.flush,
                self._generator,
                during=lambda: self._meanwhile(samples),
            )
            self.host.wait()
        if warm_up:
            record.warm_up = block.times
            return self._needed(taking)
        self.host.progress("checking the timed outputs", REFEREE_SECONDS, "referee")
        with self._clocked("checking"):
            self._stage.check()
        if why := self._unusable(samples, record):
            record.drop(why, rounds)
        else:
            record.blocks.append(block.times)
            record.samples += samples
            if block.starved:
                record.drop("the queue ran dry", -(-block.starved // len(block.times)))
        # The check repeats every call of the candidate.
        return self._needed({**taking, CANDIDATE: 2 * rounds})

    def _meanwhile(self, samples: list[Sample]) -> None:
        if isinstance(self.clocks, Clocks):
            samples.append(self.clocks.sample())
        self._stage.ahead()

    def _unusable(self, samples: list[Sample], record: Record) -> str | None:
        """The reason why a block does not count, or None."""
        for sample in samples:
            if sample.slowdowns:
                return sample.slowdowns[0]
            fastest = max((seen.sm for seen in record.samples if seen.sm), default=0)
            if sample.sm and sample.sm < SLOWEST_CLOCK * fastest:
                return "low clock"
        return None

    @contextmanager
    def _clocked(self, what: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self._spent[what] = self._spent.get(what, 0.0) + time.perf_counter() - started

    def _bar(self, record: Record) -> str | None:
        """The baseline, near the shortest median, over which the candidate's lead is smallest.

        The shortest median alone could mislead: a baseline that is slow in a few rounds takes
        longer than its median.
        """
        ready = {
            name: record.median(name)
            for name in BARS
            if name in self.contest.baselines.ready and record.blocks
        }
        near = [name for name, median in ready.items() if median <= FAR_OFF * min(ready.values())]
        return min(near, key=record.location) if near else None

    def _report(self, record: Record, window: float, notes: list[str], least: int) -> Timing:
        contest = self.contest
        names = [CANDIDATE, *contest.baselines.ready, FLOOR]
        device = {name: found for name in names if (found := stats.summarise(record.times(name)))}
        ratios = {name: record.ratio(name) for name in device if name != CANDIDATE}
        bar = self._bar(record)
        ratio = ratios.get(bar) if bar else None
        silent = [name for name in contest.baselines.ready if record.blocks and name not in device]
        missing = {**contest.baselines.missing, **dict.fromkeys(silent, "it gave no usable sample")}
        decision, reason = decided(ratio if record.blocks else None, bar, missing)
        if bar and not reason:
            decision, reason = firm(decision, record.ratio(bar, SETTLED), least)
        notes += [f"{name} gave no usable sample" for name in silent]
        # A user's reference may ignore inputs; only the catalogue's operations surely read every
        # byte.
        if not contest.task.op.is_function and (problem := self._floor.problem(device, ratios)):
            raise PlanFault(BELOW_FLOOR, problem)
        with self._clocked("call times"):
            call = self._call_times()
        shortest = min(
            (device[name].median for name in (CANDIDATE, bar) if name in device), default=0.0
        )
        graphs, uncaptured = self._graphs() if 0 < shortest < SHORT_US else ({}, {})
        notes += [f"{name} as a CUDA graph {why}" for name, why in uncaptured.items()]
        others = self.clocks.neighbours() if isinstance(self.clocks, Clocks) else ()
        if isinstance(self.clocks, str):
            notes.append(self.clocks)
        if GRAPHED in device:
            notes.append(
                f"{GRAPHED} copies its inputs on every call; it is shown and is never the bar"
            )
        return Timing(
            decision=decision,
            reason=reason,
            cell=contest.cell.name,
            bar=bar,
            ratio=ratio,
            device=device,
            ratios=ratios,
            call=call,
            graph=graphs,
            missing=dict(contest.baselines.missing),
            kernels=dict(contest.baselines.kernels),
            bytes_read=self.read,
            bytes_written=self.written,
            floor_share=device[FLOOR].median / device[CANDIDATE].median
            if {FLOOR, CANDIDATE} <= set(device)
            else None,
            rounds=record.rounds,
            blocks=len(record.blocks),
            dropped_rounds=sum(record.dropped.values()),
            dropped=record.dropped,
            sm_clock=_span([sample.sm for sample in record.samples]),
            temperature=_span([sample.temperature for sample in record.samples]),
            power=_span([sample.power for sample in record.samples]),
            power_capped=any(sample.power_capped for sample in record.samples),
            l2_bytes=self.flush.l2_bytes,
            flush_bytes=self.flush.bytes,
            window_us=window,
            neighbours=tuple(f"{other.name} (pid {other.pid})" for other in others),
            notes=tuple(notes),
            settings={"rounds": self.rounds},
            seconds=self._spent,
        )

    def _call_times(self) -> dict[str, stats.Summary]:
        repeats = {
            name: CALL_REPEATS if took <= SLOW_CALL_US else SLOW_CALL_REPEATS
            for name, took in self._slow.items()
        }
        calls = min(CALL_REPEATS, self.rounds)
        everyone = dict.fromkeys(self.contest.baselines.ready, calls)
        self._refill(CALLS, calls, everyone)
        contestants, found = self.entries(everyone), {}
        self._timing(
            "timing calls", {name: calls for name, calls in repeats.items() if name != CANDIDATE}
        )
        for entry in contestants:
            if summary := stats.summarise(host_times(entry, repeats[entry.name])[FIRST_CALLS:]):
                found[entry.name] = summary
        self._checked_once()
        return found

    def _checked_once(self) -> None:
        self.host.wait()
        self.host.progress("checking the timed outputs", REFEREE_SECONDS, "referee")
        self._stage.check_one()

    def _graphs(self) -> tuple[dict[str, stats.Summary], dict[str, str]]:
        ones = {name: 1 for name in self.contest.baselines.ready if name != GRAPHED}
        self._refill(GRAPHS, 1, ones)
        contestants = [self._stage.in_place(CANDIDATE, GRAPH_ROUNDS), *self.entries(ones)[1:]]
        self._timing("timing CUDA graphs", dict.fromkeys(ones, GRAPH_ROUNDS + 1))
        found = graph_times(contestants, self.flush, self._generator)
        # A candidate without a captured graph has not run.
        if CANDIDATE in found[0]:
            self._checked_once()
        return found


def _span(values: Sequence[float | None]) -> Span | None:
    known = [value for value in values if value is not None]
    return Span(float(min(known)), float(np.median(known)), float(max(known))) if known else None

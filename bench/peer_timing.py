"""Times any callables against each other by the referee's protocol. CUDA only.

Every contestant takes part as a baseline of the referee does (`referee.timing.stage`). It has
separate memory for each round and a flushed cache. Its values are written just before the call, and
its outputs are read afterwards. The rounds are those of `referee.timing.rounds`, the floor that of
`referee.timing.floor`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch

from referee.ops.spec import Cell
from referee.ops.task import Task
from referee.plans.dtypes import ITEMSIZE
from referee.plans.plan import Buffer, LaunchPlan, View
from referee.plans.plan_check import extent, input_nbytes, input_view
from referee.replaying.driver import Driver
from referee.replaying.replay import Runner
from referee.replaying.replay_check import Host
from referee.timing import stats
from referee.timing.baselines import Baselines
from referee.timing.contest import Contest
from referee.timing.floor import Floor, bytes_moved
from referee.timing.measurement import BARS, FLOOR, TimingOptions
from referee.timing.nvml import Clocks, Sample
from referee.timing.pace import paced
from referee.timing.rounds import Block, Entry, Flush, host_times, run_block
from referee.timing.stage import Stage
from referee.timing.timer import CALL_REPEATS, FIRST_CALLS, WARM_UP, call_us

Callee = Callable[..., Any]
OPTIONS = TimingOptions(rounds=40, least_rounds=120, most_rounds=240)
CALLS = -1
"""Number of the block for call times."""
NO_SAMPLE = "no device time: its host waits for the device in the call"


@dataclass(frozen=True)
class Times:
    """Microseconds of one contestant, and its speed against others.

    `ratio` is the time of the fastest of eager and compiled PyTorch over its own. `kmint` is its
    own time over that of kmint's kernel, so above 1 kmint is faster. None without a usable sample.
    """

    device: stats.Summary | None
    call_us: float | None
    ratio: stats.Interval | None
    kmint: stats.Interval | None

    def to_json(self) -> dict[str, Any]:
        """Plain data for the raw document."""
        return {
            "device_us": self.device and round(self.device.median, 3),
            "p10_p90_us": self.device and [round(self.device.p10, 3), round(self.device.p90, 3)],
            "call_us": self.call_us and round(self.call_us, 2),
            "ratio": self.ratio and asdict(self.ratio),
            "kmint": self.kmint and asdict(self.kmint),
        }


@dataclass(frozen=True)
class Measured:
    """The times of all contestants, the floor's median in microseconds, and the counted rounds."""

    times: dict[str, Times]
    floor_us: float | None
    bar: str | None
    rounds: int
    dropped: int


def needed_bytes(cell: Cell, contestants: int) -> int:
    """Bytes of GPU memory that the fewest rounds of this many contestants take."""
    tensors = sum(bytes_moved(cell))
    return (LEAST_ROUNDS + 1) * (contestants + 1) * tensors + 8 * tensors


LEAST_ROUNDS = 3


class PeerTimer:
    """Times callables at one case. It allocates its memory once, and holds the device's events."""

    def __init__(self, task: Task, cell: Cell, callees: Mapping[str, Callee]) -> None:
        driver = Driver()
        self._host = Host("cuda", driver, _quiet)
        self._names = tuple(callees)
        self._callees = dict(callees)
        contest = Contest(
            task=task,
            cell=cell,
            runner=Runner(plan_of(cell), {}, driver),
            choice={},
            atomics=False,
            baselines=Baselines(dict(callees), {}, {}),
            seed=secrets.randbits(62),
        )
        self._stage = Stage(self._host, contest, OPTIONS.rounds)
        self._floor = Floor(*bytes_moved(cell), None)
        self._flush = Flush(torch.cuda.get_device_properties(0).L2_cache_size)
        self._clocks = Clocks.open(driver.pci_bus_id())
        self._generator = np.random.default_rng()
        self._blocks: list[dict[str, stats.Floats]] = []
        self._dropped = 0

    def measure(self, kmint: str) -> Measured:
        """Runs the rounds; `kmint` is the name of kmint's kernel among the contestants."""
        slowest = max(self._slowness().values(), default=0.0)
        options = paced(OPTIONS, slowest)
        rounds, counted, tried = min(self._stage.rounds, options.rounds), 0, 0
        self._block(0, min(WARM_UP, rounds))
        while counted < options.least_rounds and tried < 2 * options.most_rounds:
            block, usable = self._block(tried + 1, rounds)
            tried += rounds
            if usable:
                self._blocks.append(block.times)
                counted += rounds
            else:
                self._dropped += rounds
        calls = self._call_times()
        return self._summary(calls, kmint, counted)

    def _entries(self, rounds: int) -> list[Entry]:
        rivals = [self._stage.rival(name, self._callees[name], rounds) for name in self._names]
        return [*rivals, Entry(FLOOR, self._floor.call, rounds=rounds)]

    def _block(self, number: int, rounds: int) -> tuple[Block, bool]:
        """One block, and whether it counts."""
        self._stage.refill(number, rounds, dict.fromkeys(self._names, rounds))
        samples: list[Sample] = []
        during = partial(self._meanwhile, samples)
        block = run_block(
            self._entries(rounds), rounds, self._flush, self._generator, during=during
        )
        self._host.wait()
        return block, not any(sample.slowdowns for sample in samples)

    def _meanwhile(self, samples: list[Sample]) -> None:
        if isinstance(self._clocks, Clocks):
            samples.append(self._clocks.sample())

    def _slowness(self) -> dict[str, float]:
        """Microseconds of one call of each contestant."""
        self._stage.refill(CALLS, 1, dict.fromkeys(self._names, 1))
        found = {}
        for entry in self._entries(1)[:-1]:
            assert entry.before
            for _ in range(2):
                entry.before(0)
                self._host.wait()
                found[entry.name] = call_us(self._host, partial(entry.call, 0))
        return found

    def _call_times(self) -> dict[str, float]:
        """Median microseconds that a caller waits for one call, with warm caches."""
        calls = min(CALL_REPEATS, self._stage.rounds)
        self._stage.refill(CALLS, calls, dict.fromkeys(self._names, calls))
        found = {}
        for entry in self._entries(calls)[:-1]:
            times = host_times(entry, CALL_REPEATS)[FIRST_CALLS:]
            found[entry.name] = float(np.median(times))
        return found

    def _summary(self, calls: Mapping[str, float], kmint: str, counted: int) -> Measured:
        device = {name: stats.summarise(self._all(name)) for name in (*self._names, FLOOR)}
        bars = {name: found.median for name in BARS if (found := device.get(name))}
        bar = min(bars, key=bars.__getitem__, default=None)
        times = {
            name: Times(
                device=device[name],
                call_us=calls.get(name),
                ratio=self._between(name, bar) if bar and device[name] else None,
                kmint=self._between(kmint, name) if device.get(kmint) and device[name] else None,
            )
            for name in self._names
        }
        floor = device[FLOOR]
        return Measured(times, floor.median if floor else None, bar, counted, self._dropped)

    def _all(self, name: str) -> stats.Floats:
        return np.concatenate([block[name] for block in self._blocks] or [np.empty(0)])

    def _between(self, name: str, other: str) -> stats.Interval:
        """The speed of `name` against `other`; above 1 `name` is faster."""
        mine, theirs = ([block[one] for block in self._blocks] for one in (name, other))
        return stats.resample(stats.log_ratios(mine, theirs)).interval(0.95)


def plan_of(cell: Cell) -> LaunchPlan:
    """A plan without steps that has the case's tensors: the layout of the memory of a block."""
    inputs = tuple(input_view(index, spec) for index, spec in enumerate(cell.inputs))
    buffers = [Buffer(input_nbytes(spec), index) for index, spec in enumerate(cell.inputs)]
    outputs = []
    for spec in cell.outputs:
        outputs.append(View(len(buffers), 0, spec.shape, spec.strides, spec.dtype))
        buffers.append(Buffer(extent(spec.shape, spec.strides) * ITEMSIZE[spec.dtype]))
    return LaunchPlan(tuple(buffers), inputs, (), tuple(outputs))


def _quiet(text: str, seconds: float, whose: Literal["candidate", "referee"]) -> None:
    pass

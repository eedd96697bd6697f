"""A world without a device for the timer: stand-ins for rounds, checks and the clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from referee.timing.baselines import Baselines
from referee.timing.measurement import (
    CANDIDATE,
    EAGER,
    FLOOR,
    Timing,
    TimingOptions,
)
from referee.timing.rounds import Block, Entry
from referee.timing.timer import Timer


@dataclass
class World:
    """What the stand-ins do, and what they saw."""

    times: dict[str, float]
    room: int = 40
    noise: float = 0.002
    starved: Callable[[int], int] = lambda block: 0
    blocks: list[tuple[int, dict[str, int]]] = field(default_factory=list)
    filled: list[tuple[int, dict[str, int]]] = field(default_factory=list)
    checks: int = 0
    looks: int = 0
    clock: float = 0.0
    block_seconds: float = 0.0
    check_seconds: float = 0.0
    until: float = 0.0
    whose: str = ""
    loading: dict[str, float] = field(default_factory=dict)
    slow_mode: dict[str, tuple[float, float]] = field(default_factory=dict)
    uncaptured: tuple[str, ...] = ()

    def measure(self, **options: Any) -> Timing:
        ready: dict[str, Callable[..., Any]] = {
            name: partial(self.spend, name) for name in self.times if name not in (CANDIDATE, FLOOR)
        }
        task = Made(op=Made(origin="catalogue", is_function=False))
        contest: Any = Made(
            baselines=Baselines(ready, {}, {}, {EAGER: ("rms_norm_kernel",)}),
            seed=3,
            cell=Made(name="bench"),
            task=task,
        )
        host: Any = Made(driver=Made(), progress=self.told, wait=lambda: None)
        flush: Any = Made(l2_bytes=1, bytes=3)
        return Timer(host, contest, TimingOptions(**options), flush, "no clocks here").measure()

    def spend(self, name: str, *_: object) -> None:
        self.clock += 1e-6 * (self.times[name] + self.loading.pop(name, 0.0))

    def told(self, what: str, seconds: float, whose: str) -> None:
        self.until, self.whose = self.clock + seconds, whose

    def run_block(
        self,
        entries: list[Entry],
        rounds: int,
        flush: object,
        generator: np.random.Generator,
        **_: object,
    ) -> Block:
        shares = {
            entry.name: rounds if entry.rounds is None else min(rounds, entry.rounds)
            for entry in entries
        }
        self.blocks.append((rounds, shares))
        self.clock += self.block_seconds + sum(
            1e-6 * self.times[name] * share for name, share in shares.items()
        )
        assert self.clock <= self.until, "the worker would have been ended"
        found = {}
        for name, share in shares.items():
            found[name] = np.full(rounds, np.nan)
            found[name][:share] = self.times[name] * np.exp(generator.normal(0, self.noise, share))
            if name in self.slow_mode:
                part, factor = self.slow_mode[name]
                found[name][:share] *= np.where(generator.random(share) < part, factor, 1.0)
            found[name][: self.starved(len(self.blocks))] = np.nan
        return Block(found, self.starved(len(self.blocks)) * len(shares))


class Made:
    """An object with these attributes."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__ |= attributes

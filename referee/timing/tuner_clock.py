"""Makes Inductor's autotuner measure configurations with the clock of `rounds.py`.

Inductor's own clock takes the fastest of about a hundred runs. On a busy host, the device waits for
the next launch between a run's two events, so that time counts. The choice is then a matter of
chance, and rmsnorm's baseline took 38 us where a better choice takes 33. `run_block` leaves such
runs out, and empties the cache as every timed call does.

The change is to a private object of Inductor. Where it differs, nothing is changed. A configuration
that does not run is left to Inductor's own clock, which knows the errors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from referee.timing.rounds import Entry, Flush, run_block, usable_medians

ROUNDS = 20
"""Runs of a configuration; its time is their median."""
MILLISECONDS = 1e-3

Clock = Callable[[Callable[[], object]], float | None]
"""Microseconds of one call on the device; None if no run could be measured."""


def device_clock(flush: Callable[[], Flush]) -> Clock:
    """The clock of `rounds.py`, which empties the cache by `flush()`."""

    def microseconds(call: Callable[[], object]) -> float | None:
        entry = Entry("0", lambda number: call())
        block = run_block([entry], ROUNDS, flush(), np.random.default_rng(0))
        return usable_medians(block).get(0)

    return microseconds


def tune_by(clock: Clock) -> None:
    """Change this process's Inductor; a later call changes the clock. Imports Inductor."""
    try:
        from torch._inductor.runtime.benchmarking import benchmarker

        change(benchmarker, clock)
    except (ImportError, AttributeError):
        return


def change(benchmarker: Any, clock: Clock) -> None:
    """Change the object with which Inductor measures functions without arguments on a GPU."""
    own = getattr(benchmarker.benchmark, "own", benchmarker.benchmark)

    def benchmark(fn: Callable[..., Any], *given: Any, **options: Any) -> Any:
        if given or str(options.get("device")) != "cuda":
            return own(fn, *given, **options)
        try:
            fn()
            torch.cuda.synchronize()
        except Exception:
            return own(fn, **options)
        found = clock(fn)
        return own(fn, **options) if found is None else MILLISECONDS * found

    benchmark.own = own  # type: ignore[attr-defined]
    benchmarker.benchmark = benchmark

"""What queueing a round of timed calls costs the host, step by step, and how often the device had to wait for it.

    python bench/host_of_rounds.py [--ops rmsnorm softmax relu2] [--times 6] [--json FILE]

Hand-written kernels are timed against the referee's own baselines, each `--times` times, and every step of a round is timed too. Printed
for each: milliseconds a round, samples dropped because the queue had run dry, and of each step the median and the 99th percentile in
microseconds, and how often it came. A round takes as long as the device or the host needs, whichever is more; hosts with the same GPU
differ by half, so compare commits on one machine. Steps that only wait for room in the queue seem slow. Needs a CUDA device.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from bench import handmade
from bench.judge_catalogue import processor
from bench.smoke import Smoke
from referee.device.environment import describe_device
from referee.measuring import rounds, timing
from referee.ops.task import load

SCHEMA = "kmint.bench.host_of_rounds/2"
ROUNDS = 240


class Steps:
    """Seconds of the host by step, and what the blocks of rounds came to."""

    def __init__(self) -> None:
        self.taken: dict[str, list[float]] = defaultdict(list)
        self.starved, self.rounds, self.seconds = 0, 0, 0.0

    def timed(self, step: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, whose calls are noted."""

        def call(*given: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*given)
            finally:
                self.taken[step].append(time.perf_counter() - start)

        return call

    def run_block(self, entries: Sequence[rounds.Entry], count: int, flush: Any, *rest: Any, **named: Any) -> rounds.Block:
        """As `rounds.run_block`, with every step timed."""
        watched = [
            replace(
                entry,
                call=self.timed(f"call of {entry.name}", entry.call),
                before=entry.before and self.timed(f"before {entry.name}", entry.before),
                after=entry.after and self.timed(f"after {entry.name}", entry.after),
            )
            for entry in entries
        ]
        named["during"] = self.timed("during", named["during"])
        start = time.perf_counter()
        block = _RUN_BLOCK(watched, count, self.timed("flush", flush), *rest, **named)
        self.seconds += time.perf_counter() - start
        self.starved += block.starved
        self.rounds += count
        return block


_RUN_BLOCK, _GET_AHEAD = rounds.run_block, rounds._get_ahead


def timed_once(smoke: Smoke, op: str, seed: int) -> dict[str, Any]:
    """One timing of the op's kernel against its baselines."""
    steps = Steps()
    baselines = smoke.baselines.get(load(op, "gpu"), op, handmade.bench_cell(op))
    with (
        mock.patch.object(rounds, "_get_ahead", steps.timed("getting ahead", _GET_AHEAD)),
        mock.patch.object(timing, "run_block", steps.run_block),
    ):
        smoke.timing(op, op, baselines, seed, least_rounds=ROUNDS, most_rounds=ROUNDS)
    us = {
        step: {"count": len(taken), "median": 1e6 * float(np.median(taken)), "p99": 1e6 * float(np.quantile(taken, 0.99))}
        for step, taken in steps.taken.items()
    }
    return {"op": op, "ms_a_round": 1e3 * steps.seconds / steps.rounds, "starved": steps.starved, "rounds": steps.rounds, "us": us}


def show(op: str, found: Sequence[dict[str, Any]]) -> None:
    """Medians over the timings of one op."""
    round_ms, starved = (float(np.median([one[key] for one in found])) for key in ("ms_a_round", "starved"))
    print(f"{op}: {round_ms:.3f} ms a round, {starved:.0f} samples dropped")
    for step in found[0]["us"]:
        told = [one["us"][step] for one in found if step in one["us"]]
        median, p99, count = (float(np.median([one[key] for one in told])) for key in ("median", "p99", "count"))
        print(f"    {step:36s} {median:8.1f} us, 99th percentile {p99:8.1f}, {count:5.0f} times")


def main() -> int:
    """Time in turn, and print what is described above."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ops", nargs="*", default=["rmsnorm", "softmax", "relu2"], choices=["rmsnorm", "softmax", "relu2"])
    parser.add_argument("--times", type=int, default=6)
    parser.add_argument("--json", type=Path, default=None)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        smoke = Smoke(Path(cache))
        found = [timed_once(smoke, op, 100 + number) for number in range(given.times + 1) for op in given.ops]
    # The first of each compiles.
    found = found[len(given.ops) :]
    for op in given.ops:
        show(op, [one for one in found if one["op"] == op])
    if given.json:
        environment = {key: value for key, value in describe_device(smoke.driver).items() if key != "executable"}
        document = {"schema": SCHEMA, "environment": environment, "processor": processor(), "timings": found}
        given.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

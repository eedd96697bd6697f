"""Whether a call's time depends on how many calls there were before it, and what ends that.

    python bench/cadence.py [--calls 240] [--json FILE]

One call is timed again and again as in a verdict: its input is written, L2 is flushed, the call runs between two events, its output is
read. From one call to the next as many commands go to the GPU, and something in how they get there comes back with them. Tried with
nothing between the events, and with additions of 1 MiB and of 64 MiB; ahead of each call comes nothing, or a random number of events that
nobody reads, of kernels in a CUDA graph that do next to nothing, or of such kernels launched one by one. Printed for each: the median, the
deviation, and how much stronger the strongest period is than the mean of all, which is about 3 where calls differ by chance. With --json
every time is kept. Needs a CUDA device; about 10 s.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch

from referee.device.environment import describe_device
from referee.measuring.rounds import STEPS, Entry, Flush, run_block, stepping
from referee.measuring.stats import Floats
from referee.replaying.driver import Driver

SCHEMA = "kmint.bench.cadence/1"
SEQUENCES = 3
WORDS, FEW_WORDS = 1 << 24, 1 << 18
SETTLED = 4  # calls at either end, before and after which others come than in the middle


class Stepping(Flush):
    """A flush with something before it that takes no part."""

    def __init__(self, l2_bytes: int, step: Callable[[], None]) -> None:
        super().__init__(l2_bytes)
        self._step = step

    def __call__(self) -> None:
        self._step()
        super().__call__()


def ways() -> Mapping[str, tuple[Callable[[], None], int]]:
    """What comes before a flush, and below which number of kernels the referee launches ahead of a round, which has one call here."""
    chosen, event, launch = random.Random(7), cast("Any", torch.cuda.Event)(), stepping()
    graphs = [captured(launch, count) for count in range(1, STEPS)]

    def events() -> None:
        for _ in range(chosen.randrange(64)):
            event.record(torch.cuda.current_stream())

    def nothing() -> None:
        pass

    return {
        "nothing": (nothing, 1),
        "events, < 64": (events, 1),
        "kernels in a graph, < 16": (lambda: chosen.choice(graphs).replay(), 1),
        **{f"kernels, < {most}": (nothing, most) for most in (8, STEPS, 32)},
    }


def captured(launch: Callable[[int], None], count: int) -> torch.cuda.CUDAGraph:
    """So many kernels as a graph."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch(count)
    return graph


def works() -> Mapping[str, Entry]:
    """What is timed, with the writing of its input and the reading of its output."""
    source, given, made = (torch.randint(0, 1 << 30, (WORDS,), dtype=torch.int32, device="cuda") for _ in range(3))
    sink = torch.zeros((), dtype=torch.int32, device="cuda")
    calls: dict[str, Callable[[int], object]] = {
        "nothing": lambda _: None,
        "add 1 MiB": lambda _: torch.add(given[:FEW_WORDS], 1, out=made[:FEW_WORDS]),
        "add 64 MiB": lambda _: torch.add(given, 1, out=made),
    }
    return {
        name: Entry(name, call, lambda _: given.copy_(source), lambda _: torch.amax(made, dim=0, out=sink)) for name, call in calls.items()
    }


def strongest(times: Floats) -> tuple[float, float]:
    """The period, in calls, of the strongest frequency in these logarithms of times, and its power beside the mean of all."""
    middle = times[:, SETTLED:-SETTLED]
    power = (np.abs(np.fft.rfft(middle - middle.mean(axis=1, keepdims=True), axis=1)) ** 2).mean(axis=0)[1:]
    return middle.shape[1] / (int(power.argmax()) + 1), float(power.max() / power.mean())


def main() -> None:
    """Print one line for each way and each call."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=240)
    parser.add_argument("--json", type=Path, default=None)
    given = parser.parse_args()
    torch.zeros(1, device="cuda")
    generator = np.random.default_rng(0)
    document: dict[str, Any] = {"schema": SCHEMA, "environment": describe_device(Driver()), "found": []}
    for way, (step, most) in ways().items():
        flush = Stepping(torch.cuda.get_device_properties(0).L2_cache_size, step)
        for name, entry in works().items():
            blocks = [run_block([entry], given.calls, flush, generator, during=lambda: None, steps=most) for _ in range(SEQUENCES)]
            times = np.array([block.times[name] for block in blocks])
            usable = np.where(np.isfinite(times), times, np.nanmedian(times))
            period, power = strongest(np.log(usable))
            deviation = float(np.log(usable[:, SETTLED:-SETTLED]).std())
            shown = f"median {np.median(usable):6.2f} us, deviation {deviation:6.2%}, period {period:6.2f}: {power:5.1f} times the mean"
            print(f"{way:24s} {name:10s} {shown}", flush=True)
            document["found"].append({"before": way, "call": name, "times": np.round(times, 3).tolist()})
    if given.json:
        given.json.write_text(json.dumps(document) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

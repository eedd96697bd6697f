"""Where the noise of a timed call comes from: the same kernel twice, under different flushes and placements.

    python bench/timing_noise.py [--rounds 20] [--blocks 15] [--json FILE]

For every combination two contestants replay the same machine code. Printed: median time, spread of single calls (robust sigma, in
per cent), the ratio of the two with its interval (should hold 1), the sigma of block means, and by how much the mean time of one
contestant differs with what came before its call. First, what waiting for the device costs, and when. Needs a CUDA device; about one
minute.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch

from bench import handmade
from bench.smoke import Smoke
from referee.device.replay_service import Loaded
from referee.measuring import stats
from referee.measuring.rounds import Block, Entry, Flush, run_block
from referee.measuring.stage import LARGE_STEP, spread
from referee.ops.values import draw
from referee.plans.arena import NAN
from referee.replaying.replay import Bound, Region, Runner

SEED = 7


class ReadOnce(Flush):
    """Writes, then reads everything once."""

    def __call__(self) -> None:
        self._buffer.add_(1)
        torch.amax(self._buffer, dim=0, out=self._sink)


class WriteAll(Flush):
    """Writes everything, three times what L2 holds, then reads it twice."""

    def __call__(self) -> None:
        self._buffer.add_(1)
        for _ in range(2):
            torch.amax(self._buffer, dim=0, out=self._sink)


class WriteOnly(Flush):
    """Leaves L2 full of dirty lines."""

    def __call__(self) -> None:
        self._buffer.add_(1)


class ReadOnly(Flush):
    """Never dirties a line."""

    def __call__(self) -> None:
        for _ in range(2):
            torch.amax(self._buffer, dim=0, out=self._sink)


class Zeroing(Flush):
    """One fill, as most harnesses do."""

    def __call__(self) -> None:
        self._buffer.zero_()


FLUSHES: dict[str, type[Flush]] = {
    "write, read": ReadOnce,
    "write, read, read": WriteAll,
    "read": Flush,
    "write": WriteOnly,
    "zero": Zeroing,
    "read, read": ReadOnly,
}


def waiting(smoke: Smoke, label: str, found: dict[str, Any]) -> None:
    """Print what each way of waiting costs right now, after a tiny piece of work."""
    one = torch.zeros(1, device="cuda")
    ways: dict[str, Callable[[], object]] = {
        "torch.cuda.synchronize": torch.cuda.synchronize,
        "cuCtxSynchronize": lambda: smoke.driver.call("cuCtxSynchronize"),
        "polling": smoke.driver.synchronize,
        "item": lambda: one.item(),
    }
    costs = {}
    for name, wait in ways.items():
        times = []
        for _ in range(15):
            one.add_(1)
            start = time.perf_counter()
            wait()
            times.append(1e6 * (time.perf_counter() - start))
        costs[name] = round(float(np.median(times)), 1)
    found[label] = costs
    print(f"waiting, {label:34s} {costs}", flush=True)


def regions(smoke: Smoke, runner: Runner, inputs: tuple[torch.Tensor, ...], placement: str, count: int) -> list[Region]:
    """Regions for `count` rounds: one for all, at any multiple of 256 bytes, or as torch would place them."""
    plan = runner.plan
    if placement == "one region":
        made = [Region(plan, "cuda", places=spread(plan, range(len(plan.buffers))), step=LARGE_STEP)] * count
    elif placement == "any 256 bytes":
        made = [Region(plan, "cuda") for _ in range(count)]
    else:
        made = [Region(plan, "cuda", places=spread(plan, range(len(plan.buffers))), step=LARGE_STEP) for _ in range(count)]
    for region in made:
        region.fill(inputs, NAN)
    smoke.host.wait()
    return made


class Recorded(np.random.Generator):
    """Keeps the order of every round."""

    def __init__(self, seed: int) -> None:
        super().__init__(np.random.PCG64(seed))
        self.orders: list[list[int]] = []

    def permutation(self, x: Any, axis: int = 0) -> Any:
        order = super().permutation(x, axis)
        self.orders.append([int(index) for index in order])
        return order


def by_what_came_before(block: Block, orders: list[list[int]], found: dict[tuple[str, str], list[float]]) -> None:
    """Add the logarithms of a block's times to `found`, by contestant and by whose call came before."""
    names = list(block.times)
    calls = [(number, names[index]) for number, order in enumerate(orders) for index in order]
    for (_, before), (number, name) in itertools.pairwise(calls):
        found.setdefault((name, before), []).append(float(np.log(block.times[name][number])))


def largest_difference(found: dict[tuple[str, str], list[float]]) -> float:
    """How far the mean times of one contestant lie apart, by what came before; the larger of all contestants."""
    means: dict[str, list[float]] = {}
    for (name, _), logs in found.items():
        means.setdefault(name, []).append(float(np.nanmean(logs)))
    return max(max(values) - min(values) for values in means.values())


def replaying(smoke: Smoke, bound: list[Bound]) -> Callable[[int], object]:
    """Queue the replay that is bound to a round's region."""
    return lambda index: bound[index].run(smoke.host.stream())


def compare(smoke: Smoke, kernel: str, flush: Flush, placement: str, rounds: int, blocks: int) -> dict[str, Any]:
    """The kernel against itself under one protocol."""
    cell = handmade.bench_cell(kernel)
    inputs = draw(cell, SEED, "cuda")
    generator = Recorded(SEED)
    before: dict[tuple[str, str], list[float]] = {}
    times: dict[str, list[stats.Floats]] = {"a": [], "b": []}
    with Loaded(smoke.host, handmade.job(kernel, cell, arch=smoke.arch)) as runner:
        sides = {name: regions(smoke, runner, inputs, placement, rounds) for name in times}
        for number in range(blocks + 1):
            entries = []
            for name, made in sides.items():
                for region in set(made):
                    region.fill(inputs, NAN)
                bound = [runner.bind(region, {}) for region in made]
                entries.append(Entry(name, replaying(smoke, bound)))
            entries.append(Entry("nothing", lambda _: None))
            generator.orders.clear()
            found = run_block(entries, rounds, flush, generator, during=lambda: None)
            if number:
                by_what_came_before(found, generator.orders, before)
                for name in times:
                    times[name].append(found.times[name])
    logs = stats.log_ratios(times["a"], times["b"])
    ratio = stats.interval(logs)
    everything = np.log(np.concatenate(times["a"] + times["b"]))
    everything = everything[np.isfinite(everything)]
    quartiles = np.quantile(everything, (0.25, 0.75))
    return {
        "kernel": kernel,
        "placement": placement,
        "median_us": float(np.exp(np.median(everything))),
        "sigma_call": float((quartiles[1] - quartiles[0]) / 1.349),
        "sigma_block": float(np.std([block.mean() for block in logs])),
        "sigma_round": float(np.std(np.concatenate(logs))),
        "ratio": ratio.ratio,
        "low": ratio.low,
        "high": ratio.high,
        "rounds": ratio.rounds,
        "before": largest_difference({key: logs for key, logs in before.items() if key[0] in times}),
    }


def protocols(kernel: str) -> list[tuple[str, str]]:
    """Flush and placement of every comparison of a kernel."""
    if kernel == "softmax":
        return [(label, placement) for label in ("write, read", "zero") for placement in ("as torch", "any 256 bytes")]
    return [(label, placement) for label in FLUSHES for placement in ("as torch", "any 256 bytes", "one region")]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--blocks", type=int, default=15)
    parser.add_argument("--json", type=Path, default=None)
    given = parser.parse_args()
    document: dict[str, Any] = {"waiting": {}, "comparisons": []}
    with tempfile.TemporaryDirectory() as cache:
        smoke = Smoke(Path(cache))
        waiting(smoke, "at the start", document["waiting"])
        smoke.driver.reset_persisting_l2()
        waiting(smoke, "after resetting persisting L2", document["waiting"])
        large = torch.empty(20 << 30, dtype=torch.uint8, device="cuda")
        waiting(smoke, "with 20 GiB allocated", document["waiting"])
        del large
        torch.cuda.empty_cache()
        waiting(smoke, "after giving them back", document["waiting"])
        compiled = torch.compile(torch.relu)
        compiled(torch.zeros(1024, device="cuda"))
        waiting(smoke, "after torch.compile", document["waiting"])
        l2_bytes = smoke.flush.l2_bytes
        for kernel in ("rmsnorm", "softmax"):
            for label, placement in protocols(kernel):
                found = compare(smoke, kernel, FLUSHES[label](l2_bytes), placement, given.rounds, given.blocks)
                document["comparisons"].append({"flush": label, **found})
                spreads = ", ".join(f"{what} {found[f'sigma_{what}']:.2%}" for what in ("call", "round", "block"))
                ratio = f"{found['ratio']:.4f} [{found['low']:.4f}, {found['high']:.4f}], by what came before {found['before']:.2%}"
                what = f"{kernel:8s} {label:21s} {placement:13s}"
                print(f"{what} {found['median_us']:7.2f} us, sigma {spreads}, ratio {ratio}", flush=True)
    if given.json:
        given.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

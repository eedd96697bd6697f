"""Whether lines that a kernel asks L2 to keep outlive the flush, so that others find less of L2, or the kernel finds its own data there.

    python bench/kept_lines.py [--mebibytes 8,32,64] [--flushes 3x1,3x1-part] [--json FILE]

Three kernels do the same, y = x + 1: a plain one, one that loads and stores with `evict_last`, one that loads with `evict_last` and
stores with `evict_first`. Printed are the plain one's median microseconds alone, beside a plain twin and beside each of the others, and
those of the plain and of the `evict_last` one on the same memory again and again. Needs a CUDA device; about 15 s.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch
import triton
import triton.language as tl

from bench.flushes import named
from referee.device.environment import describe_device
from referee.measuring.rounds import Entry, Flush, run_block
from referee.replaying.driver import Driver

SCHEMA = "kmint.bench.kept_lines/1"
PLACES, ROUNDS, BLOCKS, BLOCK = 24, 48, 6, 2048
WAYS = {"plain": ("", ""), "evict_last": ("evict_last", "evict_last"), "evict_last, evict_first": ("evict_last", "evict_first")}


@triton.jit
def _add_one(x, y, count, BLOCK: tl.constexpr, LOAD: tl.constexpr, STORE: tl.constexpr):  # noqa: ANN001, ANN202, N803
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    tl.store(y + at, tl.load(x + at, mask=inside, eviction_policy=LOAD) + 1.0, mask=inside, eviction_policy=STORE)


class Memory:
    """PLACES pairs of an input and an output of so many MiB."""

    def __init__(self, mebibytes: int) -> None:
        count = mebibytes * 2**20 // 2
        self._pairs = [(torch.randn(count, device="cuda").half(), torch.empty(count, device="cuda").half()) for _ in range(PLACES)]

    def call(self, way: str, place: Callable[[int], int]) -> Callable[[int], object]:
        """A contestant's call, at `place` of the round's number."""

        def run(number: int) -> None:
            source, target = self._pairs[place(number) % PLACES]
            _add_one[(triton.cdiv(source.numel(), BLOCK),)](source, target, source.numel(), BLOCK, *WAYS[way])

        return run


def medians(entries: Sequence[Entry], flush: Flush, driver: Driver) -> dict[str, float]:
    """Microseconds by name over BLOCKS blocks, L2 reset before each as in a judgement."""
    generator = np.random.default_rng(1)
    times: dict[str, list[Any]] = {entry.name: [] for entry in entries}
    for _ in range(BLOCKS):
        driver.reset_persisting_l2()
        for name, found in run_block(entries, ROUNDS, flush, generator, during=lambda: None).times.items():
            times[name].append(found)
    return {name: float(np.nanmedian(np.concatenate(found))) for name, found in times.items()}


def measured(mebibytes: int, flush: Flush, driver: Driver) -> dict[str, Any]:
    """The table of one size and flush."""
    memory = Memory(mebibytes)
    plain = Entry("plain", memory.call("plain", lambda number: number))
    beside = {"nobody": medians([plain], flush, driver)}
    for way in WAYS:
        other = Entry("other", memory.call(way, lambda number: number + PLACES // 2))
        beside[way] = medians([plain, other], flush, driver)
    again = {way: medians([Entry(way, memory.call(way, lambda _: 0))], flush, driver)[way] for way in ("plain", "evict_last")}
    return {"mebibytes": mebibytes, "beside": beside, "same_memory_again": again}


def main() -> None:
    """Print one line a size and flush."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mebibytes", default="8,32,64")
    parser.add_argument("--flushes", default="3x1,3x1-part")
    parser.add_argument("--json", type=Path, default=None)
    given = parser.parse_args()
    torch.zeros(1, device="cuda")
    driver, rows = Driver(), list[dict[str, Any]]()
    for size in map(int, given.mebibytes.split(",")):
        for name in given.flushes.split(","):
            rows.append({"flush": name, **measured(size, named(name, torch.cuda.get_device_properties(0).L2_cache_size), driver)})
            print(json.dumps(rows[-1]), flush=True)
            if given.json:
                document = {"schema": SCHEMA, "environment": describe_device(driver), "rows": rows}
                given.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""Times of short kernels as CUDA graphs: the same work and protocol, queued as one captured graph.

The report shows them next to the device times, for candidate and baselines; they never decide. Runs
in the replay worker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from referee.timing.rounds import Entry, Flush, run_block
from referee.timing.stats import Summary, summarise

ROUNDS = 20


def graph_times(
    entries: Sequence[Entry], flush: Flush, generator: np.random.Generator
) -> tuple[dict[str, Summary], dict[str, str]]:
    """Device times in microseconds by name, and the reasons for missing entries.

    Each entry is captured at its call for round 0; its `before` and `after` run in every round,
    outside the graph.
    """
    captured: list[Entry] = []
    missing: dict[str, str] = {}
    for entry in entries:
        try:
            steps = _captured(entry), _first(entry.before), _first(entry.after)
            captured.append(Entry(entry.name, *steps))
        except RuntimeError as error:
            torch.cuda.synchronize()
            missing[entry.name] = f"could not be captured: {str(error).splitlines()[0][:160]}"
    if not captured:
        return {}, missing
    block = run_block(captured, ROUNDS, flush, generator)
    summaries = {name: summarise(times[ROUNDS // 4 :]) for name, times in block.times.items()}
    return {name: found for name, found in summaries.items() if found}, missing


def _first(step: Callable[[int], object] | None) -> Callable[[int], object] | None:
    return step and (lambda _: step(0))


def _captured(entry: Entry) -> Callable[[int], object]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = entry.call(0)

    def replay(_: int) -> object:
        graph.replay()
        return kept

    return replay

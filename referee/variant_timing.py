"""Times variants of one kernel against the first of them, in one run. The result is a hint, not a
verdict.

Every variant is traced, compiled and checked at the timed cell like a candidate. A variant that
fails, or that a model of its cost rules out (`variant_cost.py`), is reported with its reason and
not timed. An autotuned launch runs its first configuration.
The fastest variant still has to be judged at every cell. The module needs a GPU and is torch-free.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from referee.gpu.compile_candidate import compile_candidate
from referee.gpu.jobs import CompiledCandidate
from referee.gpu.replayer import Replayer
from referee.ops.spec import Cell
from referee.problem import TaskName
from referee.sandbox.zygote import Workers
from referee.target import Target
from referee.variant_cost import cost, too_costly
from referee.verdict import Rejection

_AT_ONCE = 8


class VariantsNotTimed(Exception):
    """The variants could not be timed; the message gives the reason in one line."""


@dataclass(frozen=True)
class VariantTime:
    """One variant: median device microseconds, and the first variant's time divided by its own.

    A ratio above 1 is faster than the first. `refused` has the reason of a variant without a time.
    """

    us: float | None
    ratio: float | None
    refused: str = ""


def time_variants(
    workers: Workers,
    replayer: Replayer,
    sources: Sequence[str],
    task: TaskName,
    cell: Cell,
    target: Target,
    *,
    seed: int,
    cache: Path | None = None,
) -> tuple[VariantTime, ...]:
    """One result for each of `sources`.

    Raises VariantsNotTimed if the first does not pass, and the errors of `prepare` and the
    replayer.
    """
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        # Traces and compilations run in the workers' processes; these threads only wait.
        found = list(
            pool.map(
                lambda source: compile_candidate(
                    workers, source, task, [cell], target, cache=cache
                ),
                sources,
            )
        )
    costs = [None if isinstance(one, Rejection) else cost(one, target) for one in found]
    left_out = too_costly(costs)
    checked = [
        Rejection("compile", "cost", left_out[number])
        if number in left_out
        else _checked(replayer, one, seed)
        for number, one in enumerate(found)
    ]
    first = checked[0]
    if isinstance(first, Rejection):
        raise VariantsNotTimed(f"the kernel to start from does not pass: {first.reason}")
    fit = [(number, one) for number, one in enumerate(checked) if not isinstance(one, Rejection)]
    times = replayer.race([one for _, one in fit], seed=seed)
    if isinstance(times, Rejection):
        raise VariantsNotTimed(times.reason)
    known = dict(zip((number for number, _ in fit), times, strict=True))
    return tuple(
        _lap(known[number]) if number in known else VariantTime(None, None, _reason(one))
        for number, one in enumerate(checked)
    )


def _checked(
    replayer: Replayer, prepared: CompiledCandidate | Rejection, seed: int
) -> CompiledCandidate | Rejection:
    if isinstance(prepared, Rejection):
        return prepared
    return replayer.check(prepared, seed=seed).rejection or prepared


def _lap(measured: tuple[float, float]) -> VariantTime:
    us, ratio = measured
    return (
        VariantTime(us, ratio)
        if math.isfinite(us) and math.isfinite(ratio)
        else VariantTime(None, None, "no usable sample")
    )


def _reason(found: CompiledCandidate | Rejection) -> str:
    return found.reason if isinstance(found, Rejection) else ""

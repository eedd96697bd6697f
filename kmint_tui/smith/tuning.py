"""The short measurement when a model is loaded, and the reuse of an earlier result.

On a CPU it times a step of eight rows by number of threads. On a GPU it times a step of eight rows
by method of sampling, and a step of many rows by number of contexts (`context_pool.py`). The
measurement also reads the weights for the first time and tests the library on this processor. Equal
rows of a batch are compared, and a crash happens here instead of during a run. Results hold for a
machine, a library version and a model file; the parent stores them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from kmint_tui import typed
from kmint_tui.smith.decoder import PIECE_GPU
from kmint_tui.smith.native import DECODED, PINNED, Context, Model, NativeError
from kmint_tui.smith.sampler import Chain, Picker, SamplerState
from kmint_tui.smith.sampling import Sampling
from kmint_tui.smith.threads import REFERENCE_WIDTH

_PROMPT = 32
"""Number of tokens of the prompt before the measured steps."""

_STEPS = 5
"""Largest number of measured steps a thread count."""

_BUDGET = 1.5
"""Seconds for all thread counts together, two steps each guaranteed."""

_HOPELESS = 3.0
"""Ratio to the best step time above which a thread count is given up."""

_ROUNDING = 0.02
"""Largest difference of equal rows on a CPU, in units of the logits' spread."""

# In one cache for all drafts, flash attention sums a row's cells in an order that depends on their
# place. Equal rows of a random 1B model on an H200 differed by up to 0.034 (bench/decode.py). The
# errors to find are as large as the spread.
_ROUNDING_ON_GPU = 0.1
_MANY = 32
"""Number of rows of a wide step."""

_SAMPLED_STEPS = 10
"""Number of steps with sampling; the first two do not count."""

_LANES = (1, 2, 4)
"""Numbers of contexts to measure."""

_LANES_GAIN = 1.1
"""Least speed-up that justifies more contexts."""

_MOST_THREADS = 4096
"""Largest plausible thread count of a remembered result."""

METHODS = ("turn", "pool", "device")


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """The settings to use: CPU threads, seconds of a reference step, and sampling.

    `sampling` is "turn", "pool" or "device". `plain` is the reason to load weights plainly, or "".
    `quiet` means that no other program worked during the measurement; otherwise the next start
    measures again. `lanes` is the number of contexts, 0 before its measurement.
    """

    threads: int
    step: float
    sampling: str
    plain: str
    quiet: bool
    reason: str
    lanes: int = 0
    lanes_reason: str = ""


class WrongResults(Exception):
    """The library computes wrong results; the message describes them."""


def recall(known: Mapping[str, object], key: str) -> Tuned | None:
    """The remembered result for `key`; None without a plausible one."""
    try:
        tuned = typed.made(Tuned, known.get(key))
    except typed.Mistyped:
        return None
    possible = (
        0 < tuned.threads <= _MOST_THREADS
        and 0 <= tuned.lanes <= max(_LANES)
        and tuned.sampling in METHODS
    )
    return tuned if possible else None


def key(machine: str, file: str) -> str:
    """The key of a stored result."""
    return f"{machine}/{PINNED}/{file}"


def measure_threads(model: Model, counts: tuple[int, ...], *, on_gpu: bool) -> dict[int, float]:
    """Seconds of a step of REFERENCE_WIDTH rows by thread count, until more threads stop helping.

    Raises WrongResults when rows with the same past and the same token give different logits.
    """
    context = Context(
        model,
        cells=1024,
        sequences=REFERENCE_WIDTH + 1,
        batch=64,
        threads=max(counts),
        on_gpu=on_gpu,
    )
    try:
        _read_prompt(context, REFERENCE_WIDTH)
        _compare_rows(context, _PROMPT, _ROUNDING_ON_GPU if on_gpu else _ROUNDING)
        times: dict[int, float] = {}
        position, start = _PROMPT + 1, time.perf_counter()
        for count in counts:
            context.set_threads(count)
            taken: list[float] = []
            while len(taken) < _STEPS and (len(taken) < 2 or time.perf_counter() - start < _BUDGET):
                taken.append(_step(context, position))
                position += 1
                if times and min(taken) > _HOPELESS * min(times.values()):
                    break
            times[count] = statistics.median(taken[1:] or taken)
            if times[count] > 1.5 * min(times.values()):
                break
        return times
    finally:
        context.close()


def measure_sampling(model: Model, workers: int) -> dict[str, float]:
    """Seconds of steps of few and of many rows, summed, by method of sampling.

    The methods are "turn", "pool" and "device".
    """
    # Recurrent models keep a large state a row: many rows might not fit.
    widths = (REFERENCE_WIDTH,) if model.recurrent else (REFERENCE_WIDTH, _MANY)
    times: dict[str, float] = {}
    for method in METHODS:
        taken = [
            _sampled_step(model, method, width, workers if method == "pool" else 1)
            for width in widths
        ]
        if None not in taken:
            times[method] = sum(filter(None, taken))
    return times


def _sampled_step(model: Model, method: str, width: int, workers: int) -> float | None:
    """Seconds of a step of `width` rows and the choice of their tokens.

    None when the device cannot do it.
    """
    context = Context(model, cells=1024, sequences=width + 1, batch=64, threads=1, on_gpu=True)
    chains = [Chain(model.lib, Sampling(), 0.7, seed) for seed in range(width)]
    states = [SamplerState(Sampling(), 0.7, seed) for seed in range(width)]
    picker = Picker(workers)
    try:
        if method == "device" and not all(
            context.attach(1 + index, chain.pointer) for index, chain in enumerate(chains)
        ):
            return None

        def choose() -> list[int]:
            if method == "device":
                return [
                    chain.picked_on_device(context.pointer, row) for row, chain in enumerate(chains)
                ]
            return picker.pick(context.logits(width), states)

        return statistics.median(_sampled_steps(context, width, 0, choose))
    finally:
        context.close()
        picker.close()
        for chain in chains:
            chain.close()


def measure_contexts(
    model: Model, workers: int, short: Callable[[], str]
) -> tuple[dict[int, float], str]:
    """Seconds of a step of many rows and the choice of their tokens, by number of contexts.

    Ends before a number that llama.cpp refuses, or that leaves too little memory: `short` then
    returns a reason. The second value is the reason of an early end, or "".
    """
    times: dict[int, float] = {}
    for lanes in _LANES:
        try:
            times[lanes] = _step_in_contexts(model, lanes, workers, short)
        except NativeError as error:
            return times, error.reason
    return times, ""


def best_context_count(times: dict[int, float]) -> int:
    """The number of contexts to use; a larger one must be clearly faster, because each needs
    memory.
    """
    best = 1
    for lanes in sorted(times):
        if times[best] >= _LANES_GAIN * times[lanes]:
            best = lanes
    return best


def _step_in_contexts(model: Model, lanes: int, workers: int, short: Callable[[], str]) -> float:
    """Seconds of the contexts' median step while all of them work. Raises NativeError."""
    width = _MANY // lanes
    contexts: list[Context] = []
    pickers = [Picker(workers) for _ in range(lanes)]

    def steps(context: Context, picker: Picker) -> list[float]:
        states = [SamplerState(Sampling(), 0.7, seed) for seed in range(width)]
        return _sampled_steps(
            context, width, _PROMPT, lambda: picker.pick(context.logits(width), states)
        )

    try:
        for _ in range(lanes):
            # Pieces as large as a run's, because they decide how much memory llama.cpp takes.
            contexts.append(
                Context(
                    model, cells=1024, sequences=width + 1, batch=PIECE_GPU, threads=1, on_gpu=True
                )
            )
            _read_prompt(contexts[-1], width)
        if lanes > 1 and (reason := short()):
            raise NativeError("memory", reason)
        # The contexts start within a fraction of the uncounted steps.
        with ThreadPoolExecutor(lanes) as pool:
            return statistics.median(
                second for taken in pool.map(steps, contexts, pickers) for second in taken
            )
    finally:
        for context in contexts:
            context.close()
        for picker in pickers:
            picker.close()


def _sampled_steps(
    context: Context, width: int, start: int, choose: Callable[[], object]
) -> list[float]:
    """Seconds of steps of `width` rows from position `start`, `choose` included.

    The first two steps do not count.
    """
    taken: list[float] = []
    for position in range(start, start + _SAMPLED_STEPS):
        began = time.perf_counter()
        _step(context, position, width)
        choose()
        taken.append(time.perf_counter() - began)
    return taken[2:]


def _read_prompt(context: Context, width: int) -> None:
    """Read a short prompt and share it among `width` sequences."""
    tokens = [token % context.model.tokens for token in range(_PROMPT)]
    context.batch.fill(tokens, range(_PROMPT), [0] * _PROMPT, [False] * (_PROMPT - 1) + [True])
    _decode(context)
    for sequence in range(1, width + 1):
        context.copy(0, sequence)


def _compare_rows(context: Context, position: int, rounding: float) -> None:
    """Compare a step of equal rows with the same row alone: all must agree up to rounding."""
    _step(context, position)
    rows = context.logits(REFERENCE_WIDTH).copy()
    context.batch.fill([position % context.model.tokens], [position], [0], [True])
    _decode(context)
    alone = context.logits(1)[0]
    spread = float(alone.std()) or 1.0
    among = float(np.abs(rows - rows[0]).max()) / spread
    against = float(np.sqrt(np.mean((rows[0] - alone) ** 2))) / spread
    if not (among < rounding and against < 10 * _ROUNDING):
        raise WrongResults(
            f"equal rows of a batch differ by {among:.2g} of the logits' spread, and from "
            f"the row alone by {against:.2g}"
        )


def _step(context: Context, position: int, width: int = REFERENCE_WIDTH) -> float:
    context.batch.fill(
        [position % context.model.tokens] * width,
        [position] * width,
        range(1, width + 1),
        [True] * width,
    )
    start = time.perf_counter()
    _decode(context)
    context.synchronize()
    return time.perf_counter() - start


def _decode(context: Context) -> None:
    if context.decode() != DECODED:
        raise NativeError("native", "llama.cpp does not run this model")

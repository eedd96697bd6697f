"""The short measurement when a model is loaded, and the file that remembers its outcome.

What is measured: the time of a step of eight rows by number of threads (CPU), and by way of sampling (GPU), and the time of a
step of many rows by number of lanes (GPU, see `lanes.py`). The measurement is also the first real work for the weights, and
a test of the library on this processor: rows of a batch that must be equal are compared, and a crash comes here and not in
the middle of a run. Results are kept per machine, library version and model file.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from kmint_tui.smith import kept
from kmint_tui.smith.decoder import PIECE_GPU
from kmint_tui.smith.draw import Dice
from kmint_tui.smith.native import DECODED, PINNED, Context, Model, NativeError
from kmint_tui.smith.sampler import Chain, Picker
from kmint_tui.smith.sampling import Sampling
from kmint_tui.smith.threads import REFERENCE_WIDTH

_PROMPT = 32
_STEPS = 5
_BUDGET = 1.5
_HOPELESS = 3.0
_ROUNDING = 0.02
# In one cache for all drafts, flash attention adds up a row's cells in an order that depends on where they lie: on an H200 equal
# rows of a random 1B model were up to 0.034 apart (bench/decode.py), while the errors looked for here are of the size of the spread.
_ROUNDING_ON_GPU = 0.1
_MANY = 32
_SAMPLED_STEPS = 10
_LANES = (1, 2, 4)
_LANES_GAIN = 1.1


@dataclass(frozen=True)
class Tuned:
    """What to use: CPU threads, seconds of a reference step with them, and sampling "turn", "pool" or "device".

    `plain` is the reason to load weights plainly, or "". `quiet` says that no other program was working while this was
    measured; if one was, it is measured again next time. `lanes` is 0 where their number is still to be measured.
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
    """The library computes something else than it should; the message says what was seen."""


def load(path: Path | None, key: str) -> Tuned | None:
    """The remembered result for `key`; None when there is none, or the file cannot be read or is not ours."""
    try:
        entry = kept.read(path)[key] if path is not None else None
        return Tuned(**entry) if isinstance(entry, dict) else None
    except (KeyError, TypeError):
        return None


def save(path: Path | None, key: str, tuned: Tuned) -> None:
    """Remember a result. Not being able to write only costs the next start a second."""
    if path is not None:
        kept.keep(path, key, asdict(tuned))


def key(machine: str, file: str) -> str:
    """The name under which a result is kept."""
    return f"{machine}/{PINNED}/{file}"


def measure_threads(model: Model, counts: tuple[int, ...], *, on_gpu: bool) -> dict[int, float]:
    """Seconds of a step of REFERENCE_WIDTH rows by thread count, rising until more threads stop helping.

    Raises WrongResults when rows with the same past and the same token give different logits.
    """
    context = Context(model, cells=1024, sequences=REFERENCE_WIDTH + 1, batch=64, threads=max(counts), on_gpu=on_gpu)
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
    """Seconds of steps of a few and of many rows, added up, sampling included, by way of sampling: "turn", "pool", "device"."""
    # Recurrent models keep a large state a row: many rows might not fit.
    widths = (REFERENCE_WIDTH,) if model.recurrent else (REFERENCE_WIDTH, _MANY)
    times: dict[str, float] = {}
    for way in ("turn", "pool", "device"):
        taken = [_sampled_step(model, way, width, workers if way == "pool" else 1) for width in widths]
        if None not in taken:
            times[way] = sum(filter(None, taken))
    return times


def _sampled_step(model: Model, way: str, width: int, workers: int) -> float | None:
    """Seconds of a step of `width` rows and the choice of their tokens; None when the device cannot do it."""
    context = Context(model, cells=1024, sequences=width + 1, batch=64, threads=1, on_gpu=True)
    chains = [Chain(model.lib, Sampling(), 0.7, seed) for seed in range(width)]
    dice = [Dice(Sampling(), 0.7, seed) for seed in range(width)]
    picker = Picker(workers)
    try:
        if way == "device" and not all(context.attach(1 + index, chain.pointer) for index, chain in enumerate(chains)):
            return None

        def choose() -> list[int]:
            if way == "device":
                return [chain.picked_on_device(context.pointer, row) for row, chain in enumerate(chains)]
            return picker.pick(context.logits(width), dice)

        return statistics.median(_sampled_steps(context, width, 0, choose))
    finally:
        context.close()
        picker.close()
        for chain in chains:
            chain.close()


def measure_lanes(model: Model, workers: int, short: Callable[[], str]) -> tuple[dict[int, float], str]:
    """Seconds of a step of many rows and the choice of their tokens, by the number of lanes that they are shared out among.

    Ends before a number that llama.cpp refuses, or whose contexts leave too little memory, which is when `short` gives a
    reason. The second value is why it ended early, or "".
    """
    times: dict[int, float] = {}
    for lanes in _LANES:
        try:
            times[lanes] = _step_in_lanes(model, lanes, workers, short)
        except NativeError as error:
            return times, error.reason
    return times, ""


def best_lanes(times: dict[int, float]) -> int:
    """The number of lanes to use; more only where they are a good deal faster, for each needs memory of its own."""
    best = 1
    for lanes in sorted(times):
        if times[best] >= _LANES_GAIN * times[lanes]:
            best = lanes
    return best


def _step_in_lanes(model: Model, lanes: int, workers: int, short: Callable[[], str]) -> float:
    """Seconds of the lanes' median step while all of them work. Raises NativeError."""
    width = _MANY // lanes
    contexts: list[Context] = []
    pickers = [Picker(workers) for _ in range(lanes)]

    def steps(context: Context, picker: Picker) -> list[float]:
        dice = [Dice(Sampling(), 0.7, seed) for seed in range(width)]
        return _sampled_steps(context, width, _PROMPT, lambda: picker.pick(context.logits(width), dice))

    try:
        for _ in range(lanes):
            # In pieces as large as a run's: they decide how much memory llama.cpp takes.
            contexts.append(Context(model, cells=1024, sequences=width + 1, batch=PIECE_GPU, threads=1, on_gpu=True))
            _read_prompt(contexts[-1], width)
        if lanes > 1 and (reason := short()):
            raise NativeError("memory", reason)
        # They start within a fraction of the steps that are not counted.
        with ThreadPoolExecutor(lanes) as pool:
            return statistics.median(second for taken in pool.map(steps, contexts, pickers) for second in taken)
    finally:
        for context in contexts:
            context.close()
        for picker in pickers:
            picker.close()


def _sampled_steps(context: Context, width: int, start: int, choose: Callable[[], object]) -> list[float]:
    """Seconds of steps of `width` rows from position `start` on, what follows each of them included; the first do not count."""
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
    """A step of equal rows, and the same row alone: all must agree but for rounding."""
    _step(context, position)
    rows = context.logits(REFERENCE_WIDTH).copy()
    context.batch.fill([position % context.model.tokens], [position], [0], [True])
    _decode(context)
    alone = context.logits(1)[0]
    spread = float(alone.std()) or 1.0
    among = float(np.abs(rows - rows[0]).max()) / spread
    against = float(np.sqrt(np.mean((rows[0] - alone) ** 2))) / spread
    if not (among < rounding and against < 10 * _ROUNDING):
        raise WrongResults(f"equal rows of a batch differ by {among:.2g} of the logits' spread, and from the row alone by {against:.2g}")


def _step(context: Context, position: int, width: int = REFERENCE_WIDTH) -> float:
    context.batch.fill([position % context.model.tokens] * width, [position] * width, range(1, width + 1), [True] * width)
    start = time.perf_counter()
    _decode(context)
    context.synchronize()
    return time.perf_counter() - start


def _decode(context: Context) -> None:
    if context.decode() != DECODED:
        raise NativeError("native", "llama.cpp does not run this model")

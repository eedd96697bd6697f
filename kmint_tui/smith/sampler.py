"""Chooses the next token of every draft: on the host for all at once, or by llama.cpp's samplers.

The order is top-k, top-p, min-p, temperature, draw (`sampling.py`). llama.cpp's chains serve the
device, and drafts without top-k. For other drafts the host does the same in a tenth of the time.
Both give the same tokens: the host has llama.cpp's rules, order, precision and random numbers.
Source: src/llama-sampler.cpp at the revision vendored by llama-cpp-python 0.3.36.

The host first cuts the k largest of every row. At 130,000 tokens and 32 drafts a step's logits are
17 MB; every choice of tokens reads them at least once. One pass takes the maxima of groups of a
row; the later passes read only those. The cut is exact: maxima of disjoint groups are values of the
row. So the k-th largest of them is a lower bound of the k-th largest value.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kmint_tui.smith.native import Logits, NativeError
from kmint_tui.smith.sampling import Sampling, is_greedy

# Of groups of 8 to 64 values, these took the least time at 130,560 tokens (8 and 32 rows).
DEPTH = 16
_MIN_BLOCKS = 256

Indices = npt.NDArray[np.int64]
_AHEAD = 128
_ROWS_A_WORKER = 4
_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


@dataclass(frozen=True)
class Shortlist:
    """Token ids and logits, shape (rows, k or all there are), from the largest down."""

    ids: Indices
    logits: Logits


def blocks_for(k: int) -> int:
    """Number of blocks of groups a row that bound its k-th largest value."""
    return max(_MIN_BLOCKS, 1 << (4 * k - 1).bit_length())


def is_cut(width: int, k: int) -> bool:
    """True when rows of `width` values are long enough for groups to save time."""
    return k > 1 and width >= DEPTH * blocks_for(k)


def group_maxima(rows: Logits, out: Logits) -> None:
    """The long pass: fill `out`, shape (rows, vocabulary // DEPTH), with each group's largest
    value.
    """
    count, width = rows.shape
    groups = width // DEPTH
    cut = groups * DEPTH
    np.max(rows[:, :cut].reshape(count, DEPTH, groups), axis=1, out=out)
    if cut < width:
        np.maximum(out[:, : width - cut], rows[:, cut:], out=out[:, : width - cut])


def shortlist(rows: Logits, k: int, maxima: Logits | None = None) -> Shortlist:
    """The k largest of each row of shape (rows, vocabulary), or all of fewer.

    `maxima` is the result of `group_maxima` for the rows, if it exists. Raises
    NativeError("native") when a row's largest values are not finite numbers.
    """
    count, width = rows.shape
    if not is_cut(width, k):
        return _uncut(rows, k)
    blocks, groups = blocks_for(k), width // DEPTH
    cut = groups * DEPTH
    if maxima is None:
        maxima = np.empty((count, groups), np.float32)
        group_maxima(rows, maxima)
    some = groups - groups % blocks
    tops = np.partition(
        maxima[:, :some].reshape(count, -1, blocks).max(axis=1), blocks - k, axis=1
    )[:, blocks - k :]
    _check(tops.max(axis=1))
    row, group = np.divmod(np.flatnonzero(maxima >= tops[:, :1]), groups)
    ids = group[:, None] + groups * np.arange(DEPTH + (cut < width))
    if cut < width:
        # The last level of groups is incomplete; its gaps repeat a value that also stands in its
        # own place.
        ids[:, -1] = np.where(ids[:, -1] < width, ids[:, -1], group)
    values = rows.reshape(-1).take(ids + (row * width)[:, None])
    large = values >= tops[row, :1]
    if cut < width:
        large[:, -1] &= ids[:, -1] != group
    at = np.flatnonzero(large)
    names, logits, lines = ids.reshape(-1)[at], values.reshape(-1)[at], row[at // large.shape[1]]
    # Line by line, the largest first. Every line has at least k values: the maxima of the bound.
    order = np.lexsort((-logits, lines))
    chosen = order[np.searchsorted(lines, np.arange(count))[:, None] + np.arange(k)]
    return Shortlist(names[chosen], logits[chosen])


def _uncut(rows: Logits, k: int) -> Shortlist:
    """The k largest without groups, for short rows or k = 1."""
    width = rows.shape[1]
    if k == 1:
        ids = rows.argmax(axis=1)[:, None]
    else:
        ids = np.sort(np.argpartition(rows, max(0, width - k), axis=1)[:, -k:], axis=1)
    return _ordered(np.take_along_axis(rows, ids, axis=1), ids, k)


def _ordered(logits: Logits, ids: Indices, k: int) -> Shortlist:
    order = np.argsort(-logits, axis=1, kind="stable")[:, :k]
    here = np.arange(len(logits))[:, None]
    logits, ids = logits[here, order], ids[here, order]
    _check(logits[:, 0])
    return Shortlist(ids, logits)


def _check(largest: Logits) -> None:
    if not np.isfinite(largest).all():
        raise NativeError("native", "the model's logits are not numbers")


class SamplerState:
    """One draft's sampling settings and its random numbers."""

    def __init__(self, sampling: Sampling, temperature: float, seed: int) -> None:
        """`sampling.top_k` must be above 0 unless the draft is greedy."""
        greedy = is_greedy(temperature)
        self.k = 1 if greedy else sampling.top_k
        self.top_p, self.min_p = sampling.top_p, sampling.min_p
        self.temperature = 1.0 if greedy else temperature
        self.rng = _uniform(seed).__next__

    def close(self) -> None:
        """Nothing to free; `Chain` has the same method."""


def draw(listed: Shortlist, states: Sequence[SamplerState]) -> list[int]:
    """One token a state, from the row of `listed` at the same index, or from its only row.

    A row holds at least the largest k of the states, or the whole vocabulary.
    """
    logits = listed.logits
    count, length = len(states), logits.shape[1]
    weights = np.exp(logits - logits[:, :1])
    if any(one.k < length for one in states):
        weights = np.where(
            np.arange(length) < np.array([[one.k] for one in states]), weights, np.float32(0)
        )
    keep = np.ones((count, length), np.bool_)
    keep &= weights > 0
    if any(one.top_p < 1 for one in states):
        # llama.cpp sums in single precision, in this order. A token stays while the sum of those
        # before it is below top-p.
        shares = np.add.accumulate(weights / np.add.accumulate(weights, axis=1)[:, -1:], axis=1)
        keep[:, 1:] &= shares[:, :-1] < np.array(
            [[one.top_p if one.top_p < 1 else np.inf] for one in states], np.float32
        )
    if any(one.min_p > 0 for one in states):
        least = np.array([[one.min_p] for one in states], np.float32)
        keep &= logits >= logits[:, :1] + np.log(np.maximum(least, np.finfo(np.float32).tiny))
    scaled = logits / np.array([[one.temperature] for one in states], np.float32)
    sums = np.add.accumulate(np.exp(scaled - scaled[:, :1]) * keep, axis=1, dtype=np.float64)
    chosen = (sums >= (sums[:, -1] * [one.rng() for one in states])[:, None]).argmax(axis=1)
    tokens: list[int] = np.broadcast_to(listed.ids, (count, length))[
        np.arange(count), chosen
    ].tolist()
    return tokens


def _uniform(seed: int) -> Iterator[float]:
    """C++'s std::uniform_real_distribution<double> over std::mt19937: two words a number."""
    source = np.random.RandomState(seed)
    return _numbers(source)


def _numbers(source: np.random.RandomState) -> Iterator[float]:
    while True:
        words = source.randint(0, 1 << 32, size=2 * _AHEAD, dtype=np.uint32).astype(np.float64)
        yield from ((words[0::2] + words[1::2] * 2.0**32) / 2.0**64).tolist()


class Chain:
    """llama.cpp's samplers for one draft, with its own seed.

    `pick` draws from one row of logits, once.
    """

    def __init__(self, lib: Any, sampling: Sampling, temperature: float, seed: int) -> None:
        self._lib = lib
        self.greedy = is_greedy(temperature)
        parts = [lib.llama_sampler_init_greedy()]
        if not self.greedy:
            parts = [
                *([lib.llama_sampler_init_top_k(sampling.top_k)] if sampling.top_k else []),
                *([lib.llama_sampler_init_top_p(sampling.top_p, 1)] if sampling.top_p < 1 else []),
                *([lib.llama_sampler_init_min_p(sampling.min_p, 1)] if sampling.min_p > 0 else []),
                lib.llama_sampler_init_temp(temperature),
                lib.llama_sampler_init_dist(seed),
            ]
        self.pointer = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
        for part in parts:
            lib.llama_sampler_chain_add(self.pointer, part)
        self._array = lib.llama_token_data_array(data=None, size=0, selected=-1, sorted=False)
        self._room = np.empty(0, _CANDIDATE)

    def pick(self, row: Logits) -> int:
        """The next token for a row of logits, shape (vocabulary,).

        Raises NativeError("native") for logits that are not finite.
        """
        if not np.isfinite(row.max()):
            raise NativeError("native", "the model's logits are not numbers")
        if self.greedy:
            return int(row.argmax())
        if self._room.size != row.size:
            self._room = np.empty(row.size, _CANDIDATE)
            self._array.data = self._room.ctypes.data_as(ctypes.POINTER(self._lib.llama_token_data))
        self._room["id"], self._room["logit"] = np.arange(row.size), row
        self._array.size, self._array.selected, self._array.sorted = row.size, -1, False
        self._lib.llama_sampler_apply(self.pointer, ctypes.byref(self._array))
        if not 0 <= self._array.selected < self._array.size:
            raise NativeError("native", "the sampler chose nothing")
        token = int(self._room["id"][self._array.selected])
        self._lib.llama_sampler_accept(self.pointer, token)
        return token

    def picked_on_device(self, context: Any, row: int) -> int:
        """The token that the device chose for output row `row`; the chain is attached to its
        sequence.
        """
        return int(self._lib.llama_sampler_sample(self.pointer, context, row))

    def close(self) -> None:
        """Free the sampler."""
        if self.pointer:
            self._lib.llama_sampler_free(self.pointer)
            self.pointer = None


class Picker:
    """Draws one token for each row.

    Threads may share the long pass over the rows, because numpy releases the interpreter lock.
    """

    def __init__(self, workers: int = 1) -> None:
        self.workers = workers
        self._pool = (
            ThreadPoolExecutor(workers - 1, thread_name_prefix="sample") if workers > 1 else None
        )
        self._room: Logits = np.empty((0, 0), np.float32)

    def pick(self, rows: Logits, drawers: Sequence[SamplerState | Chain]) -> list[int]:
        """One token for each sampler, from the row of (drafts, vocabulary) at its index, or the
        only row.

        The number of workers never changes the tokens.
        """
        states = [one for one in drawers if isinstance(one, SamplerState)]
        if len(states) < len(drawers):
            rows = np.broadcast_to(rows, (len(drawers), rows.shape[1]))
            return [
                one.pick(row) if isinstance(one, Chain) else self.pick(row[None], [one])[0]
                for one, row in zip(drawers, rows, strict=True)
            ]
        k = max(one.k for one in states)
        maxima = self._maxima(rows) if is_cut(rows.shape[1], k) else None
        return draw(shortlist(rows, k, maxima), states)

    def close(self) -> None:
        """Stop the threads."""
        if self._pool is not None:
            self._pool.shutdown()

    def _maxima(self, rows: Logits) -> Logits:
        """The rows' group maxima, in reused memory: new megabytes cost more than filling them."""
        count, groups = rows.shape[0], rows.shape[1] // DEPTH
        if self._room.shape[0] < count or self._room.shape[1] != groups:
            self._room = np.empty((count, groups), np.float32)
        room = self._room[:count]
        parts = 1 if self._pool is None else min(self.workers, -(-count // _ROWS_A_WORKER))
        edges = [count * part // parts for part in range(parts + 1)]
        later = [
            self._pool.submit(group_maxima, rows[low:high], room[low:high])
            for low, high in zip(edges[1:], edges[2:], strict=False)
            if self._pool is not None
        ]
        group_maxima(rows[: edges[1]], room[: edges[1]])
        for future in later:
            future.result()
        return room

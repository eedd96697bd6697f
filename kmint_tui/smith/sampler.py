"""Choosing the next token of every draft from rows of logits, fast.

llama.cpp's own chains do the choosing (top-k, top-p, min-p, temperature, draw), but they begin by copying the whole
vocabulary, which at 130,000 tokens costs more than a GPU's step. `peaks` and `candidates` first cut a row down to the few logits that
can be among the k largest, in one pass over memory; a chain then gets only those. The cut is exact: the maxima of
disjoint groups of a row are themselves k values of the row, so the k-th largest of them bounds the k-th largest logit
from below. The token chosen is the one that the chain would have chosen from the whole row.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from kmint_tui.smith.native import Ids, Logits, NativeError
from kmint_tui.smith.sampling import Sampling, is_greedy

_MIN_GROUPS = 4096
_ROWS_A_WORKER = 4
_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


@dataclass(frozen=True)
class Peaks:
    """Group maxima of some rows, shape (rows, groups), and per row a lower bound of its k-th largest value."""

    maxima: Logits
    bounds: Logits


def peaks(rows: Logits, k: int) -> Peaks | None:
    """The bounds by which rows of shape (rows, vocabulary) can be cut to their k largest; None when it is not worth while.

    Group g of a row is every value whose index is g modulo the number of groups; a short tail belongs to no group.
    """
    count, width = rows.shape
    groups = max(_MIN_GROUPS, 4 * k)
    depth = width // groups
    if k <= 0 or depth < 2:
        return None
    maxima = rows[:, : depth * groups].reshape(count, depth, groups).max(axis=1)
    return Peaks(maxima, np.partition(maxima, groups - k, axis=1)[:, groups - k])


def candidates(row: Logits, maxima: Logits, bound: float) -> tuple[Ids, Logits]:
    """Ids and values of a row, shape (vocabulary,), that are at least `bound`: its k largest are among them.

    `maxima` and `bound` are the row's part of its `Peaks`. The order of the ids is that of the groups.
    """
    groups = maxima.size
    depth = row.size // groups
    columns = (maxima >= bound).nonzero()[0]
    block = row[: depth * groups].reshape(depth, groups)[:, columns]
    levels, offsets = (block >= bound).nonzero()
    ids, values = levels * groups + columns[offsets], block[levels, offsets]
    tail = (row[depth * groups :] >= bound).nonzero()[0]
    if tail.size:
        ids, values = np.concatenate([ids, depth * groups + tail]), np.concatenate([values, row[depth * groups + tail]])
    return ids.astype(np.int32), values


class Chain:
    """One draft's sampler with its own seed. `pick` draws from one row of logits and advances the generator once."""

    def __init__(self, lib: Any, sampling: Sampling, temperature: float, seed: int) -> None:
        self._lib = lib
        self.greedy = is_greedy(temperature)
        self.k = 1 if self.greedy else sampling.top_k
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
        self._all = np.empty(0, np.int32)

    def pick(self, row: Logits, maxima: Logits | None, bound: float) -> int:
        """The next token for a row of logits, shape (vocabulary,); `maxima` and `bound` are the row's `Peaks`, if any."""
        if self.greedy:
            token = int(row.argmax())
            if not np.isfinite(row[token]):
                raise NativeError("native", "the model's logits are not numbers")
            return token
        ids, logits = (self._everything(row.size), row) if maxima is None else candidates(row, maxima, bound)
        if not ids.size or not np.isfinite(logits).any():
            raise NativeError("native", "the model's logits are not numbers")
        if ids.size > self._room.size:
            self._room = np.empty(ids.size + 64, _CANDIDATE)
            self._array.data = self._room.ctypes.data_as(ctypes.POINTER(self._lib.llama_token_data))
        self._room["id"][: ids.size] = ids
        self._room["logit"][: ids.size] = logits
        self._array.size, self._array.selected, self._array.sorted = ids.size, -1, False
        self._lib.llama_sampler_apply(self.pointer, ctypes.byref(self._array))
        if not 0 <= self._array.selected < self._array.size:
            raise NativeError("native", "the sampler chose nothing")
        token = int(self._room["id"][self._array.selected])
        self._lib.llama_sampler_accept(self.pointer, token)
        return token

    def _everything(self, width: int) -> Ids:
        if self._all.size != width:
            self._all = np.arange(width, dtype=np.int32)
        return self._all

    def picked_on_device(self, context: Any, row: int) -> int:
        """The token that the device chose for output row `row`, when this chain is attached to its sequence."""
        return int(self._lib.llama_sampler_sample(self.pointer, context, row))

    def close(self) -> None:
        """Free the sampler."""
        if self.pointer:
            self._lib.llama_sampler_free(self.pointer)
            self.pointer = None


class Picker:
    """Draws one token for each row, in turn or spread over a few threads (numpy and ctypes release the interpreter lock)."""

    def __init__(self, workers: int = 1) -> None:
        self.workers = workers
        self._pool = ThreadPoolExecutor(workers - 1, thread_name_prefix="sample") if workers > 1 else None

    def pick(self, rows: Logits, chains: Sequence[Chain]) -> list[int]:
        """One token for each row of (drafts, vocabulary), by the chain at the same index. The workers never matter."""
        if self._pool is None or len(chains) <= _ROWS_A_WORKER:
            return _pick(rows, chains)
        parts = min(self.workers, -(-len(chains) // _ROWS_A_WORKER))
        edges = [len(chains) * part // parts for part in range(parts + 1)]
        slices = [slice(low, high) for low, high in zip(edges, edges[1:], strict=False)]
        later = [self._pool.submit(_pick, rows[part], chains[part]) for part in slices[1:]]
        tokens = _pick(rows[slices[0]], chains[slices[0]])
        for future in later:
            tokens += future.result()
        return tokens

    def close(self) -> None:
        """Stop the threads."""
        if self._pool is not None:
            self._pool.shutdown()


def _pick(rows: Logits, chains: Sequence[Chain]) -> list[int]:
    cut = peaks(rows, max(chain.k for chain in chains)) if all(chain.k for chain in chains) else None
    if cut is None:
        return [chain.pick(row, None, 0.0) for chain, row in zip(chains, rows, strict=True)]
    bounds = cut.bounds.tolist()
    return [chain.pick(row, maxima, bound) for chain, row, maxima, bound in zip(chains, rows, cut.maxima, bounds, strict=True)]

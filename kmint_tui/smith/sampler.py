"""Choosing the next token of every draft: on the host for all of them at once, or by llama.cpp's own samplers.

The order is top-k, top-p, min-p, temperature, draw (see `sampling.py`). llama.cpp's chains are needed where they run on the
device, and where top-k is off; everywhere else `draw.py` does the same for a tenth of the time. Both give the same tokens.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from kmint_tui.smith.draw import Dice, draw
from kmint_tui.smith.native import Logits, NativeError
from kmint_tui.smith.sampling import Sampling, is_greedy
from kmint_tui.smith.shortlist import DEPTH, group_maxima, is_cut, shortlist

_ROWS_A_WORKER = 4
_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


class Chain:
    """llama.cpp's samplers for one draft with its own seed. `pick` draws from one row of logits, once."""

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
        """The next token for a row of logits, shape (vocabulary,). Raises NativeError("native") when they are not numbers."""
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
        """The token that the device chose for output row `row`, when this chain is attached to its sequence."""
        return int(self._lib.llama_sampler_sample(self.pointer, context, row))

    def close(self) -> None:
        """Free the sampler."""
        if self.pointer:
            self._lib.llama_sampler_free(self.pointer)
            self.pointer = None


class Picker:
    """Draws one token for each row. The long pass over the rows can be spread over threads: numpy releases the interpreter lock."""

    def __init__(self, workers: int = 1) -> None:
        self.workers = workers
        self._pool = ThreadPoolExecutor(workers - 1, thread_name_prefix="sample") if workers > 1 else None
        self._room: Logits = np.empty((0, 0), np.float32)

    def pick(self, rows: Logits, drawers: Sequence[Dice | Chain]) -> list[int]:
        """One token for each drawer, from the row of (drafts, vocabulary) at the same index, or from the only row.

        The number of workers never changes the tokens.
        """
        dice = [one for one in drawers if isinstance(one, Dice)]
        if len(dice) < len(drawers):
            rows = np.broadcast_to(rows, (len(drawers), rows.shape[1]))
            return [
                one.pick(row) if isinstance(one, Chain) else self.pick(row[None], [one])[0] for one, row in zip(drawers, rows, strict=True)
            ]
        k = max(one.k for one in dice)
        maxima = self._maxima(rows) if is_cut(rows.shape[1], k) else None
        return draw(shortlist(rows, k, maxima), dice)

    def close(self) -> None:
        """Stop the threads."""
        if self._pool is not None:
            self._pool.shutdown()

    def _maxima(self, rows: Logits) -> Logits:
        """The rows' group maxima, in memory that is used again and again: newly allocated megabytes cost more than filling them."""
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

"""The k largest of every row of logits, in a few passes over all rows at once.

At 130,000 tokens and 32 drafts a step's logits are 17 MB, and reading them once is what choosing tokens costs at least.
So one pass takes the maxima of groups of a row; everything else looks at those. The cut is exact: maxima of disjoint
groups are themselves values of the row, so the k-th largest of some of them bounds the k-th largest value from below.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kmint_tui.smith.native import Logits, NativeError

# Of groups of 8 to 64 values, these took the least time at 130,560 tokens (8 and 32 rows).
DEPTH = 16
_MIN_BLOCKS = 256

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Shortlist:
    """Token ids and logits, shape (rows, k or all there are), from the largest down."""

    ids: Indices
    logits: Logits


def blocks_for(k: int) -> int:
    """How many blocks of groups a row is looked at in, to bound its k-th largest value."""
    return max(_MIN_BLOCKS, 1 << (4 * k - 1).bit_length())


def is_cut(width: int, k: int) -> bool:
    """Whether rows of `width` values are long enough for groups to save anything."""
    return k > 1 and width >= DEPTH * blocks_for(k)


def group_maxima(rows: Logits, out: Logits) -> None:
    """The long pass: fill `out`, shape (rows, vocabulary // DEPTH), with the largest value of each group."""
    count, width = rows.shape
    groups = width // DEPTH
    cut = groups * DEPTH
    np.max(rows[:, :cut].reshape(count, DEPTH, groups), axis=1, out=out)
    if cut < width:
        np.maximum(out[:, : width - cut], rows[:, cut:], out=out[:, : width - cut])


def shortlist(rows: Logits, k: int, maxima: Logits | None = None) -> Shortlist:
    """The k largest of each row of shape (rows, vocabulary), all of them when there are fewer.

    `maxima` is what `group_maxima` made of the rows, where it has been done already.
    Raises NativeError("native") when a row's largest values are not finite numbers.
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
    tops = np.partition(maxima[:, :some].reshape(count, -1, blocks).max(axis=1), blocks - k, axis=1)[:, blocks - k :]
    _check(tops.max(axis=1))
    row, group = np.divmod(np.flatnonzero(maxima >= tops[:, :1]), groups)
    ids = group[:, None] + groups * np.arange(DEPTH + (cut < width))
    if cut < width:
        # The last level of groups is incomplete: what it lacks repeats a value that is found in its own place.
        ids[:, -1] = np.where(ids[:, -1] < width, ids[:, -1], group)
    values = rows.reshape(-1).take(ids + (row * width)[:, None])
    large = values >= tops[row, :1]
    if cut < width:
        large[:, -1] &= ids[:, -1] != group
    at = np.flatnonzero(large)
    names, logits, lines = ids.reshape(-1)[at], values.reshape(-1)[at], row[at // large.shape[1]]
    # Line by line, the largest first. Every line has at least k: the maxima that made the bound.
    order = np.lexsort((-logits, lines))
    chosen = order[np.searchsorted(lines, np.arange(count))[:, None] + np.arange(k)]
    return Shortlist(names[chosen], logits[chosen])


def _uncut(rows: Logits, k: int) -> Shortlist:
    """For few values, or one wanted."""
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

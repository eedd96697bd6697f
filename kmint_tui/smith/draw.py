"""Drawing the next token of every draft at once, on the host, from the shortlists of their logits.

The rules, their order and the random numbers are those of llama.cpp's samplers top-k, top-p, min-p, temperature and dist
(src/llama-sampler.cpp at the revision vendored by llama-cpp-python 0.3.36), in the same precision, so that a seed gives
the same tokens here and on a device. What differs is the cost: one set of numpy calls a step instead of several calls and a
copy of the vocabulary a draft.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from kmint_tui.smith.sampling import Sampling, is_greedy
from kmint_tui.smith.shortlist import Shortlist

_AHEAD = 128


class Dice:
    """One draft's settings and its own random numbers."""

    def __init__(self, sampling: Sampling, temperature: float, seed: int) -> None:
        """`sampling.top_k` must be above 0 unless the draft is greedy."""
        greedy = is_greedy(temperature)
        self.k = 1 if greedy else sampling.top_k
        self.top_p, self.min_p = sampling.top_p, sampling.min_p
        self.temperature = 1.0 if greedy else temperature
        self.throw = _uniform(seed).__next__

    def close(self) -> None:
        """Nothing is held."""


def draw(listed: Shortlist, dice: Sequence[Dice]) -> list[int]:
    """One token for each of the dice, from the row of `listed` at the same index, or from its only row.

    A row must be at least as long as the dice's largest k, or hold the whole vocabulary.
    """
    logits = listed.logits
    count, length = len(dice), logits.shape[1]
    weights = np.exp(logits - logits[:, :1])
    if any(one.k < length for one in dice):
        weights = np.where(np.arange(length) < np.array([[one.k] for one in dice]), weights, np.float32(0))
    keep = np.ones((count, length), np.bool_)
    keep &= weights > 0
    if any(one.top_p < 1 for one in dice):
        # llama.cpp adds up in single precision, in this order; a token stays while those before it fall short of top-p.
        shares = np.add.accumulate(weights / np.add.accumulate(weights, axis=1)[:, -1:], axis=1)
        keep[:, 1:] &= shares[:, :-1] < np.array([[one.top_p if one.top_p < 1 else np.inf] for one in dice], np.float32)
    if any(one.min_p > 0 for one in dice):
        least = np.array([[one.min_p] for one in dice], np.float32)
        keep &= logits >= logits[:, :1] + np.log(np.maximum(least, np.finfo(np.float32).tiny))
    scaled = logits / np.array([[one.temperature] for one in dice], np.float32)
    sums = np.add.accumulate(np.exp(scaled - scaled[:, :1]) * keep, axis=1, dtype=np.float64)
    chosen = (sums >= (sums[:, -1] * [one.throw() for one in dice])[:, None]).argmax(axis=1)
    tokens: list[int] = np.broadcast_to(listed.ids, (count, length))[np.arange(count), chosen].tolist()
    return tokens


def _uniform(seed: int) -> Iterator[float]:
    """What C++'s std::uniform_real_distribution<double> makes of std::mt19937 with this seed: two words a number."""
    source = np.random.RandomState(seed)
    return _numbers(source)


def _numbers(source: np.random.RandomState) -> Iterator[float]:
    while True:
        words = source.randint(0, 1 << 32, size=2 * _AHEAD, dtype=np.uint32).astype(np.float64)
        yield from ((words[0::2] + words[1::2] * 2.0**32) / 2.0**64).tolist()

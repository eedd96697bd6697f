"""Sampling settings, the temperature ladder and the seed of each draft.

The chain is top-k, then top-p, then min-p (all at temperature 1), then temperature, then the draw.
This is llama.cpp's order, in which truncation does not depend on the temperature. Hugging Face
applies the temperature first.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

RANDOM_SEED = 0xFFFFFFFF  # llama.cpp then draws a seed itself


@dataclass(frozen=True)
class Sampling:
    """One request's settings. Temperature 0 is greedy; `top_k` 0, `top_p` 1, `min_p` 0 mean no
    filter.

    `ladder` spreads the temperatures of N drafts evenly over `temperature` plus or minus `ladder`,
    for more diversity at the same cost. Raises ValueError when a value is out of range.
    """

    temperature: float = 0.7
    top_p: float = 0.97
    top_k: int = 40
    min_p: float = 0.0
    ladder: float = 0.0

    def __post_init__(self) -> None:
        checks = {
            "temperature must be from 0 to 5": 0 <= self.temperature <= 5,
            "top-p must be above 0 and at most 1": 0 < self.top_p <= 1,
            "top-k must be 0 or more": self.top_k >= 0,
            "min-p must be from 0 to below 1": 0 <= self.min_p < 1,
            "the ladder must be from 0 to the temperature": 0 <= self.ladder <= self.temperature,
        }
        for rule, holds in checks.items():
            if not holds:
                raise ValueError(rule)

    def temperatures(self, drafts: int) -> tuple[float, ...]:
        """The temperature of each draft: equal, or rising from the lowest to the highest of the
        ladder.
        """
        if drafts < 2 or self.ladder == 0:
            return (self.temperature,) * drafts
        lowest = self.temperature - self.ladder
        return tuple(lowest + 2 * self.ladder * index / (drafts - 1) for index in range(drafts))


def draft_seed(seed: int, draft: int) -> int:
    """The 32-bit seed of draft number `draft` in a run with seed `seed`; never RANDOM_SEED."""
    digest = hashlib.blake2b(f"{seed}/{draft}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % RANDOM_SEED


def is_greedy(temperature: float) -> bool:
    """True for a temperature that takes the likeliest token."""
    return temperature <= 0 or math.isclose(temperature, 0, abs_tol=1e-6)

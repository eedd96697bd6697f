"""Commands that do next to nothing, a random number of them before every flush, so that no call finds the GPU in step with its number.

From one call to the next as many commands go to the GPU as before, and how long it takes from a start event to a kernel and from there
to the end event comes back with them, after 2, 3, 4 or 8 calls, by half a microsecond (`bench/cadence.py`). Where that is in step with
the rounds, blocks differ by more than their rounds do. Which commands end it differs between machines: on one H200 events alone did,
on another and on an H100 kernels alone, so both are queued.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Padding:
    """How many there may be before a flush: fewer than so many events that nobody reads, and fewer than so many kernels of one word."""

    events: int = 64
    kernels: int = 16

    def queue(self, generator: np.random.Generator, stream: torch.cuda.Stream, word: Tensor) -> None:
        """Queue some, whose numbers the generator draws, on the current stream; kernels count in `word`."""
        unread = _unread()
        for _ in range(int(generator.integers(self.events))):
            unread.record(stream)
        for _ in range(int(generator.integers(self.kernels))):
            word.add_(1)


NONE = Padding(events=1, kernels=1)


def counter() -> Tensor:
    """A word for kernels to count in."""
    return torch.zeros(1, dtype=torch.int32, device="cuda")


def _unread() -> Any:
    make: Any = torch.cuda.Event
    return make()

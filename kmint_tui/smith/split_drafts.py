"""Splits a run among llama.cpp contexts, and merges their figures (`context_pool.py`).

The application's process uses it too, so it loads nothing heavy.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from kmint_tui.smith.events import Choice, RunDone

# Measured on an H200 (bench/decode_limits.py, 1B Q8_0): 32 rows are fastest in four contexts and
# slower in eight. Eight rows in one context are about as fast as in two or four.
ROWS = 8

# Several contexts multiply llama.cpp's buffers, and the referee needs memory of the same GPU.
_KEPT = 16 << 30


def contexts_for(drafts: int, most: int) -> int:
    """Number of contexts, at most `most`, for a run with that many drafts."""
    return max(1, min(most, -(-drafts // ROWS)))


def gpu_memory_short(free: int) -> str:
    """The reason against several contexts with `free` bytes of GPU memory; "" without one."""
    if free >= _KEPT:
        return ""
    have = f"{free / 2**30:.1f} GiB of GPU memory are free"
    return f"{have}, and {_KEPT >> 30} are kept for the referee"


def merged(done: Sequence[RunDone], choices: Sequence[Choice]) -> RunDone:
    """The figures of a run from those of its contexts; `choices` are added to theirs.

    A run takes as long as the slowest context. Its steps are those of the context with the most,
    because contexts step at the same time.
    """
    stepped = [one for one in done if one.steps] or done
    return RunDone(
        drafts=sum(one.drafts for one in done),
        tokens=sum(one.tokens for one in done),
        seconds=max(one.seconds for one in done),
        prompt_tokens=max(one.prompt_tokens for one in done),
        reused_tokens=min(one.reused_tokens for one in done),
        prefill_seconds=max(one.prefill_seconds for one in done),
        first_token_seconds=min(
            (one.first_token_seconds for one in done if one.first_token_seconds), default=0.0
        ),
        steps=max(one.steps for one in done),
        step_seconds=statistics.median(one.step_seconds for one in stepped),
        sampling_share=statistics.fmean(one.sampling_share for one in stepped),
        cells=sum(one.cells for one in done),
        threads=done[0].threads,
        cancelled=any(one.cancelled for one in done),
        choices=(*(choice for one in done for choice in one.choices), *choices),
        host_seconds=statistics.fmean(one.host_seconds for one in stepped),
    )

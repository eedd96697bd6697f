"""How a run is shared out among lanes (see `lanes.py`), and how what they say of it becomes one.

Apart from the lanes themselves because the application's process needs it too, and loads nothing heavy.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from kmint_tui.smith.events import Choice, RunDone

# Measured on an H200 (bench/decode_limits.py, 1B Q8_0): 32 rows are fastest in four lanes, slower in eight; eight rows in one
# lane are about as fast as in two or four.
ROWS = 8

# Lanes multiply llama.cpp's buffers, and the referee needs room on the same GPU.
_KEPT = 16 << 30


def lanes_for(drafts: int, most: int) -> int:
    """How many of `most` lanes a run of so many drafts uses."""
    return max(1, min(most, -(-drafts // ROWS)))


def crowded(free: int) -> str:
    """Why, with so many bytes of a GPU free, there must not be several lanes; "" when there may be."""
    return "" if free >= _KEPT else f"{free / 2**30:.1f} GiB of GPU memory are free, and {_KEPT >> 30} are kept for the referee"


def merged(done: Sequence[RunDone], choices: Sequence[Choice]) -> RunDone:
    """The figures of a run from those of its lanes; `choices` are added to theirs.

    A run takes as long as the slowest lane. Its steps are those of the lane with the most, for lanes step side by side.
    """
    stepped = [one for one in done if one.steps] or done
    return RunDone(
        drafts=sum(one.drafts for one in done),
        tokens=sum(one.tokens for one in done),
        seconds=max(one.seconds for one in done),
        prompt_tokens=max(one.prompt_tokens for one in done),
        reused_tokens=min(one.reused_tokens for one in done),
        prefill_seconds=max(one.prefill_seconds for one in done),
        first_token_seconds=min((one.first_token_seconds for one in done if one.first_token_seconds), default=0.0),
        steps=max(one.steps for one in done),
        step_seconds=statistics.median(one.step_seconds for one in stepped),
        sampling_share=statistics.fmean(one.sampling_share for one in stepped),
        cells=sum(one.cells for one in done),
        threads=done[0].threads,
        cancelled=any(one.cancelled for one in done),
        choices=(*(choice for one in done for choice in one.choices), *choices),
        host_seconds=statistics.fmean(one.host_seconds for one in stepped),
    )

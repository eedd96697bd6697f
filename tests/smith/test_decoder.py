"""The decoding loop in this process, where its parts can be watched."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from kmint_tui.smith import loading
from kmint_tui.smith.events import DraftDone, Event
from kmint_tui.smith.native import Context, Logits
from kmint_tui.smith.order import Order
from kmint_tui.smith.run import DraftJob
from kmint_tui.smith.sampler import Chain, Picker, SamplerState
from kmint_tui.smith.sampling import Sampling

ROOT = Path(__file__).parents[2]
LARGE_PIECES = """
import sys
from collections.abc import Sequence
from pathlib import Path
from kmint_tui.smith import decoder, loading
from kmint_tui.smith.native import NativeError
from kmint_tui.smith.order import Order
from kmint_tui.smith.run import DraftJob
from kmint_tui.smith.sampling import Sampling
decoder.PIECE_CPU = decoder.PIECE_GPU
ready = loading.load(Order(Path(sys.argv[1]), gpu_layers=0, threads=1, max_cells=256), lambda event: None, lambda line: None)
job = DraftJob(prompt=(7,) * 300, drafts=1, sampling=Sampling(), seed=1, max_tokens=5, inside=False)
try:
    ready.decoder.run(job, lambda events: None, lambda: False)
except NativeError as error:
    print(error.reason)
"""


def test_a_prompt_larger_than_the_cache_is_refused(
    model_files: dict[str, Path],
) -> None:
    """llama.cpp aborts on a piece larger than its context, so this runs in another process."""
    command = [sys.executable, "-c", LARGE_PIECES, str(model_files["llama"])]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert (ended.returncode, ended.stdout) == (
        0,
        "the prompt's 300 tokens do not fit a context of 256\n",
    ), ended.stderr[-500:]


def test_a_cancel_during_a_step_chooses_no_more_tokens(
    model_files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = loading.load(
        Order(model_files["llama"], gpu_layers=0, threads=1), lambda event: None, lambda line: None
    )
    decode, pick = Context.decode, Picker.pick
    decoded: list[int] = []
    chosen: list[int] = []

    def decoding(context: Context) -> int:
        decoded.append(len(decoded) + 1)
        return decode(context)

    def picking(picker: Picker, rows: Logits, drawers: Sequence[SamplerState | Chain]) -> list[int]:
        chosen.append(len(decoded))
        return pick(picker, rows, drawers)

    monkeypatch.setattr(Context, "decode", decoding)
    monkeypatch.setattr(Picker, "pick", picking)
    prompt = tuple(ready.model.tokenize("tl.load(x_ptr + cols) " * 4))
    job = DraftJob(
        prompt=prompt, drafts=2, sampling=Sampling(), seed=1, max_tokens=50, inside=False
    )
    emitted: list[Sequence[Event]] = []
    done = ready.decoder.run(job, emitted.append, lambda: len(decoded) >= 4)
    # The first decode reads the prompt; the cancel comes in the fourth step.
    assert done.cancelled and chosen == [1, 2, 3]
    # Each emission wakes the application, which costs more than its content.
    assert [event.finish for event in emitted[-1] if isinstance(event, DraftDone)] == [
        "cancelled",
        "cancelled",
    ]
    assert emitted[-1][-1] == done
    ready.decoder.close()
    ready.model.close()

"""A session as its events and its result tell it, for tests that need no smith."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kmint_tui.events import DraftFinished, Judged, Judging, MintEvent, Progress, Started
from kmint_tui.history.records import State
from kmint_tui.minting.drafts import MintDraft
from kmint_tui.minting.request import MintRequest
from kmint_tui.minting.result import MintResult
from kmint_tui.models.check import ModelFile
from kmint_tui.models.store import Choice
from kmint_tui.smith.prompts import Prompt
from kmint_tui.smith.sampling import Sampling
from referee.ops import get
from tests.save.test_host_code import GOOD
from tests.tui.filled import TIMING, verdict

WRONG = "cell 4x128_fp32: 12 of 512 elements are off by more than the budget"


def request(drafts: int = 4) -> MintRequest:
    """A request as `plan` would make it, for a model file that is never read."""
    file = ModelFile(
        path=Path("kmint-embedded-Q8_0.gguf"), nbytes=11 << 20, architecture="llama", name="embedded", parameters=11_000_000, layers=8,
        kv_layers=8, kv_heads=4, key_length=64, value_length=64, embedding=256, context=2048, vocabulary=4096, quant="Q8_0",
    )  # fmt: skip
    choice = Choice("embedded", file, None, "no larger smith is in the store")
    return MintRequest(
        get("softmax"), "softmax", choice, "0" * 64, Prompt("s", "u"), drafts, 7, Sampling(), 1024
    )


def running() -> Iterator[MintEvent]:
    """A session in the middle: one draft done, one judged badly, one being judged, one being
    written.
    """
    yield Started(12, request())
    for index in range(4):
        yield Progress(index, 90 + index, GOOD[:300])
    for index in range(3):
        yield DraftFinished(12, MintDraft(index, GOOD, 160 + index, 2.0, "stop", 70 + index, 0.7))
        yield Judging(index)
    yield Judged(
        12,
        0,
        verdict("win", "done", "1.216x the fastest baseline", mode="replay", timing=TIMING),
        True,
    )
    yield Judged(
        12,
        1,
        verdict(
            "rejected",
            "correct",
            WRONG,
        ),
        True,
    )


def result(state: State = "done", best: int | None = 0) -> MintResult:
    """The end of the session of `running`; the third draft was never judged."""
    drafts = tuple(
        MintDraft(index, GOOD, 160 + index, 2.0, "stop", 70 + index, 0.7) for index in range(3)
    )
    verdicts = {
        0: verdict("win", "done", "1.216x the fastest baseline", mode="replay", timing=TIMING),
        1: verdict("rejected", "correct", WRONG),
    }
    return MintResult(
        request=request(),
        session=12,
        state=state,
        drafts=drafts,
        verdicts=verdicts,
        ranking=(0, 1, 2),
        best=best,
        seconds=41.5,
    )

"""The states in which the screens are pictured: empty, filled, with long names, failing, busy."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import cast

from textual.pilot import Pilot
from textual.widgets import Select

from kmint_tui.app import KmintApp
from kmint_tui.events import DraftFinished, Judged, Judging, MintEvent, Progress, Started
from kmint_tui.minting.drafts import Draft
from kmint_tui.minting.request import MintRequest
from kmint_tui.models.check import ModelFile
from kmint_tui.models.store import Choice
from kmint_tui.screens.confirm import Confirm
from kmint_tui.screens.leave import Leave
from kmint_tui.screens.mint import MintScreen
from kmint_tui.screens.models import ModelsScreen
from kmint_tui.smith.prompts import Prompt
from kmint_tui.smith.sampling import Sampling
from kmint_tui.workbench.pulling import Pulled
from kmint_tui.workbench.run import Failure
from referee.ops import get
from tests.save.test_host_code import GOOD
from tests.tui.conftest import settle
from tests.tui.filled import TIMING, verdict

Scene = Callable[[Pilot[int]], Awaitable[None]]


def request(drafts: int = 4) -> MintRequest:
    """A request as `plan` would make it, for a model file that is never read."""
    file = ModelFile(
        path=Path("kmint-embedded-Q8_0.gguf"), nbytes=11 << 20, architecture="llama", name="embedded", parameters=11_000_000, layers=8,
        kv_layers=8, kv_heads=4, key_length=64, value_length=64, embedding=256, context=2048, vocabulary=4096, quant="Q8_0",
    )  # fmt: skip
    choice = Choice("embedded", file, None, "no larger smith is in the store")
    return MintRequest(get("softmax"), "softmax", choice, "0" * 64, Prompt("s", "u"), drafts, 7, Sampling(), 1024)


def running() -> Iterator[MintEvent]:
    """A session in the middle: one draft done, one judged badly, one being judged, one being written."""
    yield Started(12, request())
    for index in range(4):
        yield Progress(index, 90 + index, GOOD[:300])
    for index in range(3):
        yield DraftFinished(12, Draft(index, GOOD, 160 + index, 2.0, "stop", 70 + index, 0.7))
        yield Judging(index)
    yield Judged(12, 0, verdict("win", "done", "1.216x the fastest baseline", mode="replay", timing=TIMING), True)
    yield Judged(12, 1, verdict("rejected", "correct", "cell 4x128_fp32: 12 of 512 elements are off by more than the budget"), True)


def mint_screen(pilot: Pilot[int]) -> MintScreen:
    """The Mint screen, which is shown first."""
    return cast("MintScreen", pilot.app.screen)


async def nothing(pilot: Pilot[int]) -> None:
    await settle(pilot)


async def composing(pilot: Pilot[int]) -> None:
    await settle(pilot)
    screen = mint_screen(pilot)
    screen.query_one("#way", Select).value = "list"
    await pilot.pause()
    screen.query_one("#op").value = "norm silu"  # type: ignore[attr-defined]
    await pilot.pause()


async def minting(pilot: Pilot[int]) -> None:
    await settle(pilot)
    mint_screen(pilot).begin()
    mint_screen(pilot).follow(running())
    await pilot.pause()


async def failing(pilot: Pilot[int]) -> None:
    await minting(pilot)
    mint_screen(pilot).follow([Failure("the smith failed", "it was killed (SIGKILL)", "llama.cpp's own words are in smith-1.log")])
    await pilot.pause()


def mode(name: str) -> Scene:
    """The screen of a mode as it opens."""

    async def show(pilot: Pilot[int]) -> None:
        await settle(pilot)
        cast("KmintApp", pilot.app).action_show_mode(name)
        await settle(pilot)

    return show


def draft(identity: str) -> Scene:
    """The Draft screen with a draft of the filled history."""

    async def show(pilot: Pilot[int]) -> None:
        await settle(pilot)
        cast("KmintApp", pilot.app).open_draft(identity)
        await settle(pilot)

    return show


async def pulling(pilot: Pilot[int]) -> None:
    await mode("models")(pilot)
    screen = cast("ModelsScreen", pilot.app.screen)
    screen.post_message(ModelsScreen.PullSaid(Pulled("minicpm5-1b", 310_000_000, 780_000_000, 21e6)))
    await pilot.pause()


async def helping(pilot: Pilot[int]) -> None:
    await settle(pilot)
    await pilot.press("f1")
    await pilot.pause()


async def leaving(pilot: Pilot[int]) -> None:
    await settle(pilot)
    pilot.app.push_screen(Leave(ask=True))
    await pilot.pause()


async def deleting(pilot: Pilot[int]) -> None:
    await mode("history")(pilot)
    pilot.app.push_screen(Confirm("Delete session 3?", "Its drafts, their verdicts and their sources go with it.", "Delete"))
    await pilot.pause()


SCENES: dict[str, tuple[bool, Scene]] = {
    "mint-empty": (False, nothing),
    "mint-composing": (False, composing),
    "mint-running": (False, minting),
    "mint-failed": (False, failing),
    "draft-empty": (False, mode("draft")),
    "draft-win": (True, draft("1.1")),
    "draft-rejected-long": (True, draft("2.0")),
    "history-empty": (False, mode("history")),
    "history": (True, mode("history")),
    "history-delete": (True, deleting),
    "crowns": (False, mode("crowns")),
    "grid": (False, mode("grid")),
    "models": (False, mode("models")),
    "models-pulling": (False, pulling),
    "doctor": (False, mode("doctor")),
    "help": (False, helping),
    "leave": (False, leaving),
}
"""By name: whether the history is filled, and how to get there."""

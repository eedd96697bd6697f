"""The states in which the screens are pictured: empty, filled, with long names, failing, busy."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import cast

from textual.pilot import Pilot
from textual.widgets import Input, Select, TabbedContent

from kmint_tui.app import KmintApp
from kmint_tui.core.facts import Facts
from kmint_tui.core.grid_report import GridReport
from kmint_tui.core.grid_run import Places
from kmint_tui.core.pulling import Pulled
from kmint_tui.core.run import Ended, Failure
from kmint_tui.events import (
    CasesDone,
    DraftFinished,
    Finished,
    Judged,
    Judging,
    RoundStarted,
    Started,
    Stopping,
    Tuning,
)
from kmint_tui.minting.drafts import MintDraft
from kmint_tui.screens.confirm import Confirm
from kmint_tui.screens.grid import GridScreen
from kmint_tui.screens.leave import Leave
from kmint_tui.screens.mint import MintScreen
from kmint_tui.screens.models import ModelsScreen
from referee.grid import MATRIX_SHAPES
from tests.save.test_host_code import GOOD
from tests.tui.conftest import settle
from tests.tui.filled import (
    fill,
    fill_book,
    fill_crowns,
    fill_grid,
    fill_shapes,
    grid_points,
    timing,
    timing_by_shape,
    verdict,
)
from tests.tui.sessions import request, result, running

Scene = Callable[[Pilot[int]], Awaitable[None]]


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


async def shaped(pilot: Pilot[int]) -> None:
    """The form with shapes of any rows."""
    await settle(pilot)
    screen = mint_screen(pilot)
    screen.query_one("#shapes", Input).value = "Mx4096, 32768x1024"
    screen.query_one("#dtype", Select).value = "bf16"
    await pilot.pause()


async def misshaped(pilot: Pilot[int]) -> None:
    """The form with a text that is no shape."""
    await settle(pilot)
    mint_screen(pilot).query_one("#shapes", Input).value = "Mx0"
    await pilot.pause()


async def minted_at_shapes(pilot: Pilot[int]) -> None:
    """A draft that was timed at several shapes, under the cursor."""
    await minting(pilot)
    said = verdict("loss", "done", "slower", mode="replay", timing=timing_by_shape())
    mint_screen(pilot).follow([Judged(12, 0, said, True)])
    await pilot.pause()


async def minting(pilot: Pilot[int]) -> None:
    await settle(pilot)
    mint_screen(pilot).begin()
    mint_screen(pilot).follow(running())
    await pilot.pause()


async def finished(pilot: Pilot[int]) -> None:
    """A session that ended: the form stays folded, the best row and its code are visible."""
    await minting(pilot)
    mint_screen(pilot).follow([Finished(result()), Ended()])
    await pilot.pause()


async def cancelled(pilot: Pilot[int]) -> None:
    await minting(pilot)
    mint_screen(pilot).follow([Stopping(), Finished(result("stopped")), Ended()])
    await pilot.pause()


async def judging(pilot: Pilot[int]) -> None:
    """The referee's progress with the remaining time."""
    await settle(pilot)
    screen = mint_screen(pilot)
    screen.begin()
    seconds = iter((0.0, 10.0))
    screen.session.clock = lambda: next(seconds)
    screen.follow([Started(12, request(1))])
    screen.follow([DraftFinished(12, MintDraft(0, GOOD, 160, 2.0, "stop", 70, 0.7)), Judging(0)])
    screen.follow([CasesDone(0, 37, 111)])
    await pilot.pause()


async def zoomed(pilot: Pilot[int]) -> None:
    """The code fills the screen."""
    await finished(pilot)
    mint_screen(pilot).query_one("#code").focus()
    await pilot.pause()
    await pilot.press("z")
    await pilot.pause()


async def failing(pilot: Pilot[int]) -> None:
    await minting(pilot)
    mint_screen(pilot).follow(
        [
            Failure(
                "the smith failed",
                "it was killed (SIGKILL)",
                "llama.cpp's own words are in smith-1.log",
            )
        ]
    )
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


async def timed(pilot: Pilot[int]) -> None:
    await draft("1.1")(pilot)
    pilot.app.screen.query_one(TabbedContent).active = "tab-time"
    await settle(pilot)


async def timed_by_shape(pilot: Pilot[int]) -> None:
    await draft("4.0")(pilot)
    pilot.app.screen.query_one(TabbedContent).active = "tab-time"
    await settle(pilot)


async def booked(pilot: Pilot[int]) -> None:
    """The book with the cursor on its second operation."""
    await mode("book")(pilot)
    await pilot.press("j")
    await settle(pilot)


async def saving(pilot: Pilot[int]) -> None:
    """The folder for a kernel of the book is asked for."""
    await booked(pilot)
    await pilot.press("enter", "s")
    await settle(pilot)


async def compared(pilot: Pilot[int]) -> None:
    await draft("1.2")(pilot)
    await pilot.press("d")
    await pilot.pause()
    await pilot.press("enter")
    await settle(pilot)


async def losing(pilot: Pilot[int]) -> None:
    await mode("grid")(pilot)
    await pilot.press("n")
    await pilot.pause()


async def measuring(pilot: Pilot[int]) -> None:
    await mode("grid")(pilot)
    screen = cast("GridScreen", pilot.app.screen)
    screen._job = cast("KmintApp", pilot.app).jobs.begin("measuring the grid of 1.0")
    points = grid_points()
    screen.post_message(
        GridScreen.Began(
            GridReport("1.0", "softmax", "", ()), Places(MATRIX_SHAPES, ("float16", "bfloat16"))
        )
    )
    for point in points[:4]:
        screen.post_message(GridScreen.Measured(point))
    await settle(pilot)


async def busy(pilot: Pilot[int]) -> None:
    await minting(pilot)
    await settle(pilot)
    app = cast("KmintApp", pilot.app)
    app.facts = Facts(
        "minicpm5-1b", "25/25 layers on GPU", "H200 98.0 GiB free", None, "python3 (4242) 12.0 GiB"
    )
    app.show_facts()
    await pilot.pause()


async def repaired(pilot: Pilot[int]) -> None:
    """A second round and a tuned kernel."""
    await minting(pilot)
    screen = mint_screen(pilot)
    tuned = MintDraft(
        5, GOOD, 0, 3.0, "stop", 70, 0.7, parent=0, author="tuner", changes="BLOCK 1024 -> 2048"
    )
    screen.follow(
        [
            RoundStarted(1, {4: 1}),
            DraftFinished(12, MintDraft(4, GOOD, 140, 2.0, "stop", 75, 0.7, round=1, parent=1)),
            Judging(4),
        ]
    )
    screen.follow(
        [
            DraftFinished(12, tuned),
            Judged(12, 5, verdict("win", "done", "1.3x", mode="replay", timing=timing(38.5)), True),
        ]
    )
    screen.follow([Tuning(0)])
    await pilot.pause()


async def claiming(pilot: Pilot[int]) -> None:
    await mode("crowns")(pilot)
    await pilot.press("c")
    await pilot.pause()


async def commands(pilot: Pilot[int]) -> None:
    await draft("1.1")(pilot)
    await pilot.press("C")
    await pilot.pause()


async def refused(pilot: Pilot[int]) -> None:
    """A file that cannot be opened, with its message."""
    await mode("grid")(pilot)
    cast("GridScreen", pilot.app.screen).open_file(
        "a/very/long/path/that/" + "leads/nowhere/" * 6 + "grid.json"
    )
    await pilot.pause()


async def pulling(pilot: Pilot[int]) -> None:
    await mode("models")(pilot)
    screen = cast("ModelsScreen", pilot.app.screen)
    screen.post_message(
        ModelsScreen.PullSaid(Pulled("minicpm5-1b", 310_000_000, 780_000_000, 21e6))
    )
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
    pilot.app.push_screen(
        Confirm(
            "Delete session 3?",
            "Its drafts, their verdicts and their sources go with it.",
            "Delete",
        )
    )
    await pilot.pause()


def crowned() -> None:
    """A filled history with crowns."""
    fill()
    fill_crowns()


def gridded() -> None:
    """A filled history with a grid."""
    fill()
    fill_grid()


def by_shape() -> None:
    """A filled history with a session at several shapes."""
    fill()
    fill_shapes()


def empty() -> None:
    """Nothing was ever minted."""


SCENES: dict[str, tuple[Callable[[], None], Scene]] = {
    "mint-empty": (empty, nothing),
    "mint-start": (fill, nothing),
    "mint-composing": (empty, composing),
    "mint-shapes": (empty, shaped),
    "mint-wrong-shape": (empty, misshaped),
    "mint-at-shapes": (empty, minted_at_shapes),
    "mint-judging": (empty, judging),
    "mint-finished": (empty, finished),
    "mint-cancelled": (empty, cancelled),
    "mint-zoomed": (empty, zoomed),
    "mint-running": (empty, minting),
    "mint-repaired-tuned": (empty, repaired),
    "mint-failed": (empty, failing),
    "mint-gpu-busy": (empty, busy),
    "draft-empty": (empty, mode("draft")),
    "draft-win": (fill, draft("1.1")),
    "draft-times": (fill, timed),
    "draft-shapes": (by_shape, timed_by_shape),
    "draft-diff": (fill, compared),
    "draft-rejected-long": (fill, draft("2.0")),
    "history-empty": (empty, mode("history")),
    "history": (fill, mode("history")),
    "history-delete": (fill, deleting),
    "crowns-empty": (empty, mode("crowns")),
    "crowns": (crowned, mode("crowns")),
    "crowns-claim": (crowned, claiming),
    "grid-empty": (empty, mode("grid")),
    "grid": (gridded, losing),
    "grid-measuring": (gridded, measuring),
    "grid-error": (empty, refused),
    "book-empty": (empty, mode("book")),
    "book": (fill_book, booked),
    "book-save": (fill_book, saving),
    "models": (empty, mode("models")),
    "models-pulling": (empty, pulling),
    "doctor": (empty, mode("doctor")),
    "help": (empty, helping),
    "commands": (fill, commands),
    "leave": (empty, leaving),
}
"""By name: what the history holds, and how to get there."""

MAIN = ("mint-running", "draft-win", "history", "crowns", "grid", "book", "models", "doctor")
"""The scenes that are pictured in high contrast too."""
WIDE = (
    "mint-start",
    "mint-running",
    "mint-finished",
    "draft-win",
    "draft-diff",
    "draft-shapes",
    "crowns",
    "book",
)
"""The scenes that are pictured on a terminal of 200 columns too."""
WITH_MESSAGES = ("grid-error",)
"""The scenes in which messages are shown; in the others they are cleared away."""

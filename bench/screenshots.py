"""Pictures of the main screens for the README, taken from the real application at work.

    python bench/screenshots.py docs/screenshots [--op add_rmsnorm_silu --drafts 8 --seed 1]
                                [--grid REPORT.json]

The installed smith drafts and the referee judges, in a separate history, so the script takes as
long as a session. On a machine with a GPU the pictures show times, and the winner claims its crown.
`--grid` shows a grid that was measured before (`kmint grid ID --json`). Pictures are SVG, each
below 100 kB.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

SIZE = (120, 36)


def slim(picture: str) -> str:
    """The same picture with short names and without a clip for every line, which no shown text
    needs: half the size.
    """
    picture = re.sub(r"\bterminal-\d+-", "t-", picture).replace(' shape-rendering="crispEdges"', "")
    picture = picture.replace("</style>", "rect { shape-rendering: crispEdges }</style>", 1)
    picture = re.sub(r' clip-path="url\(#[^"]*-line-\d+\)"', "", picture)
    # A viewer would fetch the font from the network; every viewer's system has a font of even
    # width.
    picture = re.sub(r"@font-face \{[^}]*\}\s*", "", picture)
    return re.sub(r'<clipPath id="[^"]*-line-\d+">\s*<rect [^>]*/>\s*</clipPath>\s*', "", picture)


async def take(
    folder: Path, op: str, drafts: int, seed: int, theme: str, grid: Path | None
) -> list[Path]:
    """Mint, and picture every screen on the way."""
    from textual.widgets import Input, TabbedContent

    from kmint_tui.app import KmintApp
    from kmint_tui.screens.grid import GridScreen
    from kmint_tui.screens.mint import MintScreen
    from kmint_tui.widgets.composer import Composer
    from referee.ops import get

    app = KmintApp()
    app.theme = theme
    taken: list[Path] = []

    def picture(name: str) -> None:
        path = folder / f"{name}.svg"
        path.write_text(slim(app.export_screenshot()), encoding="utf-8")
        taken.append(path)

    async with app.run_test(size=SIZE) as pilot:

        async def calm() -> None:
            for _ in range(2):
                await app.workers.wait_for_complete()
                await pilot.pause()
            app.clear_notifications()
            await pilot.pause()

        await calm()
        screen = app.screen
        assert isinstance(screen, MintScreen)
        screen.query_one(Composer).ask_for(get(op), drafts)
        screen.query_one("#seed", Input).value = str(seed)
        await pilot.pause()
        await pilot.press("f5")
        while (
            app.run_now is not None
            and sum(row.tokens for row in screen.session.drafts.values()) < 60 * drafts
        ):
            await pilot.pause(0.1)
        picture("mint-writing")
        while app.run_now is not None:
            await pilot.pause(0.1)
        await calm()
        picture("mint")
        if screen.session.best is None:
            raise SystemExit("no kernel passed; try another --seed")
        await pilot.press("b", "enter")
        await calm()
        picture("draft")
        best = screen.session.drafts[screen.session.best]
        if best.microseconds is not None:
            app.screen.query_one(TabbedContent).active = "tab-time"
            await calm()
            picture("times")
        if best.verdict is not None and best.verdict.verdict == "win":
            await pilot.press("c")
            await calm()
            await pilot.press("y")
            await calm()
            picture("crowns")
        if grid is not None:
            app.action_show_mode("grid")
            await calm()
            assert isinstance(app.screen, GridScreen)
            app.screen.open_file(str(grid))
            await pilot.press("n")
            await calm()
            picture("grid")
        for mode in ("history", "models"):
            app.action_show_mode(mode)
            await calm()
            picture(mode)
        await pilot.press("f1")
        await pilot.pause()
        picture("help")
    app.engine.close()
    return taken


def main() -> None:
    options = argparse.ArgumentParser(description="Pictures of the main screens.")
    options.add_argument("folder", type=Path)
    options.add_argument("--op", default="add_rmsnorm_silu")
    options.add_argument("--drafts", type=int, default=8)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--theme", default="kmint-dark")
    options.add_argument("--grid", type=Path, help="a grid report to picture")
    arguments = options.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    before = Path.cwd()
    folder, grid = arguments.folder.resolve(), arguments.grid.resolve() if arguments.grid else None
    with tempfile.TemporaryDirectory() as home:
        # A short relative folder, so that no path of this machine gets into a picture.
        os.chdir(home)
        os.environ["KMINT_HOME"] = "kmint"
        try:
            taken = asyncio.run(
                take(folder, arguments.op, arguments.drafts, arguments.seed, arguments.theme, grid)
            )
        finally:
            os.chdir(before)
    for path in taken:
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()

"""Pictures of the main screens for the README, taken from the real application at work.

    python bench/screenshots.py FOLDER [--op rmsnorm --drafts 8 --seed 1]

Drafts with the smith that is here and has the referee judge, in a history of its own, so it takes as long as a session.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
from pathlib import Path

SIZE = (120, 36)


async def take(folder: Path, op: str, drafts: int, seed: int, theme: str) -> list[Path]:
    """Mint, and picture every screen on the way."""
    from textual.widgets import Input

    from kmint_tui.app import KmintApp
    from kmint_tui.screens.mint import MintScreen
    from kmint_tui.widgets.composer import Composer
    from referee.ops import get

    app = KmintApp()
    app.theme = theme
    taken: list[Path] = []

    def picture(name: str) -> None:
        taken.append(Path(app.save_screenshot(f"{name}.svg", path=str(folder))))

    async with app.run_test(size=SIZE) as pilot:

        async def calm() -> None:
            await app.workers.wait_for_complete()
            await pilot.pause()

        await calm()
        screen = app.screen
        assert isinstance(screen, MintScreen)
        screen.query_one(Composer).ask_for(get(op), drafts)
        screen.query_one("#seed", Input).value = str(seed)
        await pilot.pause()
        await pilot.press("f5")
        while app.run_now is not None and sum(row.tokens for row in screen.session.drafts.values()) < 60 * drafts:
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
        for mode in ("history", "models", "doctor"):
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
    options.add_argument("--op", default="rmsnorm")
    options.add_argument("--drafts", type=int, default=8)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--theme", default="kmint-dark")
    arguments = options.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    before = Path.cwd()
    folder = arguments.folder.resolve()
    with tempfile.TemporaryDirectory() as home:
        # A short relative folder, so that no path of this machine gets into a picture.
        os.chdir(home)
        os.environ["KMINT_HOME"] = "kmint"
        try:
            taken = asyncio.run(take(folder, arguments.op, arguments.drafts, arguments.seed, arguments.theme))
        finally:
            os.chdir(before)
    for path in taken:
        print(path)


if __name__ == "__main__":
    main()

"""How long a key press waits while 16 drafts stream at full speed: median and 95th percentile.

    python bench/tui_latency.py [--drafts 16] [--keys 200] [--json FILE]

The real application and the real mint loop run headless; a stand-in for the smith writes tokens at
a fast GPU's rate, and the referee is not asked, so that only the interface is measured. A key
counts as handled when its action has run and the screen was laid out and drawn again. On a machine
that others use, the work in the interface's own thread says what a free core would need.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

TARGET_MILLISECONDS = 50.0
TOKENS_A_SECOND = 2400
"""16 drafts at 150 tokens a second each: a 1B model on a fast GPU."""
PIECES = (
    "    x = tl.load(x_ptr + row * N + cols, ",
    "mask=cols < N, other=0.0)",
    ".to(tl.float32)\n",
    "    # a comment\n",
)


class Writer:
    """Writes progress events for all drafts from a thread, at a steady rate."""

    def __init__(self, drafts: int) -> None:
        self.drafts = drafts
        self.tokens = 0
        self._over = threading.Event()

    def stop(self) -> None:
        self._over.set()

    def events(self) -> Iterator[tuple[int, str]]:
        began = time.perf_counter()
        while not self._over.is_set():
            for index in range(self.drafts):
                self.tokens += 1
                yield index, PIECES[self.tokens // self.drafts % len(PIECES)]
            ahead = self.tokens / TOKENS_A_SECOND - (time.perf_counter() - began)
            if ahead > 0:
                self._over.wait(ahead)


async def measure(drafts: int, keys: int) -> tuple[list[tuple[float, float]], int]:
    """Milliseconds of each key press (by the clock, and of work in the interface's thread), and the
    tokens written meanwhile.
    """
    from kmint_tui.app import KmintApp
    from kmint_tui.core.planning import MintOptions
    from kmint_tui.core.run import MintRun
    from kmint_tui.events import Progress, Started
    from kmint_tui.screens.messages import RunReady
    from kmint_tui.screens.mint import MintScreen
    from tests.tui.sessions import request

    app = KmintApp()
    times: list[tuple[float, float]] = []
    async with app.run_test(size=(120, 36)) as pilot:
        await app.workers.wait_for_complete()
        await pilot.pause()
        screen = app.screen
        assert isinstance(screen, MintScreen)
        wishes = MintOptions(op="softmax", drafts=drafts, seed=1)
        run = MintRun(wishes, app.engine, lambda: screen.post_message(RunReady()))
        writer = Writer(drafts)
        screen.attach(run)
        run.put(Started(1, request(drafts)))

        def write() -> None:
            written = [0] * drafts
            for index, text in writer.events():
                written[index] += 1
                run.put(Progress(index, written[index], text if written[index] < 400 else ""))

        thread = threading.Thread(target=write, daemon=True)
        thread.start()
        try:
            await asyncio.sleep(0.5)
            for number in range(keys):
                key = ("j", "k", "down", "up", "pagedown", "pageup")[number % 6]
                began, worked = time.perf_counter(), time.thread_time()
                await press(app, key)
                times.append(
                    ((time.perf_counter() - began) * 1000, (time.thread_time() - worked) * 1000)
                )
                await asyncio.sleep(0.013)
        finally:
            writer.stop()
            thread.join()
            app.run_now = None
    return times, writer.tokens


async def press(app: object, key: str) -> None:
    """Send a key as the terminal's driver does, and wait until all that it set off is handled."""
    from textual import events
    from textual.app import App

    assert isinstance(app, App)
    handled = asyncio.Event()
    event = events.Key(key, key if len(key) == 1 else None)
    event.set_sender(app)
    app._driver.send_message(event)  # type: ignore[union-attr]
    app.screen.call_later(lambda: app.screen.call_after_refresh(handled.set))
    await handled.wait()


def main() -> None:
    options = argparse.ArgumentParser(description="Latency of key presses while drafts stream.")
    options.add_argument("--drafts", type=int, default=16)
    options.add_argument("--keys", type=int, default=200)
    options.add_argument("--json", type=Path)
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ["KMINT_HOME"] = home
        began = time.perf_counter()
        times, tokens = asyncio.run(measure(arguments.drafts, arguments.keys))
        seconds = time.perf_counter() - began
    waited, worked = [wait for wait, _ in times], [work for _, work in times]
    median, high = statistics.median(waited), statistics.quantiles(waited, n=20)[-1]
    print(
        f"key latency: median {median:.1f} ms, 95th percentile {high:.1f} ms, worst {max(waited):.1f} ms"
    )
    work_high = statistics.quantiles(worked, n=20)[-1]
    print(
        f"of it work in the interface's thread: median {statistics.median(worked):.1f} ms, 95th percentile {work_high:.1f} ms"
    )
    print(
        f"{arguments.drafts} drafts, {tokens} tokens in {seconds:.1f} s, {len(times)} keys, load {os.getloadavg()[0]:.1f}"
    )
    print(
        "within the target"
        if high <= TARGET_MILLISECONDS
        else f"above the target of {TARGET_MILLISECONDS:g} ms"
    )
    if arguments.json:
        record = {
            "median_ms": median,
            "p95_ms": high,
            "worst_ms": max(waited),
            "work_p95_ms": work_high,
        }
        record |= {"tokens": tokens, "drafts": arguments.drafts}
        machine = {
            "cores": len(os.sched_getaffinity(0)),
            "load": os.getloadavg()[0],
            "python": platform.python_version(),
        }
        arguments.json.write_text(json.dumps({**record, **machine}, indent=2) + "\n")


if __name__ == "__main__":
    main()

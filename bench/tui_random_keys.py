"""Random key sequences through the whole application: no exception, no screen without a way back, no work that does not end.

    python bench/tui_random_keys.py [--sequences 500] [--length 30] [--first 0]

Each sequence starts the application on a filled history, at one of four sizes and three themes, presses keys drawn from a seed,
and must then find its way back to a screen with escape and from there to two others, drawn too. The tests run the first ones of them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


async def main_async(first: int, sequences: int, length: int) -> int:
    """Run them; returns how many failed."""
    from tests.tui.random_keys import one_sequence

    failed = 0
    began = time.perf_counter()
    for seed in range(first, first + sequences):
        with tempfile.TemporaryDirectory() as home:
            os.environ["KMINT_HOME"] = home
            try:
                await one_sequence(seed, length)
            except Exception:
                failed += 1
                print(f"seed {seed}:")
                traceback.print_exc()
        if (seed - first + 1) % 50 == 0:
            print(f"{seed - first + 1} of {sequences}, {failed} failed, {time.perf_counter() - began:.0f} s", flush=True)
    print(f"{sequences} sequences of {length} keys, {failed} failed, {time.perf_counter() - began:.0f} s")
    return failed


def main() -> None:
    options = argparse.ArgumentParser(description="Random key sequences through the interface.")
    options.add_argument("--sequences", type=int, default=500)
    options.add_argument("--length", type=int, default=30)
    options.add_argument("--first", type=int, default=0)
    arguments = options.parse_args()
    # Nothing may be fetched, and a session that is started by chance finds no model to wait for.
    os.environ["KMINT_OFFLINE"] = "1"
    with patch("kmint_tui.models.store.installed", lambda entry: None):
        raise SystemExit(bool(asyncio.run(main_async(arguments.first, arguments.sequences, arguments.length))))


if __name__ == "__main__":
    main()

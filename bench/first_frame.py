"""Time of `kmint` from its start to the first full frame on the terminal: the median of N starts on
a pseudo-terminal.

    python bench/first_frame.py [--starts 11] [--json FILE]

A start is a new process. It counts as shown when the bar of screens and the line of keys have both
been drawn.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import platform
import pty
import select
import signal
import statistics
import struct
import sys
import tempfile
import termios
import time
from pathlib import Path

SIZE = (24, 80)
SIGNS = (b"Doctor", b"Palette")
LIMIT_SECONDS = 30.0
TARGET_SECONDS = 1.0


def first_frame(home: str) -> float:
    """Seconds from the start of the process to the first full frame."""
    environment = {
        **os.environ,
        "KMINT_HOME": home,
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
    }
    began = time.perf_counter()
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(sys.executable, [sys.executable, "-m", "kmint_tui"], environment)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", *SIZE, 0, 0))
    seen = b""
    try:
        while not all(sign in seen for sign in SIGNS):
            left = began + LIMIT_SECONDS - time.perf_counter()
            if left <= 0 or not select.select([terminal], [], [], left)[0]:
                raise TimeoutError(f"no full frame within {LIMIT_SECONDS:g} s: {seen[-200:]!r}")
            seen += os.read(terminal, 1 << 16)
        return time.perf_counter() - began
    finally:
        os.kill(pid, signal.SIGKILL)
        os.close(terminal)
        os.waitpid(pid, 0)


def main() -> None:
    options = argparse.ArgumentParser(
        description="Time from the start of kmint to its first frame."
    )
    options.add_argument("--starts", type=int, default=11)
    options.add_argument("--json", type=Path)
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory() as home:
        first_frame(home)
        times = [first_frame(home) for _ in range(arguments.starts)]
    median = statistics.median(times)
    print(
        f"first frame: median {median * 1000:.0f} ms, best {min(times) * 1000:.0f} ms, worst {max(times) * 1000:.0f} ms"
    )
    print(
        f"{len(times)} starts, {len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}"
    )
    print(
        "within the target"
        if median <= TARGET_SECONDS
        else f"above the target of {TARGET_SECONDS:g} s"
    )
    if arguments.json:
        record = {"median": median, "times": times}
        machine = {
            "load": os.getloadavg()[0],
            "cores": len(os.sched_getaffinity(0)),
            "python": platform.python_version(),
        }
        arguments.json.write_text(json.dumps({**record, **machine}, indent=2) + "\n")


if __name__ == "__main__":
    main()

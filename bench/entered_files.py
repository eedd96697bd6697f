"""Counts the files of kmint whose functions one command enters in the parent process.

    python bench/entered_files.py judge softmax.py --op softmax
    python bench/entered_files.py mint softmax --save /tmp/kernels

The count is a measure of how many files a reader must open to follow a command. A profile function
of every thread sees the calls. Module bodies and class bodies do not count, nor do comprehensions in
them. Children are not seen.
The files, with the functions entered in each, go to stderr with `--list` before the command.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
from collections import defaultdict
from pathlib import Path
from types import CodeType, FrameType

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("kmint_tui", "referee", "convert")
TARGETS = {"judge": 50, "mint": 90}
"""Maximum number of files for a command."""

_COMPREHENSIONS = {"<dictcomp>", "<genexpr>", "<listcomp>", "<setcomp>"}

_entered: set[CodeType] = set()


def _profile(frame: FrameType, event: str, argument: object) -> None:
    if event == "call":
        _entered.add(frame.f_code)


def entered() -> dict[str, list[str]]:
    """The files of kmint relative to the root, each with its entered functions, both sorted."""
    found: dict[str, set[str]] = defaultdict(set)
    for code in tuple(_entered):
        path = Path(code.co_filename)
        is_function = (
            code.co_flags & inspect.CO_OPTIMIZED and code.co_qualname not in _COMPREHENSIONS
        )
        if not is_function or not path.is_relative_to(ROOT):
            continue
        name = path.relative_to(ROOT)
        if name.parts[0] in PACKAGES:
            found[str(name)].add(code.co_qualname)
    return {name: sorted(found[name]) for name in sorted(found)}


def main(arguments: list[str]) -> int:
    """Run one command of kmint and print the number of files; 1 where it is over its target."""
    listed = arguments[:1] == ["--list"]
    command = arguments[listed:]
    sys.path.insert(0, str(ROOT))
    threading.setprofile(_profile)
    sys.setprofile(_profile)
    from kmint_tui.cli.main import main as kmint

    try:
        kmint(command)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    files = entered()
    for name, functions in files.items() if listed else ():
        print(f"{name}: {', '.join(functions)}", file=sys.stderr)
    most = TARGETS.get(command[0])
    target = f", target {most}" if most else ""
    print(f"kmint {command[0]} enters functions of {len(files)} files{target}", file=sys.stderr)
    sys.stderr.flush()
    # The judges' threads may still run, as after Ctrl-C; nothing waits for them.
    os._exit(1 if most and len(files) > most else 0)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Kills writing commands with SIGKILL at random moments: nothing is lost, and nothing is left after
the next start.

    python bench/kill_commands.py [--kills 20] [--only NAME ...] [--seed N] [--json FILE]

Half of the kills come after a random part of the command's time, half before a random one of its
changes to a file. After each, `kmint path` is the next start, and the command is run again. Exit
code 0 when all of that held.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.kill_judge import adopting, descendants  # noqa: E402
from bench.killed_commands import OPERATIONS, Operation  # noqa: E402

SCHEMA = "kmint.bench.kill_commands/1"
END_SECONDS = 60.0
# Counts the changes to files below a folder, ends the process before the n-th of them, and tells
# how many there were.
STEPS = """
import os, signal, sys
folder, left, count, seen_file = sys.argv[1], int(sys.argv[2]), 0, sys.argv[3]
def seen(event, arguments):
    global count
    if event == "open":
        flags = arguments[2]
        if not (isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
            return
    changes = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "sqlite3.connect")
    if event == "open" or event in changes:
        if str(arguments[0]).startswith(folder):
            count += 1
            if count == left:
                os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(seen)
from kmint_tui.cli.main import main
code = main(sys.argv[4:])
if not left:
    print(count, file=open(seen_file, "w"))
sys.exit(code)
"""


@dataclass
class Tally:
    """The results of one operation's kills. `wrong` must stay empty."""

    operation: str
    kills: int = 0
    ended_before: int = 0
    seconds: float = 0.0
    swept: int = 0
    wrong: list[str] = field(default_factory=list)


def kmint(root: Path, *command: str) -> subprocess.Popen[bytes]:
    """A process with the folder's home and temporary folder. Its words go to a file."""
    environment = {
        **os.environ,
        "KMINT_HOME": str(root / "home"),
        "TMPDIR": str(root / "tmp"),
        "PYTHONPATH": str(ROOT),
    }
    with (root.parent / f"{root.name}.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
        )


def ended(root: Path, *arguments: str) -> int:
    """The exit code of a `kmint` command that runs to its end."""
    return kmint(root, "-m", "kmint_tui", *arguments).wait()


def left_in(root: Path) -> list[str]:
    """Everything temporary below a folder."""
    odd = (".kmint-tmp-", ".unpack-", ".partial", ".part", ".unproven", ".intermediate")
    found = [path for path in root.rglob("*") if any(word in path.name for word in odd)]
    return sorted({str(path.relative_to(root)) for path in (*found, *(root / "tmp").iterdir())})


def run(
    operation: Operation, kills: int, *, seed: int, folder: Path, by_time: bool = True
) -> Tally:
    """Kill `operation` `kills` times, each time on a fresh copy of its folder."""
    chance, tally, whole = (
        random.Random(f"{seed} {operation.name}"),
        Tally(operation.name),
        folder / "whole",
    )
    for name in ("home", "work", "out", "tmp"):
        (whole / name).mkdir(parents=True)
    operation.prepare(whole)
    root, count = folder / "root", folder / "count"
    _reset(whole, root)
    started = time.monotonic()
    others = frozenset(descendants())
    code = kmint(root, "-c", STEPS, str(root), "0", str(count), *operation.arguments(root)).wait()
    tally.seconds = round(time.monotonic() - started, 2)
    if code != 0 or operation.lost(root, True):
        said = (folder / "root.log").read_text(errors="replace")
        tally.wrong.append(
            f"undisturbed: status {code}, {operation.lost(root, True)}, {said[-500:]}"
        )
        return tally
    steps = int(count.read_text())
    for number in range(kills):
        _reset(whole, root)
        moment = (
            chance.uniform(0.0, tally.seconds)
            if by_time and number % 2
            else chance.randint(1, steps)
        )
        tally.kills += 1
        tally.ended_before += not _killed(operation, root, count, moment)
        tally.swept += bool(left_in(root))
        problems = [_orphans(others), operation.lost(root, False), _changed(whole, root)]
        problems += ["the next start fails"] if ended(root, "path") != 0 else []
        problems += [f"left after the next start: {name}" for name in left_in(root)]
        problems += (
            ["it does not work again"] if ended(root, *operation.arguments(root)) != 0 else []
        )
        problems += [operation.lost(root, True)]
        tally.wrong += [f"killed at {moment}: {problem}" for problem in problems if problem]
    return tally


def _reset(whole: Path, root: Path) -> None:
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(whole, root)


def _killed(operation: Operation, root: Path, count: Path, moment: float) -> bool:
    """Kill it after `moment` seconds, or before that change if it is an int; False: it had ended."""
    if isinstance(moment, int):
        process = kmint(
            root, "-c", STEPS, str(root), str(moment), str(count), *operation.arguments(root)
        )
        return process.wait() == -signal.SIGKILL
    process = kmint(root, "-m", "kmint_tui", *operation.arguments(root))
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(moment)
    process.kill()
    return process.wait() == -signal.SIGKILL


def _orphans(others: frozenset[int]) -> str:
    """Waits for the processes that the killed process started; they must end without help.

    `others` are children of this process that have nothing to do with it.
    """
    deadline = time.monotonic() + END_SECONDS
    while left := set(descendants()) - others:
        for pid in left:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        if time.monotonic() > deadline:
            return f"{len(left)} processes are left"
        time.sleep(0.05)
    return ""


def _changed(whole: Path, root: Path) -> str:
    """The files that the command only reads must stay as they were."""

    def content(place: Path) -> dict[str, bytes]:
        return {
            str(path.relative_to(place)): path.read_bytes()
            for path in place.rglob("*")
            if path.is_file()
        }

    return "" if content(whole / "work") == content(root / "work") else "its input has changed"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it, print a line for each operation, and write the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=20)
    names = [operation.name for operation in OPERATIONS]
    parser.add_argument(
        "--only",
        nargs="+",
        choices=names,
        default=names,
        metavar="NAME",
        help=f"of {', '.join(names)}",
    )
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--json", type=Path, default=None)
    given = parser.parse_args(arguments)
    tallies: list[Tally] = []
    for operation in OPERATIONS:
        if operation.name not in given.only:
            continue
        if operation.name == "gate" and (why := _no_gpu()):
            print(f"gate: not run: {why}")
            continue
        with tempfile.TemporaryDirectory() as folder, adopting():
            tally = run(operation, given.kills, seed=given.seed, folder=Path(folder))
        tallies.append(tally)
        print(
            f"{tally.operation}: {tally.kills} kills within {tally.seconds} s"
            f" ({tally.ended_before} came too late), "
            f"{tally.swept} left something to sweep, {len(tally.wrong)} wrong",
            flush=True,
        )
        for line in tally.wrong:
            print(f"  {line}")
    holds = bool(tallies) and not any(tally.wrong for tally in tallies)
    print("holds" if holds else "DOES NOT HOLD")
    if given.json:
        machine = {"cores": len(os.sched_getaffinity(0)), "python": platform.python_version()}
        operations = [asdict(one) for one in tallies]
        document = {
            "schema": SCHEMA,
            "seed": given.seed,
            "holds": holds,
            "machine": machine,
            "operations": operations,
        }
        given.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0 if holds else 1


def _no_gpu() -> str | None:
    from referee.gpu.replayer import Replayer

    return Replayer.available()


if __name__ == "__main__":
    sys.exit(main())

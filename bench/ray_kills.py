"""Judgements on a Ray cluster of two raylets on this machine, while workers and the driver die.

    python bench/ray_kills.py [--judgements 200] [--every 10] [--json FILE]

A worker that judges is killed with SIGKILL every `--every` seconds, if a verdict came since the
last kill. A busy machine may need longer than that to start a worker. The driver is killed once,
when a third of the verdicts is in the history. The same command then goes on. Exit code 0 when all of
this holds:

- No verdict is lost, none is wrong, and no kernel is twice in the history.
- Verdicts from before the driver's death are unchanged.
- A cluster with another Triton on one host is refused with code 3, and both versions are named.

It needs the package `ray[default]`, and no GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

SCHEMA = "kmint.bench.ray_kills/1"
SESSION = "ray kills"
END_SECONDS = 60.0
REFERENCE = """
def shifted(x):
    return x * 2 + 1
"""
KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def _kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other={number}.0)
    tl.store(y_ptr + at, x * 2.0 + {shift}, mask=at < n)


def run(x):
    y = torch.empty_like(x)
    n = x.numel()
    _kernel[(triton.cdiv(n, 64),)](x, y, n, BLOCK=64)
    return y
"""
OTHER_TRITON = '__version__ = "3.6.99"\n'
WRONG_EVERY = 4


@dataclass
class Tally:
    """The results. `lost`, `wrong`, `twice` and `changed` must stay empty."""

    judgements: int
    raylets: int = 2
    seconds: float = 0.0
    kills: int = 0
    driver_kills: int = 0
    before: int = 0
    lost: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    versions: str = ""

    @property
    def holds(self) -> bool:
        """Whether everything held."""
        bad = self.lost or self.wrong or self.twice or self.changed
        named = "3.6.99" in self.versions
        return not bad and self.driver_kills == 1 and self.kills > 0 and named


def kernels(folder: Path, count: int) -> list[Path]:
    """Files of kernels that all differ; every fourth is wrong."""
    (folder / "reference.py").write_text(REFERENCE, encoding="utf-8")
    files = []
    for number in range(count):
        shift = "1.5" if number % WRONG_EVERY == 0 else "1.0"
        file = folder / f"kernel_{number:04}.py"
        file.write_text(KERNEL.format(number=number, shift=shift), encoding="utf-8")
        files.append(file)
    return files


def command(folder: Path, files: Sequence[Path], address: str) -> list[str]:
    """The command that is killed and started again."""
    reference = [f"--reference={folder}/reference.py:shifted", "--input", "x=f32[4,8]"]
    end = ["--ray", address, "--keep", SESSION, "--json"]
    return [sys.executable, "-m", "kmint_tui", "judge", *map(str, files), *reference, *end]


class Raylets:
    """A head and further raylets on this machine, with all their files in one short folder."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="kr-", dir="/tmp"))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"127.0.0.1:{port}"
        head = ("--head", f"--port={port}", f"--temp-dir={self.folder}")
        try:
            self._start(*head, "--include-dashboard=false")
        except BaseException:
            self.close()
            raise

    def join(self, **environment: str) -> None:
        """Start one more raylet."""
        self._start(f"--address={self.address}", **environment)

    def _start(self, *options: str, **environment: str) -> None:
        words = ["start", "--num-cpus=1", "--object-store-memory=80000000", *options]
        ours = {
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_raylet_start_wait_time_s": "300",
            "RAY_worker_register_timeout_seconds": "600",
            "RAY_worker_niceness": "0",
        }
        started = subprocess.run(
            [sys.executable, "-m", "ray.scripts.scripts", *words],
            env={**os.environ, **ours, **environment},
            capture_output=True,
            text=True,
        )
        if started.returncode:
            raise SystemExit(f"ray start: {(started.stdout + started.stderr)[-2000:]}")

    def processes(self, title: str = "") -> list[int]:
        """The ids of this cluster's processes; `title` is the begin of a worker's title."""
        own = [pid for pid, text in _commands() if str(self.folder) in text]
        if not title:
            return own
        return [pid for pid, text in _commands() if text.startswith(title) and _parent(pid) in own]

    def close(self) -> None:
        """End every process of the cluster."""
        until = time.monotonic() + END_SECONDS
        while (left := self.processes()) and time.monotonic() < until:
            for pid in left:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.2)
        shutil.rmtree(self.folder, ignore_errors=True)


def _commands() -> Iterator[tuple[int, str]]:
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            with contextlib.suppress(OSError):
                text = (place / "cmdline").read_bytes().replace(b"\0", b" ")
                yield int(place.name), text.decode("utf-8", "replace")


def _parent(pid: int) -> int:
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def stored(home: Path) -> list[tuple[str, str, str]]:
    """Digest, outcome and verdict of every judged draft in the history."""
    file = home / "data" / "history.db"
    if not file.exists():
        return []
    with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as opened:
        query = "SELECT source_sha256, outcome, verdict FROM drafts WHERE verdict IS NOT NULL"
        return list(opened.execute(query))


def run(judgements: int, every: float, seed: int) -> Tally:
    """The whole exam."""
    tally, chance, over = Tally(judgements), random.Random(seed), threading.Event()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        home = folder / "home"
        environment = {**os.environ, "KMINT_HOME": str(home)}
        files = kernels(folder, judgements)
        os.environ["KMINT_HOME"] = str(home)
        raylets = Raylets()
        try:
            raylets.join()

            def kill() -> None:
                seen = -1
                while not over.wait(every):
                    victims, done = raylets.processes("ray::do"), len(stored(home))
                    if victims and done > seen:
                        seen = done
                        with contextlib.suppress(OSError):
                            os.kill(chance.choice(victims), signal.SIGKILL)
                            tally.kills += 1

            killer = threading.Thread(target=kill)
            killer.start()
            try:
                words = command(folder, files, raylets.address)
                before = _killed_driver(words, environment, home, judgements // 3)
                tally.driver_kills, tally.before = 1, len(before)
                ended = subprocess.run(words, env=environment, capture_output=True, text=True)
            finally:
                over.set()
                killer.join()
            _check(tally, home, files, before, ended)
            tally.seconds = round(time.monotonic() - began, 1)
            tally.versions = _other_triton(raylets, folder, words, environment)
        finally:
            raylets.close()
    return tally


def _killed_driver(
    words: Sequence[str], environment: dict[str, str], home: Path, enough: int
) -> list[tuple[str, str, str]]:
    """Start the command and kill it once `enough` verdicts are stored; returns the stored rows."""
    with subprocess.Popen(
        words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as driver:
        assert driver.stderr is not None
        said = ""
        for line in driver.stderr:
            said += line
            if len(stored(home)) >= enough:
                driver.kill()
                return stored(home)
    raise SystemExit(f"the driver ended by itself: {said[-2000:]}")


def _check(
    tally: Tally,
    home: Path,
    files: Sequence[Path],
    before: list[tuple[str, str, str]],
    ended: subprocess.CompletedProcess[str],
) -> None:
    after = stored(home)
    known = {digest: (outcome, verdict) for digest, outcome, verdict in after}
    if len(known) < len(after):
        tally.twice.append(f"{len(after) - len(known)} kernels")
    for digest, _, verdict in before:
        if known.get(digest, ("", ""))[1] != verdict:
            tally.changed.append(digest[:12])
    try:
        shown: list[dict[str, Any]] = json.loads(ended.stdout)["verdicts"]
    except (ValueError, KeyError):
        tally.lost.append(f"no document: {ended.stderr[-1000:]}")
        return
    outcomes = {Path(one["file"]).name: one["verdict"] for one in shown}
    for number, file in enumerate(files):
        expected = "rejected" if number % WRONG_EVERY == 0 else "correct"
        found = outcomes.get(file.name)
        if found is None:
            tally.lost.append(file.name)
        elif found != expected:
            tally.wrong.append(f"{file.name}: {found}")
    if len(known) != len(files):
        tally.lost.append(f"the history holds {len(known)} of {len(files)}")


def _other_triton(
    raylets: Raylets, folder: Path, words: list[str], environment: dict[str, str]
) -> str:
    """What the command says of a cluster whose third host has another Triton."""
    (folder / "other" / "triton").mkdir(parents=True)
    (folder / "other" / "triton" / "__init__.py").write_text(OTHER_TRITON, encoding="utf-8")
    raylets.join(PYTHONPATH=str(folder / "other"))
    ended = subprocess.run(words, env=environment, capture_output=True, text=True)
    lines = ended.stderr.splitlines()
    return f"code {ended.returncode}: {lines[-2] if len(lines) > 1 else ended.stderr}"


def main() -> int:
    """Run it, print the result, and write it with --json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--judgements", type=int, default=200)
    parser.add_argument("--every", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    tally = run(given.judgements, given.every, given.seed)
    found = {
        "schema": SCHEMA,
        **asdict(tally),
        "holds": tally.holds,
        "machine": {"cores": os.cpu_count(), "python": sys.version.split()[0]},
    }
    print(json.dumps(found, indent=2))
    if given.json:
        given.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return 0 if tally.holds else 1


if __name__ == "__main__":
    sys.exit(main())

"""Changed inputs against every reader of JSON, TOML, JSON lines and tar: none may end in a fault of
kmint's own, hang, or eat memory.

    python bench/fuzz_readers.py --count 100000 [--seed 0] [--only NAME ...] [--jobs 2]
                                 [--json FILE]

Each reader runs in a separate process. It fails if an input raises an error that its caller does
not report; such an input would end a command with exit code 70. It also fails if an input takes
more than 10 s of processor time, waits for ten minutes, or brings the process above 500 MB. The
script keeps the first inputs that fail.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.fuzz_inputs import SPECIAL  # noqa: E402
from bench.fuzz_reader import Reader  # noqa: E402
from bench.fuzz_table import READERS  # noqa: E402

HANG_SECONDS = 10
"""Seconds of processor time, so that other programs on the machine make no reader slow."""
LOST_SECONDS = 600
"""A worker whose input takes this long is ended: it waits, or hangs where no signal reaches it."""
MOST_MEGABYTES = 500
MOST_KEPT = 5


class Hang(BaseException):
    """An input took too long."""


@dataclass
class Outcome:
    """Results of one reader's inputs. `faults` counts by the error and the line of code that raised
    it.
    """

    name: str
    accepted: int = 0
    refused: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    kept: list[str] = field(default_factory=list)
    slowest_s: float = 0.0
    peak_mb: float = 0.0
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**vars(self), "faults": dict(self.faults)}

    @property
    def failed(self) -> bool:
        """True where the reader does not hold."""
        return (
            bool(self.faults) or self.peak_mb > MOST_MEGABYTES or self.accepted + self.refused == 0
        )


def fuzz(reader: Reader, count: int, seed: int, home: Path, keep: Path) -> Outcome:
    """Feed `count` inputs to a reader in this process."""
    os.environ["KMINT_HOME"] = str(home)
    read, seeds = reader.opened(home)
    chance, outcome, begun = (
        random.Random(f"{seed} {reader.name}"),
        Outcome(reader.name),
        time.monotonic(),
    )
    for valid in seeds:
        read(valid)
    before = signal.signal(signal.SIGPROF, _hang)
    for number in range(count):
        # Those that broke readers before come first.
        data = SPECIAL[number] if number < len(SPECIAL) else reader.mutate(chance, seeds)
        (home / "input").write_bytes(data)
        started = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, HANG_SECONDS)
        try:
            read(data)
            outcome.accepted += 1
        except (Exception, Hang) as error:
            signal.setitimer(signal.ITIMER_PROF, 0)
            if any(kind.__name__ in reader.errors for kind in type(error).__mro__):
                outcome.refused += 1
            else:
                _keep(outcome, error, data, keep)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        outcome.slowest_s = max(outcome.slowest_s, time.process_time() - started)
    signal.signal(signal.SIGPROF, before)
    outcome.peak_mb = _peak_megabytes()
    outcome.seconds = time.monotonic() - begun
    return outcome


def _peak_megabytes() -> float:
    """The most memory that this process held. `ru_maxrss` would count the process that started it."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (kilobytes,) = re.findall(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    return int(kilobytes) / 1024


def _hang(number: int, frame: FrameType | None) -> None:
    raise Hang(f"more than {HANG_SECONDS} s")


def _keep(outcome: Outcome, error: BaseException, data: bytes, keep: Path) -> None:
    """Count a fault by where it was raised in kmint, and keep the input of the first few kinds."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename.startswith(str(ROOT))
    ]
    where = f"{Path(frames[-1].filename).relative_to(ROOT)}:{frames[-1].lineno}" if frames else "?"
    kind = f"{type(error).__name__} at {where}"
    outcome.faults[kind] += 1
    if outcome.faults[kind] == 1 and len(outcome.kept) < MOST_KEPT:
        keep.mkdir(parents=True, exist_ok=True)
        file = keep / f"{outcome.name.replace(' ', '-')}-{hashlib.sha256(data).hexdigest()[:12]}"
        file.write_bytes(data)
        outcome.kept.append(f"{kind}: {file}")


def in_worker(reader: Reader, count: int, seed: int, keep: Path) -> Outcome:
    """Feeds a reader in a separate process; kills the process if it hangs."""
    with tempfile.TemporaryDirectory(
        dir="/dev/shm" if Path("/dev/shm").is_dir() else None
    ) as folder:
        home, result = Path(folder) / "home", Path(folder) / "result.json"
        home.mkdir()
        options = [f"--count={count}", f"--seed={seed}", f"--keep={keep}", f"--home={home}"]
        command = [sys.executable, __file__, "--worker", reader.name, *options]
        with open(result, "wb") as out, open(Path(folder) / "words", "w+b") as words:
            process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=words)
            while process.poll() is None:
                time.sleep(0.5)
                last = home / "input"
                if last.exists() and time.time() - last.stat().st_mtime > LOST_SECONDS:
                    process.kill()
            words.seek(0)
            said = words.read()[-2000:].decode("utf-8", "replace")
        if process.returncode == 0:
            document = json.loads(result.read_text())
            return Outcome(**{**document, "faults": Counter(document["faults"])})
        outcome = Outcome(
            reader.name, faults=Counter({f"the process ended with {process.returncode}": 1})
        )
        if (home / "input").exists():
            keep.mkdir(parents=True, exist_ok=True)
            shutil.copy(home / "input", keep / f"{reader.name.replace(' ', '-')}-last")
            outcome.kept.append(str(keep / f"{reader.name.replace(' ', '-')}-last"))
        print(f"{reader.name}: {said}", file=sys.stderr)
        return outcome


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100_000, help="inputs a reader")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--only",
        action="append",
        metavar="NAME",
        help=f"one of: {', '.join(reader.name for reader in READERS)}",
    )
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--keep",
        type=Path,
        default=Path(tempfile.gettempdir()) / "kmint-fuzz",
        help="folder for inputs that fail",
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--home", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    known = {reader.name: reader for reader in READERS}
    if options.worker:
        print(
            json.dumps(
                fuzz(
                    known[options.worker], options.count, options.seed, options.home, options.keep
                ).to_json()
            )
        )
        return 0
    chosen = [known[name] for name in options.only or known]
    with ThreadPoolExecutor(options.jobs) as pool:
        outcomes = list(
            pool.map(
                lambda reader: in_worker(reader, options.count, options.seed, options.keep), chosen
            )
        )
    print(
        f"{'reader':22} {'accepted':>9} {'refused':>9} {'faults':>7}"
        f" {'slowest':>9} {'peak':>8} {'time':>8}"
    )
    for one in outcomes:
        counts = f"{one.accepted:9} {one.refused:9} {sum(one.faults.values()):7}"
        print(
            f"{one.name:22} {counts}"
            f" {one.slowest_s:7.2f} s {one.peak_mb:5.0f} MB {one.seconds:6.0f} s"
        )
        for line in one.kept or [f"{kind}: {count} times" for kind, count in one.faults.items()]:
            print(f"    {line}")
    if options.json:
        machine = {
            "python": platform.python_version(),
            "machine": platform.machine(),
            "seed": options.seed,
            "count": options.count,
        }
        document = {
            "schema": "kmint.bench.fuzz_readers/1",
            **machine,
            "readers": [one.to_json() for one in outcomes],
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    return 1 if any(one.failed for one in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())

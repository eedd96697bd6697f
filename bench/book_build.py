"""Minutes of `kmint book build` for a fresh card, and the causes of its waiting.

    python bench/book_build.py --json FILE [--count 30] [--ops A,B] [--shape 8192x4096]
                               [--dtype bf16] [--drafts 8] [--gpus all] [--budget MINUTES]
                               [--home DIR] [--rejudge]

The command runs in a new home, so every baseline and every kernel is compiled. It builds the first
COUNT operations of the book's order. The document has the entries and the profile of the command.
It also has the shares of time in which the GPU and the processor's cores were busy, sampled twice a
second. With --rejudge the book is then judged again, and the differences are kept. With --home the
home stays, and a second call shows what a build that goes on costs.

Needs a GPU. Exit code 1 where the build takes more than LIMIT minutes, or an operation has no
kernel.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.first_kernel import commit  # noqa: E402
from kmint_tui.book.order import in_order  # noqa: E402
from kmint_tui.core.referee import no_gpu_reason  # noqa: E402
from kmint_tui.minting.request import environment  # noqa: E402

SCHEMA = "kmint.bench.book_build/1"
LIMIT = 10.0
SAMPLE_SECONDS = 0.5


@dataclass
class Load:
    """How busy the GPU and the cores were, in percent, by sample."""

    gpu: list[int] = field(default_factory=list)
    cores: list[float] = field(default_factory=list)

    def watch(self, over: threading.Event) -> None:
        """Sample until `over`."""
        import pynvml

        from referee.timing.nvml import open_gpu

        handle, before = open_gpu(), _ticks()
        while not over.wait(SAMPLE_SECONDS):
            self.gpu.append(int(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu))
            now = _ticks()
            busy, total = now[0] - before[0], now[1] - before[1]
            self.cores.append(100 * busy / max(1, total))
            before = now


def _ticks() -> tuple[int, int]:
    """Busy ticks and all ticks of the machine's processors."""
    numbers = [int(one) for one in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    return sum(numbers) - numbers[3] - numbers[4], sum(numbers)


def command(home: Path, *arguments: str) -> tuple[dict[str, Any], int, float]:
    """The document of a command, its exit code, and its seconds."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "kmint_tui", "book", *arguments, "--json"],
        cwd=ROOT,
        env={**os.environ, "KMINT_HOME": str(home)},
        stdout=subprocess.PIPE,
    )
    seconds = time.perf_counter() - began
    document: dict[str, Any] = json.loads(done.stdout) if done.stdout else {}
    return document, done.returncode, seconds


def measured(arguments: argparse.Namespace, home: Path) -> tuple[dict[str, Any], int]:
    """Build, and judge again on request: the raw document, and the exit code of the build."""
    names = arguments.ops.split(",") if arguments.ops else []
    names = names or [op.name for op in in_order()[: arguments.count]]
    wanted = ["build", "--ops", ",".join(names), "--drafts", str(arguments.drafts)]
    for shape in arguments.shape or ["8192x4096"]:
        wanted += ["--shape", shape]
    wanted += ["--dtype", arguments.dtype] if arguments.dtype else []
    wanted += ["--gpus", arguments.gpus] if arguments.gpus else []
    wanted += ["--budget", str(arguments.budget)] if arguments.budget else []
    load, over = Load(), threading.Event()
    watching = threading.Thread(target=load.watch, args=(over,), daemon=True)
    watching.start()
    built, code, seconds = command(home, *wanted)
    over.set()
    watching.join()
    raw = {
        "schema": SCHEMA,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": commit(ROOT),
        "cores": len(os.sched_getaffinity(0)),
        "device": built.get("device"),
        "environment": environment(),
        "arguments": wanted,
        "operations": len(names),
        "seconds": round(seconds, 2),
        "load": {"gpu": load.gpu, "cores": [round(one, 1) for one in load.cores]},
        "built": built,
    }
    if arguments.rejudge:
        raw["rejudged"], _, raw["rejudge_seconds"] = command(home, "rejudge")
    return raw, code


def show(raw: dict[str, Any]) -> None:
    """The table, the profile and the result."""
    entries = raw["built"].get("entries", [])
    for one in entries:
        figures = one["figures"]
        share = f"{figures['floor_share']:.2f}" if figures["floor_share"] else "-"
        print(
            f"{one['op']:24} {one['shape']:>12} {figures['verdict']:7} {figures['ratio']:6.3f}x "
            f"{figures['us']:8.1f} us  floor {share}  {one['author']} {one['changes']}"
        )
    for failure in raw["built"].get("failures", []):
        print(f"no kernel: {failure}")
    ratios = [one["figures"]["ratio"] for one in entries]
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"geometric mean {mean:.3f} over {len(ratios)} places")
    print(json.dumps(raw["built"].get("seconds"), indent=1))
    for name in ("gpu", "cores"):
        values = raw["load"][name]
        if values:
            print(f"{name} busy {sum(values) / len(values):.0f} % of the time")
    for one in raw.get("rejudged", {}).get("entries", []):
        now = f"{one['ratio']:.3f} ({100 * one['difference']:+.1f} %)" if one["ratio"] else one
        print(f"again: {one['op']:24} {one['then']:.3f} then, {now} now")
    print(
        f"{raw['operations']} operations in {raw['seconds'] / 60:.1f} minutes; the limit is {LIMIT}"
    )


def main() -> int:
    """Measure, print, and keep the document."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--ops")
    parser.add_argument("--shape", action="append")
    parser.add_argument("--dtype")
    parser.add_argument("--drafts", type=int, default=8)
    parser.add_argument("--gpus")
    parser.add_argument("--budget", type=float, help="begin no operation that would end later")
    parser.add_argument("--home", type=Path)
    parser.add_argument("--rejudge", action="store_true")
    arguments = parser.parse_args()
    if (lonely := no_gpu_reason()) is not None:
        raise SystemExit(f"a book needs a GPU: {lonely}")
    with tempfile.TemporaryDirectory() as folder:
        raw, code = measured(arguments, arguments.home or Path(folder))
    arguments.json.write_text(json.dumps(raw, indent=1) + "\n", encoding="utf-8")
    show(raw)
    return 1 if code or raw["seconds"] > 60 * LIMIT else 0


if __name__ == "__main__":
    sys.exit(main())

"""kmint's kernels and those of Liger, QuACK, Helion and PyTorch, side by side, and verdicts on emitted
Triton.

    python bench/peers.py --json FILE [--op OP ...] [--shape 8192x4096 ...] [--dtype bf16]
                          [--peer NAME ...] [--book FILE] [--kernel OP=FILE ...] [--seconds 120]
                          [--tuning-seconds 15] [--peer-seconds 60] [--judge-seconds 60] [--no-judge]
                          [--plan]

    python bench/peers.py --json FILE --judge-only      judge the texts in FILE; needs no GPU

Every peer's first answer is compared with float64 by the referee's tolerance. All peers of a place
are then timed together, by the referee's protocol. The seconds of a peer go from the operation's
name and inputs to the first answer, with empty caches. kmint's kernel is that of the place in the
book, else of the nearest shape; --kernel goes first. A peer that is missing, fails or takes longer
than --peer-seconds is a row with the reason.

The document is written after every row, and the same call goes on with the missing places. No place
is begun after --seconds. Emitted texts for dynamic shapes are judged at level `correct` with
--judge-only, or in the same call while seconds are left.

Needs a GPU. Exit code 3 where places are missing at the end.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.first_kernel import commit  # noqa: E402
from bench.peer_process import Worker, WorkerLost  # noqa: E402
from kmint_tui.book.document import read_book  # noqa: E402
from kmint_tui.book.records import Book  # noqa: E402
from kmint_tui.book.store import load as load_book  # noqa: E402
from kmint_tui.core.referee import no_gpu_reason  # noqa: E402
from kmint_tui.minting.request import environment  # noqa: E402
from referee.asked_shape import DTYPES, SHORT, AskedShape  # noqa: E402

SCHEMA = "kmint.bench.peers/1"
OPS = (
    *("rmsnorm", "softmax", "cross_entropy", "layernorm"),
    *("swiglu", "geglu", "add_rmsnorm", "rope"),
)
SHAPES = (
    *("8192x4096", "32768x1024", "64x4096", "512x131072", "2048x16384", "1x4096", "65536x256"),
    *("256x262144", "8192x1024", "16x16384", "4096x32768", "1x131072"),
)
ROPE_SHAPES = ("32768x128", "4096x128", "65536x256", "1x128")
PEERS = (
    *("kmint", "eager", "compile", "max-autotune-no-cudagraphs"),
    *("liger", "helion none", "helion quick", "quack"),
)
EMITTING = ("compile", "max-autotune-no-cudagraphs", "helion none", "helion quick")
LEFT_TO_JUDGE = 15.0
"""Seconds that must be left for another text to be judged."""


@dataclass(frozen=True, order=True)
class Wanted:
    """A place of the plan. `shape` has its dtype: `8192x4096:bfloat16`."""

    op: str
    shape: str


def places(ops: Sequence[str], shapes: Sequence[str], dtype: str) -> tuple[Wanted, ...]:
    """The plan: every operation at every shape, so ordered that its beginning has all of both."""
    lists = [shapes or (ROPE_SHAPES if op == "rope" else SHAPES) for op in ops]
    found = (
        Wanted(op, str(AskedShape.parse(mine[(turn + number) % len(mine)], DTYPES[dtype])))
        for turn in range(max(map(len, lists), default=0))
        for number, (op, mine) in enumerate(zip(ops, lists, strict=True))
        if turn < len(mine)
    )
    return tuple(dict.fromkeys(found))


def kernel_for(book: Book | None, files: Mapping[str, Path], wanted: Wanted) -> tuple[str, str]:
    """kmint's kernel for a place and where it is from; both empty where there is none."""
    if wanted.op in files:
        return files[wanted.op].read_text(encoding="utf-8"), files[wanted.op].name
    shape = AskedShape.parse(wanted.shape)
    names = {SHORT[shape.dtype], shape.dtype}
    same = [one for one in (book.entries if book else ()) if one.op == wanted.op]
    same = [one for one in same if one.dtype in names] or same
    if book is None or not same:
        return "", ""
    entry = min(same, key=lambda one: (distance(one.shape, shape), one.shape))
    return book.source(entry), f"the book's entry for {entry.shape} {entry.dtype}"


def distance(text: str, shape: AskedShape) -> float:
    """How far two shapes are apart: the factors between their rows and their columns, in octaves."""
    found = AskedShape.parse(text)
    return sum(
        abs(math.log2(one / other))
        for one, other in ((found.rows, shape.rows), (found.columns, shape.columns))
    )


class Run:
    """One call: the document, which is written after every row, and the worker."""

    def __init__(self, file: Path, asked: argparse.Namespace) -> None:
        self.file, self._asked = file, asked
        self.raw: dict[str, Any] = read(file)
        self._worker: Worker | None = None

    def keep(self) -> None:
        """Write the document; a reader sees the old or the new one."""
        beside = self.file.with_name(f"{self.file.name}.new")
        beside.write_text(json.dumps(self.raw, indent=1) + "\n", encoding="utf-8")
        beside.replace(self.file)

    def place(self, wanted: Wanted, kernel: str, origin: str) -> None:
        """Prepare, check and time all peers of a place. A peer that ends the worker is left out."""
        rows: dict[str, dict[str, Any]] = {}
        record: dict[str, Any] = {"op": wanted.op, "shape": wanted.shape, "rows": rows}
        record["kernel"] = origin
        self.raw["places"].append({**record, "begun": True})
        lost: dict[str, str] = {}
        while True:
            left = [peer for peer in self._asked.peer if peer not in lost]
            rows.clear()
            rows.update({peer: {"reason": why} for peer, why in lost.items() if peer in PEERS})
            culprit = self._once(wanted, kernel, left, record)
            if culprit is None:
                break
            peer, why = culprit
            if peer not in left:
                record["reason"] = f"{peer}: {why}"
                break
            lost[peer] = why
        self.raw["places"][-1] = record
        self.keep()

    def _once(
        self, wanted: Wanted, kernel: str, peers: Sequence[str], record: dict[str, Any]
    ) -> tuple[str, str] | None:
        """One try. The peer at which the worker was lost, and how; None for a whole try."""
        asked = {
            "op": wanted.op,
            "shape": wanted.shape,
            "kernel": kernel or None,
            "peers": list(peers),
            "emit": [peer for peer in EMITTING if not self._has_text(wanted.op, peer)],
            "tuning_seconds": self._asked.tuning_seconds,
        }
        at = "start"
        try:
            for message in self._ready().messages(asked, self._asked.peer_seconds):
                at = message.get("begun", at)
                self._take(message, wanted, record)
        except WorkerLost as error:
            self.close()
            return at, str(error)
        return None

    def _take(self, message: Mapping[str, Any], wanted: Wanted, record: dict[str, Any]) -> None:
        peer = message.get("peer", "")
        if "row" in message:
            record["rows"].setdefault(peer, {}).update(message["row"])
            self.raw["places"][-1] = {**record, "begun": True}
            self.keep()
        elif "text" in message:
            found = {"op": wanted.op, "peer": peer, "shape": wanted.shape, **message["text"]}
            if source := found.pop("source", ""):
                found["sha256"] = hashlib.sha256(source.encode()).hexdigest()
                self.raw["texts"][found["sha256"]] = source
            self.raw["emitted"].append(found)
            self.keep()
        elif "place" in message:
            record.update(message["place"])

    def _has_text(self, op: str, peer: str) -> bool:
        return any(one["op"] == op and one["peer"] == peer for one in self.raw["emitted"])

    def _ready(self) -> Worker:
        if self._worker is None:
            self._worker = Worker()
            self.raw["device"] = self._worker.device
        return self._worker

    def close(self) -> None:
        """End the worker."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None


def read(file: Path) -> dict[str, Any]:
    """The document so far, without places that an earlier call did not finish."""
    raw: dict[str, Any] = (
        json.loads(file.read_text(encoding="utf-8"))
        if file.exists()
        else {"schema": SCHEMA, "places": [], "emitted": [], "texts": {}}
    )
    raw["places"] = [one for one in raw["places"] if not one.get("begun")]
    return raw


def judge(run: Run, until: float, limit: float) -> None:
    """Judge the emitted texts that have no verdict yet, while seconds are left: `limit` for each."""
    missing = [one for one in run.raw["emitted"] if "sha256" in one and "verdict" not in one]
    with tempfile.TemporaryDirectory() as folder:
        for one in missing:
            left = min(limit, until - time.monotonic())
            if left < LEFT_TO_JUDGE:
                return
            file = Path(folder) / f"{one['op']}.py"
            file.write_text(run.raw["texts"][one["sha256"]], encoding="utf-8")
            one |= verdict_on(file, one["op"], Path(folder), left)
            print(f"{one['op']:14} {one['peer']:28} {one['line'][:120]}", flush=True)
            run.keep()


def verdict_on(file: Path, op: str, home: Path, seconds: float) -> dict[str, Any]:
    """The verdict of `kmint judge FILE --op OP --level correct`, and its line.

    Where it takes longer than `seconds`, only the line is there.
    """
    words = ["judge", str(file), "--op", op, "--level", "correct", "--json"]
    began = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "kmint_tui", *words],
            cwd=ROOT,
            env={**os.environ, "KMINT_HOME": str(home)},
            capture_output=True,
            text=True,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        return {"line": f"no verdict in {seconds:.0f} s"}
    if not done.stdout.strip():
        lines = done.stderr.strip().splitlines() or [f"code {done.returncode}"]
        return {"line": f"no verdict: {lines[-1][:200]}"}
    found = json.loads(done.stdout)
    return {
        "verdict": found["verdict"],
        "guard": found["guard"],
        "line": f"{found['verdict']}: {found['reason']}",
        "mode": found["mode"],
        "seconds": round(time.monotonic() - began, 2),
    }


def show(record: Mapping[str, Any]) -> None:
    """A line for each peer of a place."""
    print(f"{record['op']} {record['shape']} {record.get('reason', '')}")
    for peer, row in record["rows"].items():
        right = {True: "right", False: "WRONG", None: "-"}[row.get("right")]
        us = f"{row['device_us']:9.2f} us" if row.get("device_us") else f"{'-':>12}"
        share = f"{row['floor_share']:.2f}" if row.get("floor_share") else "-"
        words = row.get("reason") or row.get("detail") or row.get("note") or ""
        seconds = f"{row['seconds']:6.2f} s" if "seconds" in row else f"{'-':>8}"
        print(f"  {peer:28} {right:5} {us}  floor {share:5} {seconds}  {words[:90]}", flush=True)


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options. Bad ones end the script with code 2."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--op", action="append", choices=OPS)
    parser.add_argument("--shape", action="append")
    parser.add_argument("--dtype", default="bf16", choices=tuple(DTYPES))
    parser.add_argument("--peer", action="append", choices=PEERS)
    parser.add_argument("--book", type=Path, help="a file of `kmint book export`")
    parser.add_argument("--kernel", action="append", default=[], metavar="OP=FILE")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--tuning-seconds", type=float, default=15.0)
    parser.add_argument("--peer-seconds", type=float, default=60.0)
    parser.add_argument("--judge-seconds", type=float, default=60.0)
    parser.add_argument("--no-judge", action="store_true")
    parser.add_argument("--judge-only", action="store_true")
    parser.add_argument("--plan", action="store_true", help="print the places and run none")
    asked = parser.parse_args(arguments)
    asked.op, asked.peer = asked.op or list(OPS), asked.peer or list(PEERS)
    asked.files = {}
    for text in asked.kernel:
        op, _, name = text.partition("=")
        if op not in OPS or not Path(name).is_file():
            parser.error(f"--kernel {text}: give an operation and a file, as in rmsnorm=mine.py")
        asked.files[op] = Path(name)
    try:
        asked.places = places(asked.op, asked.shape or (), asked.dtype)
    except ValueError as error:
        parser.error(str(error))
    return asked


def begin(run: Run, asked: argparse.Namespace) -> Book | None:
    """Note the run's circumstances in the document; the book of kmint's kernels."""
    run.raw |= {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": commit(ROOT),
        "environment": environment(),
        "planned": len(asked.places),
        "tuning_seconds": asked.tuning_seconds,
    }
    if asked.book:
        return read_book(asked.book)
    import pynvml

    from referee.timing.nvml import open_gpu

    name = pynvml.nvmlDeviceGetName(open_gpu())
    return load_book(name.decode() if isinstance(name, bytes) else str(name))[0]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the missing places, judge the texts, and print both."""
    asked = parsed(arguments)
    if asked.plan:
        print("\n".join(f"{one.op} {one.shape}" for one in asked.places))
        return 0
    until = time.monotonic() + asked.seconds
    run = Run(asked.json, asked)
    if asked.judge_only:
        judge(run, math.inf, asked.judge_seconds)
        return 0
    if (lonely := no_gpu_reason()) is not None:
        raise SystemExit(f"peers are timed on a GPU: {lonely}")
    book = begin(run, asked)
    done = {Wanted(one["op"], one["shape"]) for one in run.raw["places"]}
    missing = [one for one in asked.places if one not in done]
    try:
        while missing and time.monotonic() < until:
            wanted = missing.pop(0)
            run.place(wanted, *kernel_for(book, asked.files, wanted))
            show(run.raw["places"][-1])
    finally:
        run.close()
    if not asked.no_judge:
        judge(run, until, asked.judge_seconds)
    print(f"{len(run.raw['places'])} of {len(asked.places)} places, {asked.json}")
    return 3 if missing else 0


if __name__ == "__main__":
    sys.exit(main())

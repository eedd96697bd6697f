"""A grid and a book on one GPU and on two of the same host: speed-up, verdicts and ratios.

    python bench/two_gpus.py --json FILE [--part grid|book] [--cells 40] [--ops 12] [--drafts 8]
                             [--seconds 540] [--again] [--home DIR] [--plan]

Each part has a set-up that is not compared. It compiles all baselines and kernels, makes the drafts,
and runs the command once on two GPUs. Then the command runs on one GPU, and on two. The second GPU
is idle while one GPU works. The commands' whole seconds count, with their starts and ends.

The document is written after every command. The same call goes on with the missing commands, if the
folder of --home is still there. No command goes on after --seconds: it is stopped, and the document
says so. With --again the command runs on one GPU once more, and the differences of these two runs
are the noise. --plan prints the commands and runs none.

Needs two GPUs of one kind. Exit code 1 where a part is not whole, its speed-up is below SPEEDUP,
verdicts differ, or a ratio differs by more than DIFFERENCE.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.claims.scaling import compared  # noqa: E402
from bench.first_kernel import commit  # noqa: E402
from kmint_tui.book.order import in_order  # noqa: E402
from kmint_tui.errors import EnvironmentUnfit  # noqa: E402
from kmint_tui.minting.request import environment  # noqa: E402

SCHEMA = "kmint.bench.two_gpus/1"
PARTS = ("grid", "book")
SPEEDUP, DIFFERENCE = 1.8, 0.01
OP = "softmax"
ROWS, COLUMNS = (1024, 2048, 4096, 8192, 16384), (1024, 2048, 4096, 8192)
DTYPES = ("float16", "bfloat16")
MOST_CELLS = len(ROWS) * len(COLUMNS) * len(DTYPES)
BOOK_SHAPE = "8192x4096"
END_SECONDS = 30.0
SETUP, ONE, TWO, AGAIN = "setup", "one", "two", "again"
GPUS = {SETUP: 2, ONE: 1, TWO: 2, AGAIN: 1}


@dataclass(frozen=True)
class Step:
    """One command of a part; `forgets` are the folders of the home that it must not find."""

    part: str
    name: str
    words: tuple[str, ...]
    forgets: tuple[str, ...]


@dataclass(frozen=True)
class Ran:
    """A command that has run. `lines` are those of stderr, each with its second."""

    seconds: float
    code: int | None
    document: dict[str, Any]
    lines: list[tuple[float, str]]


def shapes(cells: int) -> tuple[str, ...]:
    """The texts of `--shape` for this number of cells, each with its dtype."""
    every = [f"{rows}x{columns}:{of}" for rows in ROWS for columns in COLUMNS for of in DTYPES]
    return tuple(every[:cells])


def names_of(*, again: bool) -> tuple[str, ...]:
    """The names of a part's commands in their order."""
    return (SETUP, ONE, TWO, *((AGAIN,) if again else ()))


def is_done(found: Mapping[str, Any], name: str) -> bool:
    """Whether a part's command of this name has run to its end."""
    return found.get(name, {}).get("code") in (0, 1)


def steps(part: str, *, cells: int, ops: int, drafts: int, kernel: Path, again: bool) -> list[Step]:
    """The commands of a part in their order."""
    if part == "grid":
        asked = [word for shape in shapes(cells) for word in ("--shape", shape)]
        words = ("grid", str(kernel), "--op", OP, *asked)
        forgets: tuple[str, ...] = ("cache/referee/grids",)
    else:
        names = ",".join(op.name for op in in_order()[:ops])
        words = ("book", "build", "--ops", names, "--shape", BOOK_SHAPE, "--drafts", str(drafts))
        forgets = ("data/books",)
    return [
        Step(part, name, (*words, "--gpus", str(GPUS[name]), "--json"), forgets if at else ())
        for at, name in enumerate(names_of(again=again))
    ]


def ran(words: Sequence[str], home: Path, seconds: float) -> Ran:
    """Run a command in a home. After `seconds` it is stopped, and its code is None."""
    began, lines = time.monotonic(), list[tuple[float, str]]()
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(
            words,
            cwd=ROOT,
            env={**os.environ, "KMINT_HOME": str(home)},
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
        )

        def read() -> None:
            assert process.stderr is not None
            with process.stderr:
                for line in process.stderr:
                    lines.append((round(time.monotonic() - began, 2), line.rstrip()))

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        code: int | None
        try:
            code = process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            code = None
            process.terminate()
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        took = time.monotonic() - began
        reader.join(END_SECONDS)
        out.seek(0)
        text = out.read().decode("utf-8", "replace")
    try:
        document = json.loads(text) if code is not None else {}
    except ValueError:
        document = {}
    return Ran(round(took, 2), code, document, lines)


def figures(part: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """The verdict, the ratio and the kernel of each place of a command's document."""
    if part == "grid":
        return {
            f"{one['rows']}x{one['columns']} {one['dtype']}": {
                "verdict": one["decision"],
                "ratio": one["ratio"],
                "kernel": "",
            }
            for one in document.get("points", [])
        }
    return {
        f"{one['op']} {one['shape']} {one['dtype']}": {
            "verdict": one["figures"]["verdict"],
            "ratio": one["figures"]["ratio"],
            "kernel": one["source_sha256"][:12],
        }
        for one in document.get("entries", [])
    }


def kernel_file(folder: Path) -> Path:
    """The grid's kernel: that of kmint's template."""
    from kmint_tui.core.book.drafting import requested
    from kmint_tui.core.book.planning import Work
    from kmint_tui.template.write import program_source
    from referee.ops import get

    program = requested(Work(op=get(OP), shapes=(f"{BOOK_SHAPE}:bfloat16",)), 1).program
    assert program is not None
    file = folder / "kernel.py"
    file.write_text(program_source(program), encoding="utf-8")
    return file


def compile_baselines(kernel: Path, cells: int, seconds: float) -> float:
    """Compile the grid's baselines by several processes; the seconds that it took."""
    from kmint_tui.book.records import Place
    from kmint_tui.core.book.opening import builders_here
    from kmint_tui.core.book.planning import Timed
    from kmint_tui.core.grid import wanted_cells
    from kmint_tui.core.kernel_choice import chosen_kernel
    from referee.problem import TaskName

    builders, began = builders_here(), time.monotonic()
    wanted = wanted_cells(chosen_kernel(str(kernel), OP), shapes(cells), None)
    stop = threading.Timer(max(0.0, seconds), builders.stop)
    stop.start()
    try:
        builders.build(
            Timed(place=Place(OP, cell.name, ""), case=cell, task=TaskName(OP)) for cell in wanted
        )
    finally:
        stop.cancel()
    return round(time.monotonic() - began, 2)


class Bench:
    """All parts in one home, with the document that grows."""

    def __init__(self, given: argparse.Namespace, file: Path, home: Path) -> None:
        self._given, self._file, self._home = given, file, home
        self._end: float = time.monotonic() + given.seconds
        fresh = not home.exists()
        home.mkdir(parents=True, exist_ok=True)
        self.raw = self._begun()
        if fresh:
            # A part that goes on needs its set-up on this machine.
            parts = self.raw["parts"].items()
            self.raw["parts"] = {part: found for part, found in parts if self._is_whole(found)}

    def run(self, part: str) -> None:
        """Run the missing commands of a part."""
        found: dict[str, Any] = self.raw["parts"].setdefault(part, {})
        kernel = kernel_file(self._home)
        given = self._given
        for step in steps(
            part,
            cells=given.cells,
            ops=given.ops,
            drafts=given.drafts,
            kernel=kernel,
            again=given.again,
        ):
            if is_done(found, step.name):
                continue
            if part == "grid" and step.name == SETUP and "baselines_seconds" not in found:
                found["baselines_seconds"] = compile_baselines(kernel, given.cells, self._left())
            if self._left() <= 0:
                print(f"{part}: no time is left for {step.name}", flush=True)
                return
            for name in step.forgets:
                shutil.rmtree(self._home / name, ignore_errors=True)
            done = ran([sys.executable, "-m", "kmint_tui", *step.words], self._home, self._left())
            found[step.name] = self._said(step, done)
            self._write()
            last = done.lines[-1][1] if done.lines else ""
            print(f"{part} {step.name}: code {done.code}, {done.seconds} s; {last}", flush=True)
            if done.code not in (0, 1):
                return

    def _is_whole(self, found: Mapping[str, Any]) -> bool:
        return all(is_done(found, name) for name in names_of(again=self._given.again))

    def _said(self, step: Step, done: Ran) -> dict[str, Any]:
        said: dict[str, Any] = {
            "gpus": GPUS[step.name],
            "seconds": done.seconds,
            "code": done.code,
            "places": figures(step.part, done.document),
            "lines": done.lines,
        }
        if done.code is None:
            said["stopped"] = f"the limit of {self._given.seconds:.0f} s"
        said["profile"] = done.document.get("seconds", {})
        if step.part == "book":
            said["failures"] = done.document.get("failures", [])
        return said

    def _left(self) -> float:
        return self._end - time.monotonic()

    def _begun(self) -> dict[str, Any]:
        """The document of earlier calls, or a new one. Raises SystemExit for that of another plan."""
        plan = {name: getattr(self._given, name) for name in ("cells", "ops", "drafts")}
        if self._file.exists():
            earlier: dict[str, Any] = json.loads(self._file.read_text(encoding="utf-8"))
            if earlier.get("schema") != SCHEMA or earlier.get("plan") != plan:
                raise SystemExit(f"{self._file} is of another plan: name another file")
            return earlier
        return {
            "schema": SCHEMA,
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "commit": commit(ROOT),
            "cores": len(os.sched_getaffinity(0)),
            "device": devices()[0],
            "environment": environment(),
            "plan": plan,
            "parts": {},
        }

    def _write(self) -> None:
        self._file.write_text(json.dumps(self.raw, indent=1) + "\n", encoding="utf-8")


def devices() -> list[str]:
    """The names of two GPUs of one kind. Raises SystemExit without them."""
    from kmint_tui.core.farm.devices import chosen, gpus

    try:
        return [device.name for device in chosen(2, gpus())]
    except EnvironmentUnfit as error:
        raise SystemExit(f"two GPUs of one kind are needed: {error.message}") from None


def show(raw: Mapping[str, Any]) -> bool:
    """Print the comparison of each part; whether everything holds that the claim says."""
    holds = True
    for part, found in raw["parts"].items():
        if not all(is_done(found, name) for name in (ONE, TWO)):
            print(f"{part}: not whole")
            holds = False
            continue
        one = compared(found)
        print(f"{part}: {json.dumps(one, indent=1)}")
        worst = max(map(abs, one["differences"]), default=0.0)
        holds &= one["speedup"] >= SPEEDUP and not one["unlike"] and worst <= DIFFERENCE
    return holds


def parsed(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The options. Exits with code 2 for bad ones."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--cells", type=int, default=40)
    parser.add_argument("--ops", type=int, default=12)
    parser.add_argument("--drafts", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=540.0)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--home", type=Path, default=Path(tempfile.gettempdir()) / "kmint-two-gpus")
    parser.add_argument("--plan", action="store_true")
    given = parser.parse_args(words)
    if not 0 < given.cells <= MOST_CELLS:
        parser.error(f"--cells is 1 to {MOST_CELLS}")
    if not 0 < given.ops <= len(in_order()):
        parser.error(f"--ops is 1 to {len(in_order())}")
    return given


def main() -> int:
    """Run the parts, print the comparison, and keep the document."""
    given = parsed()
    parts = given.part or list(PARTS)
    if given.plan:
        for part in parts:
            for step in steps(
                part,
                cells=given.cells,
                ops=given.ops,
                drafts=given.drafts,
                kernel=Path("kernel.py"),
                again=given.again,
            ):
                print(f"{step.name:6} kmint {shlex.join(step.words)}")
        return 0
    devices()
    os.environ["KMINT_HOME"] = str(given.home.resolve())
    bench = Bench(given, given.json, given.home.resolve())
    for part in parts:
        bench.run(part)
    return 0 if show(bench.raw) else 1


if __name__ == "__main__":
    sys.exit(main())

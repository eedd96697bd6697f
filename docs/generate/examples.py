"""Runs the commands that README and docs print, and compares their output with the pages.

    python -m docs.generate.examples [--update] [--bin DIR] [PAGE ...]

An example is a block of kind `console`. A line after `$ ` is a command, which lines after `> `
continue. The lines below it are its output, of both streams. A line `...` stands for any lines. A
block of kind `python` is run as a program in the same folder, and must end with exit code 0. A
comment above a block, `<!-- example: WORDS -->`, marks it:

    numbers vary    digits are compared by their places alone, such as times and sizes
    no GPU          it is run only where no GPU is: a GPU adds times and a verdict on them
    GPU             it is run only where a GPU is
    hub             it needs the network: it is never run here
    cluster         it needs other hosts or servers: it is never run here
    install         it installs kmint, or needs another build of a part: it is never run here
    fails           the exit code is not 0

An indented block holds the two install commands of README. All examples of a page share one
folder and one home. No process may open a socket but a Unix one. `--update` writes the output
into the pages; a part between two `...` is replaced where only its numbers differ. `--bin` names
the folder of another installation's programs.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from docs.generate.pages import ROOT, handwritten

ANY = "..."
WORDS = frozenset({"numbers vary", "no GPU", "GPU", "hub", "cluster", "install", "fails"})
NEVER_RUN = frozenset({"hub", "cluster", "install"})
HOME = "/home/you"
"""Stands in the pages for the home of the user."""
NO_SOCKETS = ROOT / "tests" / "models" / "no_sockets.py"

_BLOCK = re.compile(
    r"(?:<!-- example: (?P<marks>[^>]*?) -->\n)?^```(?P<kind>console|python)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Command:
    """One command, or one program, and the output that the page shows."""

    line: str
    output: tuple[str, ...] = ()
    program: bool = False


@dataclass(frozen=True)
class Example:
    """One block of a page. `start` and `end` are its text's place in the page."""

    page: Path
    start: int
    end: int
    marks: frozenset[str]
    commands: tuple[Command, ...]

    @property
    def runs(self) -> bool:
        """Whether it can be run here."""
        return not self.marks & {*NEVER_RUN, "no GPU" if has_gpu() else "GPU"}


def has_gpu() -> bool:
    """Whether there is an NVIDIA GPU."""
    return any(Path("/dev").glob("nvidia[0-9]*"))


def examples(page: Path) -> list[Example]:
    """The examples of a page, in order. Raises ValueError for an unknown mark."""
    text, found = page.read_text(encoding="utf-8"), []
    for block in _BLOCK.finditer(text):
        marks = frozenset(
            mark.strip() for mark in (block["marks"] or "").split(",") if mark.strip()
        )
        if marks - WORDS:
            raise ValueError(f"{page.name}: unknown mark {', '.join(marks - WORDS)}")
        python = block["kind"] == "python"
        commands = (
            (Command(block["text"], program=True),) if python else tuple(_commands(block["text"]))
        )
        found.append(Example(page, block.start("text"), block.end("text"), marks, commands))
    return found


def _commands(text: str) -> Iterator[Command]:
    command: Command | None = None
    for line in text.splitlines():
        if line.startswith("$ "):
            if command is not None:
                yield command
            command = Command(line.removeprefix("$ "))
        elif command is not None and not command.output and re.match(">( |$)", line):
            command = replace(command, line=f"{command.line}\n{line[2:]}")
        elif command is not None:
            command = replace(command, output=(*command.output, line))
    if command is not None:
        yield command


@dataclass(frozen=True)
class Place:
    """The folder that the examples of a page share, and the programs that they call."""

    folder: Path
    programs: Path

    def run(self, command: Command) -> tuple[int, list[str]]:
        """The exit code and the lines of both streams, in the order in which they were written."""
        home = self.folder / "home"
        work = home / "project"
        work.mkdir(parents=True, exist_ok=True)
        kept = {
            name: value
            for name, value in os.environ.items()
            if name in ("PYTHONPATH", "TMPDIR", "OMP_NUM_THREADS", "LANG")
        }
        environment = {
            **kept,
            "HOME": str(home),
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "COLUMNS": "120",
        }
        called = ["python", "-c", command.line] if command.program else ["bash", "-c", command.line]
        done = subprocess.run(
            [sys.executable, str(NO_SOCKETS), *called],
            cwd=work,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        text = done.stdout.decode(errors="replace").replace(str(home), HOME)
        # A reader's environment is active, so that kmint names its interpreter `python`.
        text = text.replace(sys.executable, "python")
        return done.returncode, [line.rstrip() for line in text.splitlines()]


def programs_of_this_checkout(folder: Path) -> Path:
    """A folder with `kmint` and `python` that run this checkout with this interpreter."""
    folder.mkdir()
    # A virtual environment is found by the path of its interpreter, so that a link would lose it.
    for name, arguments in (("python", ""), ("kmint", "-m kmint_tui ")):
        program = folder / name
        path = f'PYTHONPATH="{ROOT}:$PYTHONPATH"'
        program.write_text(
            f'#!/bin/sh\n{path} exec "{sys.executable}" {arguments}"$@"\n', encoding="utf-8"
        )
        program.chmod(0o755)
    return folder


def differences(example: Example, place: Place) -> list[str]:
    """What a run of the example shows that the page does not; nothing where the page is true."""
    found = []
    for command in example.commands:
        code, lines = place.run(command)
        name = command.line.strip().splitlines()[0]
        if (code != 0) != ("fails" in example.marks):
            found.append(f"`{name}` ended with exit code {code}:\n" + "\n".join(lines))
        elif (
            not command.program
            and matched(command.output, lines, shape="numbers vary" in example.marks) is None
        ):
            found.append(
                f"`{name}` prints\n"
                + "\n".join(lines)
                + "\nand the page shows\n"
                + "\n".join(command.output)
            )
    return found


def matched(shown: tuple[str, ...], lines: list[str], *, shape: bool) -> list[str] | None:
    """The lines that a page would show of an output, with its `...`; None where the output has
    other lines.

    With `shape` digits and spaces are not compared.
    """
    wanted, output = (
        [_shape(line) if shape else line.rstrip() for line in some] for some in (shown, lines)
    )
    result: list[str] = []
    at, free = 0, False
    for part in _parts(wanted):
        if part is None:
            result.append(ANY)
            free = True
            continue
        places = range(at, len(output) - len(part) + 1) if free else range(at, at + 1)
        found = next((place for place in places if output[place : place + len(part)] == part), None)
        if found is None:
            return None
        result += lines[found : found + len(part)]
        at, free = found + len(part), False
    return result if free or at == len(output) else None


def _parts(wanted: list[str]) -> Iterator[list[str] | None]:
    """Runs of lines, and None for every `...`."""
    part: list[str] = []
    for line in wanted:
        if line == ANY:
            if part:
                yield part
            part = []
            yield None
        else:
            part.append(line)
    if part:
        yield part


def _shape(line: str) -> str:
    return (
        line
        if line.strip() == ANY
        else re.sub(r"\s+", " ", re.sub(r"\d[\d.,]*", "0", line)).strip()
    )


def updated(example: Example, place: Place) -> str:
    """The block's text with the output of a run. Raises ValueError where a person has to choose
    the lines."""
    lines: list[str] = []
    for command in example.commands:
        _, output = place.run(command)
        if command.program:
            return command.line
        new = matched(command.output, output, shape=True) if ANY in command.output else output
        if new is None:
            raise ValueError(
                f"{example.page.name}: choose the lines by hand of\n$ {command.line}\n"
                + "\n".join(output)
            )
        first, *more = command.line.split("\n")
        lines += [f"$ {first}", *(f"> {line}".rstrip() for line in more), *new]
    return "".join(f"{line}\n" for line in lines)


def main() -> int:
    """Run the examples of every page, or of some; exit code 1 where a page is not true."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pages", nargs="*", type=Path)
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--bin", type=Path)
    options = parser.parse_args()
    wrong = 0
    for page in [path.resolve() for path in options.pages] or handwritten():
        with tempfile.TemporaryDirectory() as scratch:
            programs = (
                options.bin.resolve()
                if options.bin
                else programs_of_this_checkout(Path(scratch) / "bin")
            )
            place, text, moved = Place(Path(scratch), programs), page.read_text(encoding="utf-8"), 0
            for example in examples(page):
                name = (
                    f"{page.relative_to(ROOT)}: {example.commands[0].line.strip().splitlines()[0]}"
                )
                if not example.runs:
                    print(f"not run  {name}", flush=True)
                elif options.update:
                    new = updated(example, place)
                    text = text[: example.start + moved] + new + text[example.end + moved :]
                    moved += len(new) - (example.end - example.start)
                    print(f"updated  {name}", flush=True)
                else:
                    found = differences(example, place)
                    wrong += bool(found)
                    print(f"{'WRONG' if found else 'true':8} {name}", *found, sep="\n", flush=True)
            if options.update:
                page.write_text(text, encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""The standard streams, their only writers and their colours.

All three are open, hold any text, and survive a lost reader. `Output` is the only writer to stdout:
data, and nothing but data. The same bytes go to a terminal and to a pipe; only colour depends on
where they go. `Diagnostics` is the only writer to stderr. An error is one short block: the problem,
and the fix where there is one. A traceback goes to a log file, whose path is shown; with `--debug` it
goes to the terminal.

No text steers the terminal (`escapes.py`); the one exception is a file's own content, which goes to a
pipe exactly as it is. `--color` goes before `NO_COLOR`, that before `TERM=dumb`, and that before the
kind of stream. Colour never changes the text itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any, Literal

from kmint_tui import __version__, paths
from kmint_tui.documents import compact, finite
from kmint_tui.errors import KmintError, StorageError, storage_error
from kmint_tui.escapes import visible, visible_json, visible_line


def prepare() -> None:
    """Give a closed standard stream (`>&-`) the null device, so that no file of ours gets its
    number and is written over.

    Text that the terminal's encoding lacks, and bytes of file names that are no text, are written
    escaped.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    sys.stdin = sys.stdin or open(0, closefd=False, encoding="utf-8")
    sys.stdout = sys.stdout or open(1, "w", closefd=False, encoding="utf-8")
    sys.stderr = sys.stderr or open(2, "w", closefd=False, encoding="utf-8")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


@contextlib.contextmanager
def data_only() -> Iterator[None]:
    """Send the output of a user's function or a library to stderr: stdout is for data."""
    with contextlib.redirect_stdout(sys.stderr):
        yield


def drop(stream: IO[str]) -> None:
    """Send further output on `stream` to the null device, after its reader or disk has gone."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


ColourChoice = Literal["auto", "always", "never"]

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}

VERDICT_STYLES = {
    "win": "green",
    "tie": "cyan",
    "unsure": "yellow",
    "loss": "yellow",
    "correct": "green",
    "rejected": "red",
    "error": "red",
    "pass": "green",
    "fail": "red",
    "skipped": "dim",
    "no": "dim",
}


def colour_wanted(choice: ColourChoice, stream: IO[str], environment: Mapping[str, str]) -> bool:
    """True when text written to `stream` should carry colour."""
    if choice != "auto":
        return choice == "always"
    if environment.get("NO_COLOR"):
        return False
    if environment.get("TERM") == "dumb":
        return False
    return stream.isatty()


def paint(text: str, style: str, *, enabled: bool) -> str:
    """`text` in one of the named styles, or unchanged."""
    code = _CODES.get(style)
    return f"\x1b[{code}m{text}\x1b[0m" if enabled and code and text else text


class Diagnostics:
    """Writes errors, notes, hints and progress. `quiet` drops everything but errors."""

    def __init__(self, *, colour: bool = False, quiet: bool = False, live: bool = False) -> None:
        self.colour = colour
        self.quiet = quiet
        self.live = live
        self._block = 0

    def error(self, error: KmintError) -> None:
        """Write an error and its fix."""
        self.clear()
        what = visible(f"{error.title}: {error.message}")
        lines = f"{paint('error:', 'red', enabled=self.colour)} {what}\n"
        if error.fix:
            lines += f"{paint('  fix:', 'cyan', enabled=self.colour)} {visible(error.fix)}\n"
        self._write(lines)

    def note(self, text: str) -> None:
        """Write one line."""
        if not self.quiet:
            self.clear()
            self._write(visible(text) + "\n")

    def hint(self, text: str) -> None:
        """Write a proposal for the next step."""
        if not self.quiet:
            self.clear()
            self._write(paint(visible(text), "dim", enabled=self.colour) + "\n")

    def block(self, lines: list[str]) -> None:
        """Replace the live block on a terminal by `lines`; does nothing where stderr is not a
        terminal.
        """
        if self.quiet or not self.live:
            return
        back = f"\x1b[{self._block}A" if self._block else ""
        self._write(back + "".join(f"\r\x1b[2K{visible_line(line)}\n" for line in lines) + "\x1b[J")
        self._block = len(lines)

    def clear(self) -> None:
        """Remove the live block, so that the next text stands alone."""
        if self._block:
            self._write(f"\x1b[{self._block}A\x1b[J")
            self._block = 0

    def internal(self, error: BaseException, *, debug: bool) -> None:
        """Write a fault in kmint itself: one line, and the place of the details."""
        self.clear()
        details = visible("".join(traceback.format_exception(error)))
        if debug:
            self._write(details)
        else:
            where = _write_log(details)
            what = f"internal fault: {type(error).__name__}: {visible(_one_line(error))}"
            self._write(f"{paint('error:', 'red', enabled=self.colour)} {what}{where}\n")

    @staticmethod
    def _write(text: str) -> None:
        # The work goes on even if the reader of its messages has gone away.
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except OSError:
            drop(sys.stderr)


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 200 else text[:197] + "..."


def _write_log(details: str) -> str:
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    try:
        path = paths.private_dir(paths.log_dir()) / f"fault-{stamp}.log"
        head = (
            f"kmint {__version__}, Python {sys.version.split()[0]}\n{visible(' '.join(sys.argv))}"
        )
        path.write_text(f"{head}\n\n{details}", encoding="utf-8")
    except (OSError, StorageError):
        return " (run again with --debug for the details)"
    return f"\n  log: {path}"


@dataclass(frozen=True)
class Cell:
    """One piece of a table with the style it is shown in."""

    text: str
    style: str = ""


@dataclass(frozen=True)
class Table:
    """Headers and rows of text; columns named in `right` are aligned to the right."""

    headers: tuple[str, ...]
    rows: Sequence[Sequence[Cell | str]]
    right: frozenset[str] = field(default_factory=frozenset)


class Output:
    """Writes documents, tables and text; every call leaves stdout flushed, so that nothing is lost
    at exit.

    A reader that goes away (`kmint ops | head -1`) is no fault. The rest is then dropped, `unread`
    says so, and the exit code stays as the command earned it. Raises StorageError when stdout
    cannot be written, such as a file on a full disk.
    """

    def __init__(self, *, colour: bool = False, stream: IO[str] | None = None) -> None:
        """`stream` is the process's own stdout when `sys.stdout` stands for something else
        meanwhile.
        """
        self.colour = colour
        self.unread = False
        self._stream = stream

    def text(self, text: str) -> None:
        """Write `text`, ended by a newline."""
        self._write(_ended(visible(text)))

    def content(self, text: str) -> None:
        """Write a file's content, ended by a newline: exactly to a pipe, which can store it; to a
        terminal as `text` does."""
        stream = self._stream or sys.stdout
        self._write(_ended(visible(text) if stream.isatty() else text))

    def heading(self, text: str) -> None:
        """Write one line above a table or a text."""
        self._write(paint(visible_line(text), "bold", enabled=self.colour) + "\n")

    def table(self, table: Table) -> None:
        """Write a table, its columns two spaces apart, without trailing blanks."""
        cells = [[_visible_cell(cell) for cell in row] for row in table.rows]
        headers = [_visible_cell(Cell(header, "bold")) for header in table.headers]
        widths = [
            max([len(header.text), *(len(row[i].text) for row in cells)])
            for i, header in enumerate(headers)
        ]
        lines = [self._line(headers, widths, table)]
        lines += [self._line(row, widths, table) for row in cells]
        self._write("".join(lines))

    def pairs(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Write names and values, one pair a line, the values aligned."""
        shown = [(visible_line(name), visible_line(value)) for name, value in pairs]
        width = max((len(name) for name, _ in shown), default=0)
        self._write(
            "".join(
                f"{paint(name.ljust(width), 'dim', enabled=self.colour)}  {value}".rstrip() + "\n"
                for name, value in shown
            )
        )

    def document(self, schema: str, content: Mapping[str, Any]) -> None:
        """Write one JSON document that names its schema and the version of kmint."""
        body = {
            "schema": schema,
            "kmint_version": __version__,
            **{k: v for k, v in content.items() if k != "schema"},
        }
        self._write(
            visible_json(json.dumps(finite(body), indent=2, ensure_ascii=False, allow_nan=False))
            + "\n"
        )

    def record(self, content: Mapping[str, Any]) -> None:
        """Write one line of a JSONL stream."""
        self._write(visible_json(compact(content)) + "\n")

    def _line(self, row: Sequence[Cell], widths: Sequence[int], table: Table) -> str:
        parts = []
        for cell, width, header in zip(row, widths, table.headers, strict=True):
            padding = " " * (width - len(cell.text))
            painted = paint(cell.text, cell.style, enabled=self.colour)
            parts.append(padding + painted if header in table.right else painted + padding)
        return "  ".join(parts).rstrip() + "\n"

    def _write(self, text: str) -> None:
        stream = self._stream or sys.stdout
        try:
            stream.write(text)
            stream.flush()
        except BrokenPipeError:
            self.unread = True
            drop(stream)
        except OSError as error:
            drop(stream)
            raise storage_error(Path("stdout"), error) from error


def _ended(text: str) -> str:
    return text if text.endswith("\n") else text + "\n"


def _visible_cell(cell: Cell | str) -> Cell:
    return (
        Cell(visible_line(cell.text), cell.style)
        if isinstance(cell, Cell)
        else Cell(visible_line(cell))
    )

"""The only writer to stdout: data, and nothing but data.

The same bytes go to a terminal and to a pipe; only colour depends on where they go. No text steers
the terminal (`escapes.py`); the one exception is a file's own content, which goes to a pipe exactly
as it is.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from kmint_tui import __version__
from kmint_tui.cli.streams import drop
from kmint_tui.cli.style import paint
from kmint_tui.documents import compact, finite
from kmint_tui.errors import storage_error
from kmint_tui.escapes import visible, visible_json, visible_line


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

"""A measured grid as the interface shows it, from a file or from the history: the record of a grid or its JSON document."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from kmint_tui.errors import UsageError
from kmint_tui.history.measurements import Measurements
from referee.grid import SCHEMA, GridPoint

_NAMES = frozenset(field.name for field in fields(GridPoint))
_NEEDED = ("rows", "columns", "dtype", "decision")
REPORT = "kmint.grid/1"
LARGEST = 4 << 20
"""Bytes; a grid's record has a few kilobytes."""


@dataclass(frozen=True)
class GridReport:
    """One kernel's grid: of which kernel and operation, on which device with which versions, and its cells."""

    name: str
    op: str
    device: str
    points: tuple[GridPoint, ...]
    key: str = ""
    """What tells it from other stored ones."""

    def with_point(self, point: GridPoint) -> GridReport:
        """The same with one cell more, or a cell measured anew."""
        others = tuple(
            known for known in self.points if (known.rows, known.columns, known.dtype) != (point.rows, point.columns, point.dtype)
        )
        return replace(self, points=(*others, point))

    @property
    def title(self) -> str:
        """All but the cells, in one line."""
        return "  ·  ".join(part for part in (self.name, self.op, self.device) if part)


def stored(history_file: Path) -> tuple[GridReport, ...]:
    """The grids of the history, the newest first; what cannot be read is left out."""
    if not history_file.exists():
        return ()
    found = []
    with Measurements(history_file) as store:
        for one in store.all("grid"):
            try:
                report = of_document(one.name, one.document)
            except (ValueError, KeyError, TypeError, AttributeError):
                continue
            device = f"{one.device}, torch {one.torch}, triton {one.triton}"
            found.append(replace(report, name=one.name, op=one.op, device=device, key=f"{one.id}"))
    return tuple(found)


def load(path: Path) -> GridReport:
    """The grid in a file. Raises UsageError saying why it holds none."""
    try:
        if path.stat().st_size > LARGEST:
            raise UsageError(f"{path} is too large for a grid report")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    try:
        return _of_text(path.name, text)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{path} is not a grid report ({type(error).__name__}: {error})", fix="`kmint grid ID --json > FILE` writes one"
        ) from error


def of_document(name: str, document: Mapping[str, Any]) -> GridReport:
    """The grid in a `kmint.grid/1` document. Raises ValueError, KeyError or TypeError for what is none."""
    if document.get("schema", REPORT) not in (REPORT, SCHEMA):
        raise ValueError(f"its schema is {document['schema']!r}, not {REPORT!r} or {SCHEMA!r}")
    about = {**document.get("identity", {}), **document.get("environment", {})}
    name = str(document.get("kernel", {}).get("name", name))
    points = _points(document["points"] if "points" in document else document["cells"])
    versions = [f"{part} {about[part]}" for part in ("torch", "triton") if about.get(part)]
    device = ", ".join([str(about["device"]), *versions]) if about.get("device") else ""
    return GridReport(name, str(document.get("op") or about.get("op") or ""), device, points)


def _of_text(name: str, text: str) -> GridReport:
    try:
        document = json.loads(text)
    except json.JSONDecodeError:
        document = None
    if isinstance(document, dict) and ("points" in document or "cells" in document):
        return of_document(name, document)
    # A record: its head in the first line, a cell in each other; a last line that was cut off is left out.
    head, *lines = text[: text.rfind("\n") + 1].splitlines()
    return of_document(name, {**json.loads(head), "points": [json.loads(line) for line in lines]})


def _points(cells: Iterable[Mapping[str, Any]]) -> tuple[GridPoint, ...]:
    # A cell measured again stands once, with its later value.
    found: dict[tuple[int, int, str], GridPoint] = {}
    for cell in cells:
        known = {name: value for name, value in cell.items() if name in _NAMES}
        missing = [name for name in _NEEDED if name not in known]
        if missing:
            raise KeyError(", ".join(missing))
        point = GridPoint(**known)
        for number in (point.rows, point.columns, point.ratio or 1.0, point.low or 1.0, point.high or 1.0, point.candidate_us or 1.0):
            if not isinstance(number, (int, float)) or isinstance(number, bool) or not number > 0:
                raise ValueError(f"{number!r} is no size, ratio or time")
        if not isinstance(point.dtype, str) or not isinstance(point.decision, str):
            raise TypeError("dtype and decision must be texts")
        found[point.rows, point.columns, point.dtype] = point
    return tuple(found.values())

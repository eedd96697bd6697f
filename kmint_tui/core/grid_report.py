"""A measured grid for display, read from a file or from the history.

A file holds the record of a grid or its JSON document.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from kmint_tui.documents import BadDocument, parse_json, read_bytes
from kmint_tui.errors import UsageError
from kmint_tui.history.measurements import Measurements
from kmint_tui.history.reading import for_reading
from kmint_tui.typed import Mistyped, typed
from referee.grid import SCHEMA, GridPoint

REPORT = "kmint.grid/1"
LARGEST = 4 << 20
"""Bytes of the largest readable file; a grid's record has a few kilobytes."""


class KernelDocument(TypedDict):
    """The kernel of a grid's document."""

    name: NotRequired[str]


class GridDocument(TypedDict):
    """A `kmint.grid/1` document, or the record of a grid as one."""

    schema: NotRequired[str]
    op: NotRequired[str | None]
    kernel: NotRequired[KernelDocument]
    identity: NotRequired[dict[str, Any]]
    environment: NotRequired[dict[str, Any]]
    points: NotRequired[list[GridPoint]]
    cells: NotRequired[list[GridPoint]]


@dataclass(frozen=True)
class GridReport:
    """The grid of one kernel; `device` holds the versions too. `key` is unique among stored grids."""

    name: str
    op: str
    device: str
    points: tuple[GridPoint, ...]
    key: str = ""
    """The id of the stored grid; empty for a grid from a file."""

    def with_point(self, point: GridPoint) -> GridReport:
        """The same grid with one more cell; a new value replaces an earlier one."""
        others = tuple(
            known
            for known in self.points
            if (known.rows, known.columns, known.dtype) != (point.rows, point.columns, point.dtype)
        )
        return replace(self, points=(*others, point))

    @property
    def title(self) -> str:
        """The kernel, the operation and the device in one line."""
        return "  ·  ".join(part for part in (self.name, self.op, self.device) if part)


def stored(history_file: Path) -> tuple[GridReport, ...]:
    """The grids of the history, the newest first. Entries that cannot be read are left out."""
    if not history_file.exists():
        return ()
    found = []
    with for_reading(history_file, Measurements) as store:
        for one in store.all("grid"):
            try:
                report = of_document(one.name, one.document)
            except Mistyped:
                continue
            device = f"{one.device}, torch {one.torch}, triton {one.triton}"
            found.append(replace(report, name=one.name, op=one.op, device=device, key=f"{one.id}"))
    return tuple(found)


def load(path: Path) -> GridReport:
    """The grid in a file. Raises UsageError with the reason where the file holds none."""
    try:
        return _of_text(path.name, read_bytes(path, most_bytes=LARGEST))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
    except (BadDocument, Mistyped) as error:
        raise UsageError(
            f"{path} is not a grid report: {error}", fix="`kmint grid ID --json > FILE` writes one"
        ) from error


def of_document(name: str, content: Mapping[str, Any]) -> GridReport:
    """The grid in a `kmint.grid/1` document. Raises Mistyped for any other document."""
    document: GridDocument = typed(dict(content), GridDocument, "the report")
    if document.get("schema", REPORT) not in (REPORT, SCHEMA):
        raise Mistyped(f"its schema is neither {REPORT!r} nor {SCHEMA!r}")
    about = {**document.get("identity", {}), **document.get("environment", {})}
    name = document.get("kernel", {}).get("name", name)
    cells = document["points"] if "points" in document else document.get("cells")
    if cells is None:
        raise Mistyped("it has no cells")
    versions = [f"{part} {about[part]}" for part in ("torch", "triton") if about.get(part)]
    device = ", ".join([str(about["device"]), *versions]) if about.get("device") else ""
    return GridReport(
        name, document.get("op") or str(about.get("op") or ""), device, _points(cells)
    )


def _of_text(name: str, text: bytes) -> GridReport:
    lines = text[: text.rfind(b"\n") + 1].splitlines()
    try:
        document = parse_json(text)
    except BadDocument:
        if len(lines) < 2:
            raise
        # A record has its head in the first line and a cell in each other line. An incomplete last
        # line is left out.
        head = parse_json(lines[0])
        document = (
            {**head, "points": [parse_json(line) for line in lines[1:]]}
            if isinstance(head, dict)
            else None
        )
    if not isinstance(document, dict):
        raise Mistyped("it is no JSON object")
    return of_document(name, document)


def _points(cells: Iterable[GridPoint]) -> tuple[GridPoint, ...]:
    # A cell measured again stands once, with its later value.
    found: dict[tuple[int, int, str], GridPoint] = {}
    for point in cells:
        sizes = (
            point.rows,
            point.columns,
            *(
                number
                for number in (point.ratio, point.low, point.high, point.candidate_us)
                if number
            ),
        )
        if min(sizes) <= 0:
            raise Mistyped(f"{min(sizes)} is no size, ratio or time")
        found[point.place] = point
    return tuple(found.values())

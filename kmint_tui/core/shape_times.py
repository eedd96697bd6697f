"""How fast kernels are at shapes: read from their verdicts, and compared between kernels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from kmint_tui.history.verdicts import speed
from kmint_tui.save.choosing import Row
from referee.asked_shape import DTYPES, SHORT, AskedShape
from referee.versions import compiler_name

if TYPE_CHECKING:
    from kmint_tui.history.records import Draft

MARGIN = 1.01
"""A kernel takes a shape from another one when it is faster by more than 1 %: less is noise."""
_CELL = re.compile(r"(f32|f16|bf16)-(\d+)x(\d+)-")
_LONG = {"f32": "fp32", "f16": "fp16", "bf16": "bf16"}

Times = Mapping[AskedShape, Row]
"""The measurements of one draft."""


def times_of(draft: str, verdict: Mapping[str, Any] | None) -> dict[AskedShape, Row]:
    """The measurements in a verdict's document on a draft, by shape; empty without any."""
    timing = (verdict or {}).get("timing") or {}
    environment = {
        **(timing.get("environment") or {}),
        **((verdict or {}).get("environment") or {}),
    }
    where = place(environment)
    found: dict[AskedShape, Row] = {}
    for one in timing.get("shapes") or [timing]:
        known, cell = speed({"timing": one}), _CELL.match(str(one.get("cell")))
        if known is None or cell is None:
            continue
        shape = AskedShape(int(cell[2]), int(cell[3]), DTYPES[_LONG[cell[1]]])
        found[shape] = Row(
            rows=shape.rows,
            columns=shape.columns,
            dtype=shape.dtype,
            entry="",
            draft=draft,
            ratio=known.ratio,
            low=known.low,
            high=known.high,
            bar=known.bar,
            microseconds=known.microseconds,
            decision=str(one.get("decision") or (verdict or {}).get("verdict")),
            where=where,
        )
    return found


@dataclass(frozen=True)
class ByShape:
    """The measurements of a verdict at several shapes.

    `missing` names the cases without a ratio. The geometric mean is None where there is one.
    """

    rows: tuple[Row, ...]
    missing: tuple[str, ...]

    @property
    def mean(self) -> float | None:
        """The geometric mean of the ratios."""
        return mean(self.rows) if self.rows and not self.missing else None

    @property
    def lost(self) -> tuple[str, ...]:
        """The shapes at which the kernel is slower than the fastest baseline."""
        return tuple(short_name(row) for row in self.rows if row.decision == "loss")


def timed_at(timing: Mapping[str, Any]) -> str:
    """The shape to which a verdict's ratio belongs, in words; a case has its name."""
    several = timing.get("shapes") or ()
    if several:
        return f"as the geometric mean of {len(several)} shapes"
    names = [short_name(row) for row in times_of("", {"timing": timing}).values()]
    return f"at {names[0] if names else timing.get('cell')}"


def short_name(row: Row) -> str:
    """The shape of a row with the short name of its dtype, as in `32768x1024:bf16`."""
    return f"{row.rows}x{row.columns}:{SHORT.get(row.dtype, row.dtype)}"


def by_shape(timing: Mapping[str, Any] | None) -> ByShape | None:
    """A verdict's timing by shape; None for one of a single shape."""
    rows, missing = list[Row](), list[str]()
    for one in (timing or {}).get("shapes") or ():
        found = [row for row in times_of("", {"timing": one}).values() if row.ratio > 0]
        rows += found
        missing += [] if found else [str(one.get("cell"))]
    return ByShape(tuple(rows), tuple(missing)) if rows or missing else None


def place(environment: Mapping[str, Any]) -> str:
    """The device and the versions that times belong to, in words."""
    triton = compiler_name(environment) if environment.get("triton") else None
    return f"{environment.get('device')}, torch {environment.get('torch')}, triton {triton}"


def in_common(times: Sequence[Times]) -> tuple[AskedShape, ...]:
    """The shapes at which every one of several drafts was timed, in the order of the first."""
    first, *others = times
    return tuple(shape for shape in first if all(shape in other for other in others))


def fastest(times: Sequence[Times], shapes: Iterable[AskedShape]) -> tuple[Row, ...]:
    """The measurement of the fastest draft at each shape.

    The draft with the largest geometric mean keeps a shape unless another is faster by `MARGIN`.
    """
    wanted = tuple(shapes)
    usual = max(times, key=lambda one: prod(one[shape].ratio for shape in wanted))
    rows = []
    for shape in wanted:
        best = max((one[shape] for one in times), key=lambda row: row.ratio)
        own = usual[shape]
        rows.append(best if best.ratio > own.ratio * MARGIN else own)
    return tuple(rows)


def mean(rows: Sequence[Row]) -> float:
    """The geometric mean of the ratios."""
    return float(prod(row.ratio for row in rows) ** (1 / len(rows)))


def named(draft: Draft) -> dict[AskedShape, Row]:
    """The measurements of a draft of the history."""
    return times_of(draft.id, draft.verdict)


def here(device: str | None = None) -> str:
    """The GPU of this process, or `device`, and the versions, as `place` names them."""
    import torch

    from referee.versions import describe_triton

    name = device or torch.cuda.get_device_properties(0).name
    return place({**describe_triton(), "torch": str(torch.__version__), "device": name})

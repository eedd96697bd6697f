"""The largest shapes of a verdict, and whether compiled code ran."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from referee.verdict import Verdict

_SHAPE = re.compile(r"-(\d+)x(\d+)-")


@dataclass(frozen=True)
class Reach:
    """`rows` and `columns` are the largest of a required case; None for cases of other shapes."""

    gpu: bool
    device: str
    cases: int
    rows: int | None
    columns: int | None

    def to_json(self) -> dict[str, Any]:
        """For the receipt."""
        return {**vars(self), "text": str(self)}

    def __str__(self) -> str:
        ran = f"on {self.device}" if self.gpu else "without a GPU, by Triton's interpreter"
        most = f", up to {self.rows} rows or {self.columns} columns" if self.rows else ""
        return f"right in {self.cases} cases {ran}{most}"


def reach(verdict: Verdict) -> Reach:
    """The reach of the required cases that passed."""
    passed = [one for one in verdict.cells if one.status == "pass" and one.role != "capability"]
    shapes = [
        tuple(map(int, found.groups()))
        for one in passed
        if not one.name.startswith("example") and (found := _SHAPE.search(one.name))
    ]
    return Reach(
        verdict.mode == "replay",
        str(verdict.environment.get("device") or "a GPU"),
        len(passed),
        max((rows for rows, _ in shapes), default=None),
        max((columns for _, columns in shapes), default=None),
    )

"""What a saved kernel may be called with: read off the cells at which the referee passed it, nothing beyond.

A badge counts when a verdict earned it and none lost it. Where a badge is missing, the saved file's own checks refuse such inputs;
two things cannot be guarded by a check and therefore decide whether a kernel can be saved at all, or are only told:
an offset into the storage (`torch.compile` cannot ask for it) and NaN or infinities (asking would cost a pass over the data).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kmint_tui.save.host_code import NotSaveable
from referee.ops import Cell, Op, cells
from referee.ops.signatures import ROPE_KINDS

INT32_ELEMENTS = 2**31 - 1


@dataclass(frozen=True)
class Support:
    """Judged dtypes and numbers of columns (`heads`: exactly these, where a kernel is judged at a few sizes only), and badges."""

    dtypes: tuple[str, ...]
    max_columns: int
    heads: tuple[int, ...]
    padded: bool
    large: bool
    nonfinite: bool

    def to_json(self) -> dict[str, Any]:
        """For the receipt."""
        return {
            "dtypes": list(self.dtypes),
            "max_columns": self.max_columns,
            "columns": list(self.heads) or None,
            "padded": self.padded,
            "large": self.large,
            "nonfinite": self.nonfinite,
        }


def support(op: Op, verdicts: Sequence[Mapping[str, Any]]) -> Support:
    """What the verdicts (`kmint.verdict/1`) on one kernel vouch for. Raises NotSaveable for a kernel wrong on offset views."""
    known = {cell.name: cell for profile in ("cpu", "gpu") for cell in cells(op, profile=profile)}
    # Of cells that were drawn only the names are known here.
    passed_names, failed_names = _by_status(verdicts, "pass"), _by_status(verdicts, "fail")
    passed = [known[name] for name in sorted(passed_names) if name in known]

    def badge(mark: str) -> bool:
        return any(mark in name for name in passed_names) and not any(mark in name for name in failed_names)

    if not badge("-offset-"):
        raise NotSaveable("it is not right on views with an offset, which no check can keep out under torch.compile")
    required = [cell for cell in passed if cell.role != "capability"]
    columns = {cell.inputs[0].shape[-1] for cell in required}
    if op.kind in ROPE_KINDS and badge("-head80-"):
        columns |= {cell.inputs[0].shape[-1] for cell in passed if "-head80-" in cell.name}
    return Support(
        dtypes=tuple(sorted({_dtype(cell) for cell in required})),
        max_columns=max(columns),
        heads=tuple(sorted(columns)) if op.kind in ROPE_KINDS else (),
        padded=badge("-padded-"),
        large=badge("-large-"),
        nonfinite=badge("-nonfinite-"),
    )


def _by_status(verdicts: Sequence[Mapping[str, Any]], status: str) -> set[str]:
    return {cell["name"] for verdict in verdicts for cell in verdict["cells"] if cell["status"] == status}


def _dtype(cell: Cell) -> str:
    return cell.outputs[0].dtype

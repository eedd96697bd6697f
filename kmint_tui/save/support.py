"""The inputs that a saved kernel accepts: those of the cells that the referee passed, and no
others.

A capability counts if one verdict passed it and none failed it. One that no verdict decided, because
time ran out, does not count either, but no message calls it wrong. The saved file's own checks
refuse inputs without their capability. Two capabilities have no check: `torch.compile` cannot ask for a
storage offset, so it is required; NaN and infinities would cost a pass over the data, so the file
only documents them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kmint_tui.save.host_code import NotSaveable
from referee.case_runs import TIMEOUT
from referee.ops import Cell, Op, cells
from referee.ops.fresh_long import VOCABULARIES, WIDE
from referee.ops.signatures import ROPE_KINDS

INT32_ELEMENTS = 2**31 - 1
_WORDS = {
    "-padded-": "rows with a gap",
    "-halves-": "the halves of chunk(2, -1)",
    "-head80-": "80 columns",
    "-nonfinite-": "NaN and infinities",
    "-large-": "tensors of 2**31 elements or more",
}
"""The inputs of a capability, by a part of its cells' names."""


@dataclass(frozen=True, kw_only=True)
class Support:
    """Judged dtypes, columns and capabilities. `heads` lists the only columns of a kernel for
    rotary embeddings, `unjudged` in words the inputs that were not judged because time ran out.
    """

    dtypes: tuple[str, ...]
    max_columns: int
    heads: tuple[int, ...]
    padded: bool
    large: bool
    nonfinite: bool
    unjudged: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """For the receipt."""
        return {
            "dtypes": list(self.dtypes),
            "max_columns": self.max_columns,
            "columns": list(self.heads) or None,
            "padded": self.padded,
            "large": self.large,
            "nonfinite": self.nonfinite,
            "not_judged": list(self.unjudged),
        }


def support(op: Op, verdicts: Sequence[Mapping[str, Any]]) -> Support:
    """The inputs that the verdicts (`kmint.verdict/1`) on one kernel cover.

    Raises NotSaveable for a kernel that is wrong on views with an offset, or was not judged there.
    """
    known = {cell.name: cell for profile in ("cpu", "gpu") for cell in cells(op, profile=profile)}
    # Drawn cells are known here by name only.
    passed_names, failed_names = _by_status(verdicts, "pass"), _by_status(verdicts, "fail")
    passed = [known[name] for name in sorted(passed_names) if name in known]

    def badge(mark: str) -> bool:
        return _any(mark, passed_names) and not _any(mark, failed_names)

    undecided = _out_of_time(verdicts) - passed_names - failed_names
    seen = passed_names | failed_names | undecided
    if not badge("-offset-"):
        if _any("-offset-", undecided) and not _any("-offset-", failed_names):
            raise NotSaveable(
                "views with an offset were not judged: time ran out",
                fix="save it again when the machine is less busy",
            )
        raise NotSaveable(
            "it is not right on views with an offset, which no check can keep out under "
            "torch.compile"
        )
    required = [cell for cell in passed if cell.role != "capability"]
    columns = {cell.inputs[0].shape[-1] for cell in required} | _vocabularies(passed_names)
    columns |= _widths("asked", passed_names) | _long_rows(passed_names, failed_names | undecided)
    if op.kind in ROPE_KINDS and badge("-head80-"):
        columns |= {cell.inputs[0].shape[-1] for cell in passed if "-head80-" in cell.name}
    return Support(
        dtypes=tuple(sorted({_dtype(cell) for cell in required})),
        max_columns=max(columns),
        heads=tuple(sorted(columns)) if op.kind in ROPE_KINDS else (),
        padded=badge("-padded-") and (badge("-halves-") or not _any("-halves-", seen)),
        large=badge("-large-"),
        nonfinite=badge("-nonfinite-"),
        unjudged=tuple(
            words
            for mark, words in _WORDS.items()
            if _any(mark, undecided) and not _any(mark, passed_names | failed_names)
        ),
    )


def in_common(several: Sequence[Support]) -> Support:
    """The inputs that every one of several kernels accepts. Raises NotSaveable without any."""
    first = several[0]
    dtypes = tuple(one for one in first.dtypes if all(one in other.dtypes for other in several))
    heads = tuple(one for one in first.heads if all(one in other.heads for other in several))
    if not dtypes or (first.heads and not heads):
        raise NotSaveable("there is no input that all of these kernels accept")
    return Support(
        dtypes=dtypes,
        max_columns=min(one.max_columns for one in several),
        heads=heads,
        padded=all(one.padded for one in several),
        large=all(one.large for one in several),
        nonfinite=all(one.nonfinite for one in several),
        unjudged=tuple(dict.fromkeys(words for one in several for words in one.unjudged)),
    )


def _any(mark: str, names: set[str]) -> bool:
    return any(mark in name for name in names)


def _by_status(verdicts: Sequence[Mapping[str, Any]], status: str) -> set[str]:
    return {
        cell["name"]
        for verdict in verdicts
        for cell in verdict.get("cells") or ()
        if cell["status"] == status and cell.get("guard") != TIMEOUT
    }


def _out_of_time(verdicts: Sequence[Mapping[str, Any]]) -> set[str]:
    """The cells without an answer in time; a verdict of an older kmint calls them failed."""
    return {
        cell["name"]
        for verdict in verdicts
        for cell in verdict.get("cells") or ()
        if cell.get("guard") == TIMEOUT
    }


def _vocabularies(names: set[str]) -> set[int]:
    """The vocabulary sizes of drawn cells that passed, read from the cells' names."""
    return _widths("vocabulary", names) & set(VOCABULARIES)


def _long_rows(passed: set[str], others: set[str]) -> set[int]:
    """The widths of long rows on a GPU, up to the first that did not pass."""
    first = min(_widths(WIDE, others), default=None)
    return {one for one in _widths(WIDE, passed) if first is None or one < first}


def _widths(label: str, names: set[str]) -> set[int]:
    """The columns of the cells with this label."""
    return {int(name.split("-")[1].partition("x")[2]) for name in names if f"-{label}-x" in name}


def _dtype(cell: Cell) -> str:
    return cell.outputs[0].dtype

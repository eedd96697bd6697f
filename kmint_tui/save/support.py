"""The inputs that a saved kernel accepts: those of the cells that the referee passed, and no
others.

A capability counts if one verdict passed it and none failed it. One that no verdict decided, because
time ran out, does not count either, but no message calls it wrong. The saved file's own checks
refuse inputs without their capability. Two capabilities have no check: `torch.compile` cannot ask for a
storage offset, so it is required; NaN and infinities would cost a pass over the data, so the file
only documents them.

`reach` has the largest shapes of a verdict, and whether compiled code ran. `domain` has the shapes
that a judged launcher takes where it refuses others of its operation. The launcher's own checks stay
in the saved file and raise its own words. The domain is for readers, and keeps the generated test
within it. Limits: step and columns come from the judged cases, so they may be narrower than the checks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kmint_tui.save.host_code import NotSaveable
from referee.case_runs import TIMEOUT
from referee.ops import Cell, Op, cells
from referee.ops.fresh_widths import VOCABULARIES, WIDE
from referee.ops.signatures import ROPE_KINDS
from referee.verdict import Verdict

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
    # A kernel that is wrong at a width takes none from there on, though longer rows passed.
    wrong = min(_widths(WIDE, failed_names), default=None)
    columns = {one for one in columns if wrong is None or one < wrong}
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


_CASE = re.compile(r"(\w+)-\d+x(\d+)-")
_MOST_STEP = 1 << 10


@dataclass(frozen=True)
class Domain:
    """Columns that the launcher takes with every dtype: multiples of `step`, `most` at most."""

    words: str
    step: int
    most: int | None

    def columns(self, wanted: int) -> int:
        """The wanted number of columns, or the nearest smaller one that the launcher takes."""
        least = wanted if self.most is None else min(wanted, self.most)
        return max(self.step, least // self.step * self.step)


def domain(verdict: Verdict) -> Domain | None:
    """The domain of a verdict on a saved form; None when the launcher takes every judged case.

    Raises NotSaveable for a verdict that holds only in some circumstances: no check of the saved
    file could keep a caller out of the others. Raises it for a kernel that works in place too.
    """
    holds = verdict.holds
    if holds is None:
        return None
    if holds.circumstances:
        raise NotSaveable(
            f"its verdict does not hold for {', '.join(holds.circumstances)}",
            fix="give every allocation its dtype, and let launches depend on shapes alone",
        )
    if holds.changed:
        raise NotSaveable(
            f"it changes {' and '.join(holds.changed)} in place, and a saved function returns new tensors",
            fix="let `run` allocate its outputs",
        )
    required = [one for one in verdict.cells if one.role != "capability"]
    passed = _columns([one.name for one in required if one.status == "pass"])
    refused = _columns([one.case for one in holds.refused])
    known = [number for numbers in passed.values() for number in numbers]
    step = next(
        (
            2**power
            for power in range(_MOST_STEP.bit_length() - 1, 0, -1)
            if known and all(number % 2**power == 0 for number in known)
        ),
        1,
    )
    most = []
    for dtype, numbers in passed.items():
        first = min((one for one in refused.get(dtype, ()) if one % step == 0), default=None)
        most.append(max((one for one in numbers if first is None or one < first), default=step))
    words = holds.words.partition("; the launcher refuses")[0]
    return Domain(f"{words}; its launcher raises for other shapes", step, min(most, default=None))


def _columns(names: Sequence[str]) -> dict[str, set[int]]:
    """Numbers of columns by dtype, from the names of test cases."""
    found: dict[str, set[int]] = {}
    for name in names:
        if case := _CASE.match(name):
            found.setdefault(case[1], set()).add(int(case[2]))
    return found


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

"""The kernel that `ID|FILE` names: a draft, a file that kmint saved, or any other kernel file.

A number such as 12 or 12.3 is always an id; a file of that name is written ./12.3.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kmint_tui import paths
from kmint_tui.errors import UsageError
from referee.versions import compiler_name

if TYPE_CHECKING:
    from kmint_tui.history.records import Reference
    from referee.ops import Op
    from referee.problem import TaskName
    from referee.reference.asked import Asked


@dataclass(frozen=True)
class Kernel:
    """The text of a kernel, its operation and its origin.

    `name` is the id of the draft or the path of the file. `draft` is set for a draft, `claim` for a
    draft with a timed verdict.
    """

    source: str
    op: Op
    task: TaskName
    name: str
    origin: Literal["history", "saved file", "file"]
    draft: Reference | None = None
    claim: Claim | None = None

    @property
    def source_sha256(self) -> str:
        """SHA-256 of the text, in hex."""
        return hashlib.sha256(self.source.encode("utf-8", "replace")).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """The kernel's part of a `kmint.gate/1` or `kmint.grid/1` document."""
        return {"name": self.name, "origin": self.origin, "source_sha256": self.source_sha256}


@dataclass(frozen=True)
class Claim:
    """The speed of a draft by an earlier verdict, with the device and versions of that verdict.

    `ratio` is the time of the baseline `bar` over the kernel's own.
    """

    outcome: str
    ratio: float
    bar: str
    environment: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Outcome, ratio, bar, and the device and versions."""
        return {"outcome": self.outcome, "ratio": self.ratio, "bar": self.bar, **self.environment}


def chosen_kernel(
    wanted: str, op: str | None, reference: Asked | None = None, *, any_entry: bool = False
) -> Kernel:
    """The kernel that `wanted` names.

    With `any_entry` a saved file of several kernels gives its first one; otherwise it is refused.
    `op` names its operation and `reference` the user's own function. Raises UsageError or
    EnvironmentUnfit.
    """
    if op is not None and reference is not None:
        raise UsageError("give --op or --reference, not both")
    if _looks_like_id(wanted):
        return _of_history(wanted, op, reference)
    return _of_file(wanted, op, reference, any_entry)


def _looks_like_id(text: str) -> bool:
    session, _, number = text.partition(".")
    return (session + number).isdigit() and text.isascii() and not text.startswith(".")


def _of_history(wanted: str, op: str | None, reference: Asked | None) -> Kernel:
    from kmint_tui.history.reading import read_history
    from kmint_tui.history.records import parse_id
    from kmint_tui.minting.request import inputs_of

    where = parse_id(wanted)
    if where.number is None:
        raise UsageError(
            f"{wanted} is a session; name one of its drafts",
            fix=f"for example {wanted}.0; a file of that name is ./{wanted}",
        )
    if not paths.history_file().exists():
        raise UsageError("the history is empty", fix="`kmint mint softmax` is a start")
    with read_history(paths.history_file()) as history:
        session, draft = history.session(where.session), history.draft(where.session, where.number)
    if draft.duplicate_of is not None:
        same = f"{draft.session}.{draft.duplicate_of}"
        raise UsageError(f"{wanted} is the same kernel as {same}", fix=f"name {same}")
    reference = reference.remembering(*inputs_of(session)) if reference else None
    found, task = _task(wanted, session.op, op, reference)
    return Kernel(
        draft.source, found, task, wanted, "history", where, _claim(draft.outcome, draft.verdict)
    )


def _of_file(wanted: str, op: str | None, reference: Asked | None, any_entry: bool) -> Kernel:
    from kmint_tui.core.kernel_file import read_source
    from kmint_tui.save.judged_part import BEGIN, candidate_of, candidates_of
    from kmint_tui.save.single_file import provenance
    from kmint_tui.save.verifying import own_inputs

    if wanted != "-" and not Path(wanted).exists():
        fix = "a draft is a number such as 12.3; `kmint history` lists them"
        raise UsageError(f"{wanted!r} is neither an id of the history nor a file", fix=fix)
    text = read_source(Path(wanted))
    block = provenance(text)
    if block is None or BEGIN not in text:
        found, task = _task(wanted, None, op, reference)
        return Kernel(text, found, task, wanted, "file")
    reference = reference.remembering(*own_inputs(Path(wanted))) if reference else None
    found, task = _task(wanted, str(block["op"]) if "op" in block else None, op, reference)
    source = next(iter(candidates_of(text).values())) if any_entry else candidate_of(text)
    return Kernel(source, found, task, wanted, "saved file")


def _task(
    wanted: str, known: str | None, op: str | None, reference: Asked | None
) -> tuple[Op, TaskName]:
    """The operation and the task: `known` by the kernel's origin, `op` and `reference` by the user."""
    from kmint_tui.core.task import operation, wanted_task
    from referee.ops import UnknownOp, get
    from referee.problem import TaskName

    if reference is not None:
        found, task = wanted_task(None, reference)
        return found, task if isinstance(task, TaskName) else TaskName.of(task)
    if op is not None:
        found = operation(op)
        if known is not None and op != known:
            raise UsageError(
                f"{wanted} is a kernel for {known}, not for {op}", fix="leave --op out"
            )
        return found, TaskName.of(op)
    if known is None:
        raise UsageError(
            f"{wanted} does not say what it is for",
            fix="name the operation with --op; `kmint ops` lists them",
        )
    try:
        return get(known), TaskName.of(known)
    except UnknownOp:
        fix = "`kmint gate` takes the reference it was minted by (--reference FILE.py:function); grids are of the catalogue"
        raise UsageError(
            f"{wanted} is for `{known}`, which is no operation of the catalogue", fix=fix
        ) from None


def _claim(outcome: str | None, verdict: Mapping[str, Any] | None) -> Claim | None:
    timing = (verdict or {}).get("timing") or {}
    interval = timing.get("ratio")
    if (
        outcome is None
        or not isinstance(interval, Mapping)
        or not isinstance(interval.get("ratio"), (int, float))
    ):
        return None
    where = (verdict or {}).get("environment") or {}
    named = {name: where.get(name) for name in ("device", "cuda_driver", "torch")}
    if where.get("triton"):
        named["triton"] = compiler_name(where)
    return Claim(outcome, float(interval["ratio"]), str(timing.get("bar")), named)

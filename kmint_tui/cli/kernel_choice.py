"""The kernel that `ID|FILE` names: a draft of the history, a kernel that kmint saved, or any other kernel file.

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

if TYPE_CHECKING:
    from kmint_tui.history.records import Reference
    from referee.device.jobs import TaskName
    from referee.ops import Op


@dataclass(frozen=True)
class Kernel:
    """A kernel's text, what it is for, and where it is from.

    `name` is the draft's id or the file's path; `draft` is set for a draft; `claim` is its timed verdict, or None.
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
        """Digest of the text that is measured."""
        return hashlib.sha256(self.source.encode("utf-8", "replace")).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """For the documents of the commands that measure it."""
        return {"name": self.name, "origin": self.origin, "source_sha256": self.source_sha256}


@dataclass(frozen=True)
class Claim:
    """What an earlier verdict said of a draft's speed, and where that was."""

    outcome: str
    ratio: float
    bar: str
    environment: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Outcome, ratio, bar, and the device and versions."""
        return {"outcome": self.outcome, "ratio": self.ratio, "bar": self.bar, **self.environment}


def chosen_kernel(wanted: str, op: str | None, reference: str | None = None) -> Kernel:
    """The kernel `wanted` names, for `op` or by the user's `reference` where given. Raises UsageError or EnvironmentUnfit."""
    if op is not None and reference is not None:
        raise UsageError("give --op or --reference, not both")
    if _looks_like_id(wanted):
        return _of_history(wanted, op, reference)
    return _of_file(wanted, op, reference)


def _looks_like_id(text: str) -> bool:
    session, _, number = text.partition(".")
    return (session + number).isdigit() and text.isascii() and not text.startswith(".")


def _of_history(wanted: str, op: str | None, reference: str | None) -> Kernel:
    from kmint_tui.history.records import parse_id
    from kmint_tui.history.store import History

    where = parse_id(wanted)
    if where.number is None:
        raise UsageError(f"{wanted} is a session; name one of its drafts", fix=f"for example {wanted}.0; a file of that name is ./{wanted}")
    if not paths.history_file().exists():
        raise UsageError("the history is empty", fix="`kmint mint softmax` is a start")
    with History(paths.history_file()) as history:
        session, draft = history.session(where.session), history.draft(where.session, where.number)
    if draft.duplicate_of is not None:
        same = f"{draft.session}.{draft.duplicate_of}"
        raise UsageError(f"{wanted} is the same kernel as {same}", fix=f"name {same}")
    found, task = _task(wanted, session.op, op, reference)
    return Kernel(draft.source, found, task, wanted, "history", where, _claim(draft.outcome, draft.verdict))


def _of_file(wanted: str, op: str | None, reference: str | None) -> Kernel:
    from kmint_tui.cli.judge import read_source
    from kmint_tui.save.judged_part import BEGIN, candidate_of
    from kmint_tui.save.single_file import provenance

    if wanted != "-" and not Path(wanted).exists():
        fix = "a draft is a number such as 12.3; `kmint history` lists them"
        raise UsageError(f"{wanted!r} is neither an id of the history nor a file", fix=fix)
    text = read_source(Path(wanted))
    block = provenance(text)
    if block is None or BEGIN not in text:
        found, task = _task(wanted, None, op, reference)
        return Kernel(text, found, task, wanted, "file")
    found, task = _task(wanted, str(block["op"]) if "op" in block else None, op, reference)
    return Kernel(candidate_of(text), found, task, wanted, "saved file")


def _task(wanted: str, known: str | None, op: str | None, reference: str | None) -> tuple[Op, TaskName]:
    """What the kernel is for: `known` by where it is from, `op` and `reference` as the user says."""
    from kmint_tui.cli.operations import operation
    from kmint_tui.cli.referee import wanted_task
    from referee.device.jobs import TaskName
    from referee.ops import UnknownOp, get

    if reference is not None:
        found, task = wanted_task(None, reference)
        return found, task if isinstance(task, TaskName) else TaskName(task)
    if op is not None:
        found = operation(op)
        if known is not None and op != known:
            raise UsageError(f"{wanted} is a kernel for {known}, not for {op}", fix="leave --op out")
        return found, TaskName(op)
    if known is None:
        raise UsageError(f"{wanted} does not say what it is for", fix="name the operation with --op; `kmint ops` lists them")
    try:
        return get(known), TaskName(known)
    except UnknownOp:
        fix = "`kmint gate` takes the reference it was minted by (--reference FILE.py:function); grids are of the catalogue"
        raise UsageError(f"{wanted} is for `{known}`, which is no operation of the catalogue", fix=fix) from None


def _claim(outcome: str | None, verdict: Mapping[str, Any] | None) -> Claim | None:
    timing = (verdict or {}).get("timing") or {}
    interval = timing.get("ratio")
    if outcome is None or not isinstance(interval, Mapping) or not isinstance(interval.get("ratio"), (int, float)):
        return None
    where = (verdict or {}).get("environment") or {}
    named = {name: where.get(name) for name in ("device", "cuda_driver", "torch", "triton")}
    return Claim(outcome, float(interval["ratio"]), str(timing.get("bar")), named)

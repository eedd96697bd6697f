"""Checks a saved kernel against its receipt: digests first, then a verdict with a new seed.

The digests find edits; the verdict finds wrong answers. Without a GPU the verdict is the weaker one
of Triton's interpreter, and says so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from kmint_tui.documents import read_bytes
from kmint_tui.errors import UsageError
from kmint_tui.save.judged_part import candidates_of
from kmint_tui.save.own_reference import ReferenceFile
from kmint_tui.save.receipt import BadReceipt, is_whole, load, referee_identity
from kmint_tui.save.single_file import provenance
from referee.verdict import Verdict
from referee.versions import compiler_name

FileState = Literal["unchanged", "edited", "missing"]
ReceiptState = Literal["whole", "changed", "missing", "unusable"]

Judge = Callable[[str, str], Verdict]
"""The referee's verdict on a candidate's text for the op of that name."""

LARGEST = 16 << 20
"""Bytes; a saved kernel has some kilobytes, and a receipt some hundreds at most."""
_ENVIRONMENT = ("device", "driver", "torch", "triton")
_UNREADABLE = "is missing or cannot be read as text"


@dataclass(frozen=True)
class Stale:
    """A part of the environment, or the reference, that changed since the kernel was saved."""

    name: str
    then: str
    now: str


@dataclass(frozen=True, kw_only=True)
class Verification:
    """The result for one saved kernel. `problems` are the reasons against it; it holds without any.

    `entries` has the verdict on each kernel of a file that chooses by shape; `verdict` is then the
    first that does not pass, or the first. `copies` are identical files, such as the built variants of a package.
    """

    file: Path
    op: str | None
    files: Mapping[str, FileState]
    receipt: ReceiptState
    stale: tuple[Stale, ...]
    verdict: Verdict | None
    problems: tuple[str, ...]
    copies: tuple[Path, ...] = ()
    entries: Mapping[str, Verdict] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """True if nothing changed and the referee passed the kernel."""
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        """For `kmint.verify/1`."""
        return {
            "file": str(self.file),
            "op": self.op,
            "holds": self.holds,
            "files": dict(self.files),
            "receipt": self.receipt,
            "stale": [asdict(stale) for stale in self.stale],
            "problems": list(self.problems),
            "copies": [str(copy) for copy in self.copies],
            "verdict": self.verdict.to_json() if self.verdict else None,
            "entries": {name: one.to_json() for name, one in self.entries.items()},
        }


def saved_kernels(path: Path) -> tuple[Path, ...]:
    """The kernel files that kmint saved at `path`, a file or a folder. Raises UsageError if there
    are none.
    """
    if not path.exists():
        raise UsageError(f"{path} does not exist")
    if path.is_file():
        return (path,)
    receipts = {_kernel_of(receipt) for receipt in path.rglob("*.receipt.json")}
    alone = {file for file in path.rglob("*.py") if "# /// kmint\n" in (_read(file) or "")}
    if not receipts | alone:
        raise UsageError(
            f"there is no saved kernel in {path}", fix="`kmint save ID --to DIR` puts one there"
        )
    return tuple(sorted(receipts | alone))


def without_copies(kernels: Sequence[Path]) -> dict[Path, tuple[Path, ...]]:
    """Each different kernel with its identical copies; the receipt and the files it lists count
    too.
    """
    groups: dict[object, list[Path]] = {}
    for file in kernels:
        receipt, _ = _receipt(file, [])
        states = tuple(_file_states(file, receipt).items())
        receipt_digest = _digest(file.parent, f"{file.stem}.receipt.json")
        # A file that cannot be read has no copies.
        alike = (_digest(file.parent, file.name), receipt_digest)
        groups.setdefault(file if None in alike else (*alike, file.name, states), []).append(file)
    return {first: tuple(others) for first, *others in groups.values()}


def own_reference(file: Path) -> ReferenceFile | None:
    """The user's reference in a saved kernel's provenance; None for a kernel of the catalogue."""
    origin = provenance(_read(file) or "") or {}
    return (
        ReferenceFile(origin["reference"], origin.get("reference_sha256", ""))
        if "reference" in origin
        else None
    )


def own_inputs(file: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The texts of `--input` and `--fix` in a saved kernel's provenance."""
    origin = provenance(_read(file) or "") or {}
    inputs, fixed = (origin.get(name) for name in ("inputs", "fixed"))
    return tuple(map(str, inputs if isinstance(inputs, list) else ())), tuple(
        map(str, fixed if isinstance(fixed, list) else ())
    )


def measured_shapes(file: Path) -> tuple[str, ...]:
    """The shapes in the receipt of a saved kernel, as `--shape` takes them."""
    receipt, _ = _receipt(file, [])
    rows = (receipt or {}).get("shapes") or ()
    return tuple(f"{one['rows']}x{one['columns']}:{one['dtype']}" for one in rows)


def verify(file: Path, judge: Judge | None, reference: ReferenceFile | None = None) -> Verification:
    """Check one saved kernel; without `judge` by its digests only.

    `reference` is the user's own reference that `judge` uses. A kernel that does not hold raises
    nothing.
    """
    problems: list[str] = []
    receipt, receipt_state = _receipt(file, problems)
    text = _read(file)
    if text is None:
        return Verification(
            file=file,
            op=None,
            files={file.name: "missing"},
            receipt=receipt_state,
            stale=(),
            verdict=None,
            problems=(*problems, f"{file.name} {_UNREADABLE}"),
        )
    origin = provenance(text) or {}
    if not origin:
        problems.append("the file has no provenance block")
    files = _file_states(file, receipt)
    words = {"edited": "is edited since it was judged", "missing": "is missing or cannot be read"}
    problems += [f"{name} {words[state]}" for name, state in files.items() if state in words]
    if receipt is not None:
        problems += _disagreements(origin, receipt)
    op = receipt["op"] if receipt else origin.get("op")
    verdicts = _judged(text, op, judge, problems) if judge else {}
    failed = [one for one in verdicts.values() if not one.passed]
    verdict = next(iter([*failed, *verdicts.values()]), None)
    stale = _stale(receipt, verdict, own_reference(file), reference) if receipt and verdict else ()
    if receipt:
        then = {one["entry"]: one for one in receipt.get("entries", ())}
        if verdicts and (len(then) or 1) != len(verdicts):
            problems.append(
                f"the receipt is for {len(then) or 1} kernels, the file has {len(verdicts)}"
            )
        for name, one in verdicts.items():
            if one.passed:
                problems += _lost(then.get(name, receipt), one)
    return Verification(
        file=file,
        op=op,
        files=files,
        receipt=receipt_state,
        stale=stale,
        verdict=verdict,
        problems=tuple(problems),
        entries=verdicts if len(verdicts) > 1 else {},
    )


def _kernel_of(receipt: Path) -> Path:
    return receipt.with_name(receipt.name.removesuffix(".receipt.json") + ".py")


def _receipt(file: Path, problems: list[str]) -> tuple[dict[str, Any] | None, ReceiptState]:
    text = _read(file.with_name(f"{file.stem}.receipt.json"))
    if text is None:
        problems.append(f"never judged here: {file.stem}.receipt.json {_UNREADABLE}")
        return None, "missing"
    try:
        receipt = load(text)
    except BadReceipt as error:
        problems.append(f"the receipt cannot be used: {error.message}")
        return None, "unusable"
    if is_whole(receipt):
        return receipt, "whole"
    problems.append("the receipt was changed since it was written")
    return receipt, "changed"


def _read(path: Path) -> str | None:
    """The text of a regular file; None if it does not exist, is too large for a saved file, or is
    no text.
    """
    try:
        return read_bytes(path, most_bytes=LARGEST).decode("utf-8")
    except (OSError, ValueError):
        return None


def _file_states(file: Path, receipt: Mapping[str, Any] | None) -> dict[str, FileState]:
    if receipt is None:
        return {}
    states: dict[str, FileState] = {}
    for name, digest in sorted({file.name: "", **receipt["files"]}.items()):
        found = _digest(file.parent, name)
        states[name] = "missing" if found is None else "unchanged" if found == digest else "edited"
    return states


def _digest(folder: Path, name: str) -> str | None:
    # A receipt lists plain names next to it; other names are not looked up.
    if not name or name != Path(name).name:
        return None
    try:
        return hashlib.sha256(read_bytes(folder / name, most_bytes=LARGEST)).hexdigest()
    except (OSError, ValueError):
        return None


def _disagreements(origin: Mapping[str, Any], receipt: Mapping[str, Any]) -> list[str]:
    """Differences between the file's own provenance and the receipt."""
    pairs = {
        "op": receipt.get("op"),
        "id": receipt.get("id"),
        "source_sha256": receipt.get("source_sha256"),
    }
    pairs["reference_sha256"] = (receipt.get("reference") or {}).get("sha256")
    if entries := receipt.get("entries"):
        pairs["drafts"] = [f"{one['id']} {one['source_sha256']}" for one in entries]
    differing = [name for name, value in pairs.items() if origin and origin.get(name) != value]
    return (
        [f"file and receipt belong to different kernels: their {' and '.join(differing)} differ"]
        if differing
        else []
    )


def _judged(text: str, op: str | None, judge: Judge, problems: list[str]) -> dict[str, Verdict]:
    """The verdict on each kernel of the file, by its entry; empty if it cannot be judged."""
    if op is None:
        problems.append("nothing says which operation it is for")
        return {}
    found: dict[str, Verdict] = {}
    try:
        candidates = candidates_of(text)
        for entry, candidate in candidates.items():
            verdict = found[entry] = judge(candidate, op)
            if not verdict.passed:
                which = "it" if len(candidates) == 1 else entry
                problems.append(f"the referee does not pass {which}: {verdict.reason}")
    except UsageError as error:
        problems.append(error.message)
        return {}
    return found


def _stale(
    receipt: Mapping[str, Any],
    verdict: Verdict,
    minted_by: ReferenceFile | None,
    given: ReferenceFile | None,
) -> tuple[Stale, ...]:
    then = receipt["verdict"].get("environment", {})
    changes = []
    for name in _ENVIRONMENT:
        before, now = (
            compiler_name(one) if name == "triton" else one.get(name)
            for one in (then, verdict.environment)
        )
        if before != now:
            changes.append(Stale(name, str(before), str(now)))
    judge, ours = receipt.get("referee", {}), referee_identity()
    if judge.get("sha256") != ours["sha256"]:
        changes.append(Stale("referee", _called(judge), _called(ours)))
    if minted_by and given and minted_by.sha256 != given.sha256:
        changes.append(Stale("reference", str(minted_by), str(given)))
    return tuple(changes)


def _called(judge: Mapping[str, Any]) -> str:
    return f"{judge.get('version')} ({judge.get('sha256', '')[:12]})"


def _lost(receipt: Mapping[str, Any], verdict: Verdict) -> list[str]:
    """Badges the receipt vouches for and the fresh verdict took away; cells that only one of the
    two has say nothing.
    """
    earned = {
        cell["name"] for cell in receipt["verdict"].get("cells", []) if cell["status"] == "pass"
    }
    lost = [cell.name for cell in verdict.cells if cell.status == "fail" and cell.name in earned]
    return (
        [f"it does not pass cells any more that it passed when it was saved: {', '.join(lost)}"]
        if lost
        else []
    )

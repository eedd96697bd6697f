"""Is a saved kernel what its receipt says? Digests first, then the referee again, with a seed nobody knew when it was written.

The digests tell edits; the fresh verdict tells whether what is there now is right. Without a GPU the verdict is the weaker one
of Triton's interpreter, and says so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from kmint_tui.errors import UsageError
from kmint_tui.save.judged_part import NoJudgedPart, candidate_of
from kmint_tui.save.own_reference import ReferenceFile
from kmint_tui.save.receipt import BadReceipt, is_whole, load
from kmint_tui.save.referee_identity import referee_identity
from kmint_tui.save.single_file import provenance
from referee.verdict import Verdict

FileState = Literal["unchanged", "edited", "missing"]
ReceiptState = Literal["whole", "changed", "missing", "unusable"]

Judge = Callable[[str, str], Verdict]
"""The referee's verdict on a candidate's text for the op of that name."""

_ENVIRONMENT = ("device", "driver", "torch", "triton")


@dataclass(frozen=True)
class Stale:
    """Something of the environment, or the reference, that is not what it was when the kernel was saved."""

    name: str
    then: str
    now: str


@dataclass(frozen=True)
class Verification:
    """What was found of one saved kernel. `problems` are the reasons for which it does not hold, in words; none: it holds."""

    file: Path
    op: str | None
    files: Mapping[str, FileState]
    receipt: ReceiptState
    stale: tuple[Stale, ...]
    verdict: Verdict | None
    problems: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """True when everything is as it was and the referee passes it."""
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
            "verdict": self.verdict.to_json() if self.verdict else None,
        }


def saved_kernels(path: Path) -> tuple[Path, ...]:
    """The kernel files that kmint saved at `path`, a file or a folder. Raises UsageError when there are none."""
    if not path.exists():
        raise UsageError(f"{path} does not exist")
    if path.is_file():
        return (path,)
    receipts = {_kernel_of(receipt) for receipt in path.rglob("*.receipt.json")}
    alone = {file for file in path.rglob("*.py") if "# /// kmint\n" in file.read_text(encoding="utf-8", errors="replace")}
    if not receipts | alone:
        raise UsageError(f"there is no saved kernel in {path}", fix="`kmint save ID --to DIR` puts one there")
    return tuple(sorted(receipts | alone))


def own_reference(file: Path) -> ReferenceFile | None:
    """The reference of the user's own that a saved kernel was judged by, as its provenance says; None if it was not by one."""
    origin = provenance(_read(file) or "") or {}
    return ReferenceFile(str(origin["reference"]), str(origin.get("reference_sha256"))) if "reference" in origin else None


def verify(file: Path, judge: Judge | None, reference: ReferenceFile | None = None) -> Verification:
    """Check one saved kernel; without `judge` by its digests only. Raises nothing for a kernel that does not hold.

    `reference` is the one that `judge` judges by, when that is the user's own.
    """
    problems: list[str] = []
    receipt, receipt_state = _receipt(file, problems)
    text = _read(file)
    if text is None:
        return Verification(file, None, {file.name: "missing"}, receipt_state, (), None, (*problems, f"{file.name} is missing or not text"))
    origin = provenance(text) or {}
    if not origin:
        problems.append("the file has no provenance block")
    files = _file_states(file, receipt)
    words = {"edited": "is edited since it was judged", "missing": "is missing"}
    problems += [f"{name} {words[state]}" for name, state in files.items() if state in words]
    if receipt is not None:
        problems += _disagreements(origin, receipt)
    op = str(receipt["op"]) if receipt else origin.get("op")
    verdict = _judged(text, op, judge, problems) if judge else None
    stale = _stale(receipt, verdict, own_reference(file), reference) if receipt and verdict else ()
    if receipt and verdict and verdict.passed:
        problems += _lost(receipt, verdict)
    return Verification(file, op, files, receipt_state, stale, verdict, tuple(problems))


def _kernel_of(receipt: Path) -> Path:
    return receipt.with_name(receipt.name.removesuffix(".receipt.json") + ".py")


def _receipt(file: Path, problems: list[str]) -> tuple[dict[str, Any] | None, ReceiptState]:
    text = _read(file.with_name(f"{file.stem}.receipt.json"))
    if text is None:
        problems.append(f"{file.stem}.receipt.json is missing")
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
    try:
        return path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _file_states(file: Path, receipt: Mapping[str, Any] | None) -> dict[str, FileState]:
    if receipt is None:
        return {}
    states: dict[str, FileState] = {}
    known = {str(name): str(digest) for name, digest in receipt["files"].items()}
    for name, digest in sorted({file.name: "", **known}.items()):
        # A receipt's names are plain names beside it; anything else is not looked up.
        path = file.with_name(name) if name == Path(name).name else None
        if path is None or not path.is_file():
            states[name] = "missing"
        else:
            states[name] = "unchanged" if hashlib.sha256(path.read_bytes()).hexdigest() == digest else "edited"
    return states


def _disagreements(origin: Mapping[str, Any], receipt: Mapping[str, Any]) -> list[str]:
    """Where the file's own provenance names another kernel than the receipt."""
    pairs = {"op": receipt.get("op"), "id": receipt.get("id"), "source_sha256": receipt.get("source_sha256")}
    pairs["reference_sha256"] = _mapping(receipt.get("reference")).get("sha256")
    differing = [name for name, value in pairs.items() if origin and origin.get(name) != value]
    return [f"file and receipt belong to different kernels: their {' and '.join(differing)} differ"] if differing else []


def _judged(text: str, op: str | None, judge: Judge, problems: list[str]) -> Verdict | None:
    if op is None:
        problems.append("nothing says which operation it is for")
        return None
    try:
        candidate = candidate_of(text)
    except NoJudgedPart as error:
        problems.append(error.message)
        return None
    try:
        verdict = judge(candidate, op)
    except UsageError as error:
        problems.append(error.message)
        return None
    if not verdict.passed:
        problems.append(f"the referee does not pass it: {verdict.reason}")
    return verdict


def _stale(receipt: Mapping[str, Any], verdict: Verdict, minted_by: ReferenceFile | None, given: ReferenceFile | None) -> tuple[Stale, ...]:
    then = _mapping(receipt["verdict"].get("environment"))
    changes = []
    for name in _ENVIRONMENT:
        before, now = then.get(name), verdict.environment.get(name)
        if before != now:
            changes.append(Stale(name, str(before), str(now)))
    judge, ours = _mapping(receipt.get("referee")), referee_identity()
    if judge.get("sha256") != ours["sha256"]:
        changes.append(Stale("referee", _called(judge), _called(ours)))
    if minted_by and given and minted_by.sha256 != given.sha256:
        changes.append(Stale("reference", str(minted_by), str(given)))
    return tuple(changes)


def _called(judge: Mapping[str, Any]) -> str:
    return f"{judge.get('version')} ({str(judge.get('sha256'))[:12]})"


def _lost(receipt: Mapping[str, Any], verdict: Verdict) -> list[str]:
    """Badges the receipt vouches for and the fresh verdict took away; cells that only one of the two has say nothing."""
    cells = receipt["verdict"].get("cells")
    judged = map(_mapping, cells if isinstance(cells, list) else ())
    earned = {str(cell.get("name")) for cell in judged if cell.get("status") == "pass"}
    lost = [cell.name for cell in verdict.cells if cell.status == "fail" and cell.name in earned]
    return [f"it does not pass cells any more that it passed when it was saved: {', '.join(lost)}"] if lost else []


def _mapping(value: object) -> Mapping[str, Any]:
    """What a receipt holds there, nothing where somebody put something else."""
    return value if isinstance(value, Mapping) else {}

"""A reference that the user brought: how it is told in a saved kernel, and with which inputs a verdict by it judged a kernel.

What is kept of it is the file's name, not its path, which is of no use elsewhere, and its digest; modules that it imports are not
covered by that.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kmint_tui.errors import UsageError
from kmint_tui.save.host_code import NotSaveable
from referee.ops import Cell
from referee.ops.cells import Profile, contiguous_strides
from referee.verdict import Verdict

_EXAMPLE = re.compile(r"example\d+-")
_PROFILES: dict[str, Profile] = {"interpret": "cpu", "replay": "gpu"}


@dataclass(frozen=True)
class ReferenceFile:
    """A reference as a saved kernel keeps it: `FILE.py` or `FILE.py:function` without the folder, and the file's sha256."""

    name: str
    sha256: str

    def __str__(self) -> str:
        return f"{self.name} ({self.sha256[:12]})"


@dataclass(frozen=True)
class OwnReference:
    """The reference that a kernel is saved by, and the cells that are made of its examples."""

    file: ReferenceFile
    cells: Callable[[Profile], Sequence[Cell]]


@dataclass(frozen=True)
class Argument:
    """One argument as it was judged."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Judged:
    """Exactly what a kernel was judged by and with: the arguments' names, and every combination of their shapes and dtypes."""

    reference: ReferenceFile
    names: tuple[str, ...]
    signatures: tuple[tuple[Argument, ...], ...]

    def to_json(self) -> dict[str, Any]:
        """For the receipt."""
        signatures = [
            {name: {"shape": list(one.shape), "dtype": one.dtype} for name, one in zip(self.names, signature, strict=True)}
            for signature in self.signatures
        ]
        return {"signatures": signatures}


def reference_file(text: str) -> ReferenceFile:
    """The reference that `--reference TEXT` names. Raises UsageError when it cannot be read."""
    from referee.ops.user import split_reference

    path, function = split_reference(text)
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", title="reference not usable") from error
    return ReferenceFile(f"{path.name}:{function}" if function else path.name, digest)


def judged_by_own(verdict: Mapping[str, Any] | None) -> bool:
    """True for a verdict (`kmint.verdict/1`) by a reference of the user's: its cells are the reference's examples."""
    return any(_EXAMPLE.match(str(cell.get("name"))) for cell in (verdict or {}).get("cells") or ())


def judged(names: tuple[str, ...], own: OwnReference, verdict: Verdict) -> Judged:
    """What the verdict vouches for: the inputs of the required cells that passed. Raises NotSaveable when there are none.

    A saved kernel takes contiguous tensors, so that only examples with nothing else count.
    Only the verdict on the saved form counts: an earlier one may be by the same file with other examples in it.
    """
    passed = {cell.name for cell in verdict.cells if cell.status == "pass" and cell.role != "capability"}
    cells = [cell for cell in own.cells(_PROFILES[verdict.mode]) if cell.name in passed]
    contiguous = [cell for cell in cells if all(spec.strides == contiguous_strides(spec.shape) for spec in cell.inputs)]
    signatures = dict.fromkeys(tuple(Argument(spec.shape, spec.dtype) for spec in cell.inputs) for cell in contiguous)
    if cells and not signatures:
        reason = "it was judged with tensors that are not contiguous, and a saved kernel takes contiguous ones only"
        raise NotSaveable(reason, fix="make the examples of the reference contiguous, or add such an example, and mint again")
    if not signatures:
        raise NotSaveable("its verdict names no example of the reference at which it passed")
    return Judged(own.file, names, tuple(signatures))

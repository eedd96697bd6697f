"""The request for a reference: a file, a name in it, inputs and fixed values, as texts.
Torch-free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True)
class Asked:
    """A request. `function` None means the file's `Model` or its only function.

    `inputs` and `fixed` are texts of `--input` and `--fix`.
    """

    file: str
    function: str | None = None
    inputs: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.file}:{self.function}" if self.function else self.file

    @property
    def located(self) -> Asked:
        """The same reference by its file's absolute path."""
        return replace(self, file=str(Path(self.file).resolve()))

    def words(self) -> list[str]:
        """The command-line options for this request."""
        inputs = [word for text in self.inputs for word in ("--input", text)]
        return [
            "--reference",
            str(self),
            *inputs,
            *(word for text in self.fixed for word in ("--fix", text)),
        ]

    def remembering(self, inputs: Sequence[str], fixed: Sequence[str]) -> Asked:
        """The request with earlier inputs and fixed values, if it has none itself."""
        return (
            self
            if self.inputs or self.fixed
            else replace(self, inputs=tuple(inputs), fixed=tuple(fixed))
        )


def split_reference(reference: str) -> tuple[Path, str | None]:
    """Split `FILE.py:function` into path and function name; the name is None for `FILE.py`."""
    file, colon, name = reference.rpartition(".py:")
    return (Path(file + ".py"), name) if colon else (Path(reference), None)

"""A kernel file for `kmint judge`: its text, its operation by the name, a `ModelNew` as `run`."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kmint_tui.errors import UsageError

if TYPE_CHECKING:
    from referee.ops import Op
    from referee.reference.asked import Asked

MAX_BYTES = 1 << 20
STDIN = "-"
_GIVE_OP = "name it with --op OP, or judge by your own function with --reference FILE.py:function"


@dataclass(frozen=True)
class KernelFile:
    """A file that was read. `name` is for messages; `op` is None where a reference judges it."""

    name: str
    source: str
    op: str | None
    notes: tuple[str, ...] = ()


def read_kernel(file: Path, op: str | None, reference: Asked | None) -> KernelFile:
    """The file and its operation, which is guessed without `op` and `reference`.

    Raises UsageError for a file that cannot be a kernel, and where the guess fails.
    """
    name, source = shown_name(file), read_source(file)
    if op is not None or reference is not None:
        return KernelFile(name, source, op)
    if str(file) == STDIN:
        raise UsageError("the operation of a kernel from standard input is not known", fix=_GIVE_OP)
    guessed = guessed_operation(file.name)
    return KernelFile(
        name, source, guessed, (f"{name} is taken for a kernel of {guessed}, by its name",)
    )


def guessed_operation(name: str) -> str:
    """The operation with the longest name among the words of a file's name.

    Raises UsageError where the name holds none, or two of equal length.
    """
    from referee.ops import UnknownOp, get

    words = [word for word in re.split(r"[^a-z0-9]+", Path(name).stem.lower()) if word]
    for count in range(len(words), 0, -1):
        found = []
        for start in range(len(words) - count + 1):
            try:
                found.append(get("_".join(words[start : start + count])).name)
            except UnknownOp:
                continue
        if len(set(found)) == 1:
            return found[0]
        if found:
            listed = " and of ".join(dict.fromkeys(found))
            raise UsageError(
                f"{name} may be a kernel of {listed}", title="operation not known", fix=_GIVE_OP
            )
    raise UsageError(
        f"the name of {name} says no operation", title="operation not known", fix=_GIVE_OP
    )


def as_run(kernel: KernelFile, op: Op, reference: Asked | None) -> KernelFile:
    """The kernel with `run` in place of a class `ModelNew`, and a note of it. Raises NotWrapped."""
    from kmint_tui.model_new import CLASS, is_model_new, literal_init, wrapped
    from referee.ops import signature

    if CLASS not in kernel.source or not is_model_new(kernel.source):
        return kernel
    init = literal_init(_text(Path(reference.file))) if reference else ()
    names = op.arguments or tuple(signature(op))
    made = wrapped(kernel.source, names, init)
    note = f"{kernel.name}: {CLASS}.forward is judged as {made.signature}"
    return KernelFile(kernel.name, made.source, kernel.op, (*kernel.notes, note))


def shown_name(file: Path) -> str:
    """The name of a file in messages."""
    return "stdin" if str(file) == STDIN else str(file)


def read_source(file: Path) -> str:
    """The text of a kernel file.

    Raises UsageError for an unreadable, empty, binary or too long file.
    """
    name = shown_name(file)
    try:
        if str(file) == STDIN:
            content = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with file.open("rb") as stream:
                content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(
            f"{name} cannot be read: {error.strerror or error}",
            title="draft not readable",
            fix="give the path of a kernel file, or - to read one from standard input",
        ) from error
    return kernel_text(content, name)


def kernel_text(content: bytes, name: str) -> str:
    """The text of a kernel. Raises UsageError for empty, binary or too long content."""
    from referee.reading.source import unfenced

    if len(content) > MAX_BYTES:
        raise UsageError(
            f"{name} is longer than {MAX_BYTES} bytes",
            title="draft not readable",
            fix="a kernel file is a few kilobytes long",
        )
    try:
        source = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{name} is not UTF-8 text (byte {error.start})",
            title="draft not readable",
            fix="save it as UTF-8",
        ) from error
    if not source.strip():
        raise UsageError(
            f"{name} is empty",
            title="draft not readable",
            fix="a kernel file holds a @triton.jit kernel and a function `run`",
        )
    return unfenced(source)


def _text(file: Path) -> str:
    """The text of a reference; empty where it cannot be read, which loading it reports."""
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""

"""The arguments of each tool: dataclasses, their JSON schema, and the conversion of an agent's
JSON.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Literal, TypeVar, get_args, get_origin

from kmint_tui.errors import UsageError
from kmint_tui.typed import Mistyped, made

Kind = TypeVar("Kind")
_TITLE = "arguments not usable"


def _argument(text: str, default: Any = None) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class Search:
    """Arguments of `list_operations`."""

    search: str | None = _argument(
        "Only operations that hold all these words, by any of their usual names."
    )


@dataclass(frozen=True)
class Named:
    """Arguments of `show_operation`."""

    op: str = field(
        metadata={"help": "An operation, by its name or by words such as 'rmsnorm residual silu'."}
    )


@dataclass(frozen=True)
class Given:
    """A kernel, and the operation or reference that judges it."""

    source: str | None = _argument("The whole text of the kernel file, which defines `run`.")
    file: str | None = _argument("A kernel file below the server's folders, in place of `source`.")
    op: str | None = _argument("The operation of the catalogue that the kernel is for.")
    reference: str | None = _argument(
        "FILE.py:function below the server's folders, in place of `op`; it runs as the user."
    )
    inputs: tuple[str, ...] = _argument(
        "Inputs of the reference, such as 'x=bf16[B,4096] eps=1e-6'.", ()
    )
    fixed: tuple[str, ...] = _argument("Numbers of the reference to fix, as NAME=VALUE.", ())


@dataclass(frozen=True)
class Kernel(Given):
    """A kernel, and how it is judged."""

    level: Literal["screen", "compile", "correct", "full"] = _argument(
        "How far to go; without a GPU `full` means `correct`.", "full"
    )
    target: str | None = _argument("GPU to compile for, such as sm_90; by default the one here.")


@dataclass(frozen=True)
class Judged(Kernel):
    """Arguments of `judge`."""

    session: str | None = _argument(
        "Keep the kernel in the history, as a draft of the session of this name."
    )


@dataclass(frozen=True)
class Explained(Kernel):
    """Arguments of `explain`: a draft of the history, or a kernel in the form of `judge`."""

    draft: str | None = _argument("A draft of the history such as 12.3, in place of a kernel.")
    edit: bool = _argument(
        "Also look for a small edit that helps, which takes further judgements.", True
    )


@dataclass(frozen=True)
class Tuned(Given):
    """Arguments of `tune`: a draft of the history, or a kernel in the form of `judge`; a saved one
    too.
    """

    draft: str | None = _argument(
        "A draft of the history such as 12.3, in place of a kernel; the tuned kernel joins its "
        "session."
    )
    session: str | None = _argument(
        "Keep a kernel that is no draft, and the tuned one, in the session of this name."
    )


@dataclass(frozen=True)
class Saved:
    """Arguments of `save`."""

    draft: str = field(metadata={"help": "A draft that passed, such as 12.3."})
    folder: str = field(metadata={"help": "Where to save, below the server's folders."})
    format: Literal["file", "hf-kernel"] = _argument(
        "One file with receipt and test, or a package for Hugging Face `kernels`.", "file"
    )
    reference: str | None = _argument("The reference that the draft was judged by, if it was one.")
    force: bool = _argument("Overwrite files that were edited since they were saved.", False)


@dataclass(frozen=True)
class Looked:
    """Arguments of `history`."""

    id: str | None = _argument(
        "A session such as 12, or a draft such as 12.3; without it, the newest sessions."
    )
    op: str | None = _argument("Only sessions of this operation.")
    limit: int = _argument("At most this many sessions.", 20)


@dataclass(frozen=True)
class Minted:
    """Arguments of `mint`."""

    op: str = field(metadata={"help": "An operation of the catalogue."})
    drafts: int = _argument("How many kernels the local model drafts, 1 to 64.", 4)
    model: str | None = _argument("A model that is on this machine; by default the best one.")
    seed: int | None = _argument("Repeats a session.")
    until: Literal["best", "first"] = _argument(
        "Judge every draft, or stop at the first that wins.", "best"
    )
    repair: int = _argument("Rounds of repairs for rejected drafts, 0 to 8.", 0)


def arguments(kind: type[Kind], given: Mapping[str, Any] | None) -> Kind:
    """The arguments that an agent sent. Raises UsageError for names that the tool does not know,
    and for wrong types.
    """
    given = dict(given or {})
    known = [one.name for one in fields(kind)]  # type: ignore[arg-type]
    if unknown := [name for name in given if name not in known]:
        raise UsageError(
            f"the tool takes no argument {unknown[0]:.60}",
            title=_TITLE,
            fix=f"it takes {', '.join(known)}",
        )
    try:
        return made(
            kind, {name: value for name, value in given.items() if value is not None}, "the call"
        )
    except Mistyped as error:
        raise UsageError(str(error), title=_TITLE, fix="see the tool's schema") from None


def schema(kind: type[Any]) -> dict[str, Any]:
    """The JSON schema of a tool's arguments."""
    hints = typing.get_type_hints(kind)
    properties = {}
    for one in fields(kind):
        properties[one.name] = {**_type(hints[one.name]), "description": one.metadata["help"]}
        if one.default is not MISSING and one.default not in (None, ()):
            properties[one.name]["default"] = one.default
    required = [one.name for one in fields(kind) if one.default is MISSING]
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _type(hint: Any) -> dict[str, Any]:
    plain: dict[Any, str] = {str: "string", int: "integer", bool: "boolean"}
    if get_origin(hint) in (typing.Union, types.UnionType):
        (hint,) = [one for one in get_args(hint) if one is not type(None)]
    if get_origin(hint) is Literal:
        return {"type": "string", "enum": list(get_args(hint))}
    if get_origin(hint) is tuple:
        return {"type": "array", "items": {"type": "string"}}
    return {"type": plain[hint]}

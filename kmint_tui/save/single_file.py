"""The text of a saved kernel: docstring, judged code, wrapper, and a provenance block for programs.

The provenance block is TOML in comments, like PEP 723, so that a copied file still says its origin.
"""

from __future__ import annotations

import builtins
import json
import keyword
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NotRequired, TypedDict

from kmint_tui.documents import parse_toml
from kmint_tui.escapes import visible_json
from kmint_tui.save import choosing
from kmint_tui.save.choosing import Choice
from kmint_tui.save.import_lines import in_order
from kmint_tui.save.judged_part import BEGIN, END, ENTRY_NAME, JudgedPart
from kmint_tui.save.line_width import WIDTH, narrow, paragraph, plain
from kmint_tui.save.operator_code import Registration
from kmint_tui.save.own_reference import Judged, Signature
from kmint_tui.save.support import Support
from kmint_tui.save.user_wrapper import judged_constants, user_wrapper
from kmint_tui.save.wrapper import constants, imports, wrapper
from kmint_tui.typed import typed
from referee.ops import Op
from referee.ops.signatures import KINDS
from referee.reading.allowed_words import RESERVED

_OPEN, _CLOSE = "# /// kmint", "# ///"
_MYPY = """# Triton has no types, and its kernels none that a type checker knows.
# mypy: allow-untyped-defs, allow-untyped-decorators, allow-untyped-calls, allow-any-generics
# mypy: allow-incomplete-defs, disable-error-code="import-untyped"
"""
_MOST_SHAPES = 8

_NO_STEMS = (
    frozenset(keyword.kwlist) | frozenset(dir(builtins)) | frozenset(sys.stdlib_module_names)
    | RESERVED | frozenset("ARGUMENTS JUDGED NUMBERS TENSORS conftest numpy pytest".split())
)  # fmt: skip
"""Names that a saved file may not have: its function would hide another name, or the file a module.
"""


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """The origin of a kernel. `verdict`, `reach` and `measured` are in words.

    For several kernels the other fields are those of the first one. `licence` is an SPDX
    expression, NOASSERTION by default; `versions` are by package.
    """

    op: str
    id: str
    created: str
    model: str
    model_sha256: str
    prompt_sha256: str
    seed: int
    draft_seed: int
    source_sha256: str
    verdict: str
    reach: str
    measured: str
    licence: str
    versions: Mapping[str, str]
    drafts: tuple[str, ...] = ()
    """Id and digest of each draft of a file that chooses by shape; empty for one kernel."""
    by_kmint: bool = False
    """Whether kmint's template or tuner wrote it, which `model` then names."""


def file_stem(op: Op) -> str:
    """The name of the saved file without its ending: the operation's name as an identifier."""
    stem = re.sub(r"\W", "_", op.name)
    # The other names in the file begin with an underscore.
    return (
        stem
        if stem.isidentifier() and not stem.startswith("_") and stem not in _NO_STEMS
        else f"op_{stem}"
    )


def render(
    op: Op,
    parts: Sequence[JudgedPart],
    support: Support | Judged,
    how: Registration | None,
    namespace: str,
    origin: Provenance,
    choice: Choice | None = None,
) -> str:
    """The saved file's text.

    For a user's own reference `support` holds its judged inputs, and `how` is None. With a `choice`
    each row of its table names the entry of one part.
    """
    stem = file_stem(op)
    judged = "\n\n".join(f"{BEGIN}\n\n{part.text}\n\n{END}\n" for part in parts)
    more = list(dict.fromkeys(line for part in parts for line in part.imports))
    if isinstance(support, Judged) or how is None:
        assert isinstance(support, Judged)
        head = [
            "import torch",
            "import triton",
            "import triton.language as tl",
            "from torch import Tensor",
            *more,
        ]
        rest = user_wrapper(support, stem, ENTRY_NAME)
        public = [stem]
        limits = judged_constants(support) + "\n"
    else:
        head = [*imports(how, chooses=choice is not None), *more]
        rest = wrapper(op, stem, namespace, support, how, choice)
        public = [*sorted([stem, "reference"])]
        limits = constants(support) + "\n"
    if "F." not in rest:
        head = [line for line in head if not line.endswith(" as F")]
    lines = [
        f"# SPDX-License-Identifier: {origin.licence}",
        _docstring(op, stem, support, how, origin, choice),
        _MYPY,
        "\n".join(in_order(head)),
        "",
        f"__all__ = {json.dumps(public)}",
        "",
        limits + judged,
        "",
        rest,
        "",
        _block(origin, support),
    ]
    return narrow("\n".join(lines)) + "\n"


class ProvenanceBlock(TypedDict):
    """The fields of a provenance block that kmint's own readers need."""

    op: NotRequired[str]
    id: NotRequired[str]
    source_sha256: NotRequired[str]
    drafts: NotRequired[list[str]]
    reference: NotRequired[str]
    reference_sha256: NotRequired[str]
    inputs: NotRequired[list[str]]
    fixed: NotRequired[list[str]]


def provenance(text: str) -> dict[str, Any] | None:
    """The `ProvenanceBlock` of a saved file with all of its keys; None if it cannot be read."""
    lines = text.splitlines()
    try:
        begin = lines.index(_OPEN)
        end = lines.index(_CLOSE, begin)
        block = parse_toml(
            "\n".join(line.removeprefix("#").strip() for line in lines[begin + 1 : end])
        )
        found: dict[str, Any] = typed(block, ProvenanceBlock)
    except ValueError:
        return None
    return found


def verify_command(stem: str, support: Support | Judged) -> str:
    """The command that judges a saved file again."""
    # The folder is left to the reader: the reference may well have the name of the saved file.
    option = (
        f" --reference {shlex.quote(f'PATH/TO/{support.reference.name}')}"
        if isinstance(support, Judged)
        else ""
    )
    return plain(f"kmint verify {stem}.py{option}")


def _docstring(
    op: Op,
    stem: str,
    support: Support | Judged,
    how: Registration | None,
    origin: Provenance,
    choice: Choice | None,
) -> str:
    """The first line in plain words, five lines of receipt, and how to call it."""
    judged = isinstance(support, Judged)
    versions = ", ".join(
        f"{name} {origin.versions[name]}"
        for name in ("torch", "triton")
        if origin.versions.get(name)
    )
    receipt = {
        "What": op.formula,
        "Inputs": "those in JUDGED" if isinstance(support, Judged) else _accepted(support),
        "When": f"{origin.created[:10]}{f', with {versions}' if versions else ''}",
        "Author": _authors(origin),
        "Result": origin.reach,
    }
    title = plain(op.title)
    lines = [
        *_titled(title[:1].upper() + title[1:]),
        "",
        *(line for name, text in receipt.items() for line in _field(name, plain(text))),
        "",
        *(
            _own_contract(stem, support)
            if isinstance(support, Judged)
            else _contract(op, stem, support, how)
        ),
        *(paragraph(choosing.sentence(choice)) if choice else []),
        *paragraph(plain(origin.measured)),
        *paragraph(
            f"{stem}.receipt.json holds the "
            f"evidence{'' if judged else f' and test_{stem}.py tests the kernel'}."
            " Judge it again:"
        ),
        "",
        f"    {verify_command(stem, support)}",
        '"""',
        "",
    ]
    return "\n".join(lines)


def _authors(origin: Provenance) -> str:
    if not origin.drafts:
        author = origin.model if origin.by_kmint else f"the model {origin.model}"
        return f"{author}; kmint judged it as draft {origin.id}"
    names = [one.partition(" ")[0] for one in origin.drafts]
    return f"{origin.model}; kmint judged drafts {', '.join(names)}"


def _titled(title: str) -> list[str]:
    """The title; a long one fills separate lines."""
    long = f'"""{title}, as a fused Triton kernel.'
    return [long] if len(long) <= WIDTH else paragraph(f'"""{title}.')


def _field(name: str, text: str) -> list[str]:
    """One field of the receipt; a long one continues on lines indented below its text."""
    return paragraph(f"{name + ':':<9}{text}", after=" " * 9)


def _accepted(support: Support) -> str:
    columns = (
        f"one of {', '.join(map(str, support.heads))}"
        if support.heads
        else f"1 to {support.max_columns}"
    )
    layout = "contiguous, or with a gap after rows" if support.padded else "contiguous"
    late = (
        f"; not judged, as time ran out: {', '.join(support.unjudged)}" if support.unjudged else ""
    )
    return f"{', '.join(support.dtypes)}; last dimension {columns}; {layout}{late}"


def _own_contract(stem: str, judged: Judged) -> list[str]:
    shapes = list(dict.fromkeys(map(_shapes, repeat(judged.tensors), judged.signatures)))
    numbers = [
        f"{one.name} judged at {', '.join(f'{value:g}' for value in one.values)}"
        for one in judged.numbers
    ]
    wrapped = [line for shape in shapes[:_MOST_SHAPES] for line in paragraph(shape, before="    ")]
    return [
        *paragraph(f"{stem}({', '.join(judged.names)})", before="    "),
        "",
        *paragraph(
            f"Judged by a reference of the user's own, {plain(judged.reference.name)}. It takes"
            " contiguous tensors on one GPU, with the shapes and dtypes that were judged."
            " They are those in JUDGED below, and in the receipt under `support`. A name is a"
            " size that was judged at several numbers."
        ),
        "",
        *wrapped,
        *(["    and others"] if len(shapes) > _MOST_SHAPES else []),
        "",
        *([*paragraph(f"Numbers: {'; '.join(numbers)}.")] if numbers else []),
        *paragraph(
            "For other shapes give them with --input, or add them to the examples of the reference,"
            " and mint again. It has no backward, and says so."
        ),
    ]


def _shapes(names: Sequence[str], signature: Signature) -> str:
    """The tensors of one signature in one line, with the ranges of their sizes."""
    leading = signature.leading.symbol if signature.leading else ""
    tensors = []
    for name, one in zip(names, signature.tensors, strict=True):
        sizes = [
            "..." if leading and str(size) == leading and number == 0 else str(size)
            for number, size in enumerate(one.shape)
        ]
        tensors.append(f"{name} {one.dtype} [{', '.join(sizes)}]")
    ranges = [
        f"{symbol} {one.least} to {one.most}{f' by {one.multiple}' if one.multiple > 1 else ''}"
        for symbol, one in signature.sizes
        if one.most is not None
    ]
    return plain("; ".join([", ".join(tensors), *ranges]))


def _contract(op: Op, stem: str, support: Support, how: Registration | None) -> list[str]:
    arguments = ", ".join(parameter.name for parameter in KINDS[op.kind].parameters)
    layout = "matrices may have a gap after every row, " if support.padded else ""
    most = "of any size" if support.large else "of at most 2**31 - 1 elements"
    kept = "propagate" if support.nonfinite else "in the input are not promised to propagate"
    return [
        f"    {stem}({arguments}) -> Tensor",
        "",
        *paragraph(
            f"It takes contiguous tensors {most}, also views with an offset and no rows at all;"
            f" {layout}and there may be several leading dimensions. copy=True takes any layout. "
            "On the"
            f" CPU reference() computes the answer. NaN and infinities {kept} as in PyTorch."
            f" It works under torch.compile(fullgraph=True) as a {how}; an eager call launches the"
            " kernel itself. Gradients are those of reference(), which is then computed again."
        ),
    ]


def _block(origin: Provenance, support: Support | Judged) -> str:
    told = ("versions", "reach", "measured", "drafts")
    values = {name: value for name, value in vars(origin).items() if name not in told}
    if origin.drafts:
        values["drafts"] = list(origin.drafts)
    if isinstance(support, Judged):
        values |= {
            "reference": support.reference.name,
            "reference_sha256": support.reference.sha256,
        }
        values |= {"inputs": list(support.inputs), "fixed": list(support.fixed)}
    lines = [line for name, value in values.items() for line in _entry(name, value)]
    lines += [
        f"# versions.{_toml(name)} = {_toml(version)}" for name, version in origin.versions.items()
    ]
    return "\n".join([_OPEN, *lines, _CLOSE])


def _entry(name: str, value: str | int | list[str]) -> list[str]:
    """One value; a list takes several lines."""
    if not isinstance(value, list) or not value:
        return [f"# {name} = {_toml(value)}"]
    return [f"# {name} = [", *(f"#   {_toml(one)}," for one in value), "# ]"]


def _toml(value: str | int | list[str]) -> str:
    """A value as TOML: a JSON string in ASCII, with the one character escaped that TOML does not
    allow.
    """
    return visible_json(json.dumps(value))

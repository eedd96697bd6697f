"""The text of a saved kernel: a docstring for people, a provenance block for machines, the judged code and its wrapper.

The provenance block is TOML in comments, in the manner of PEP 723, so that a file copied alone still says where it is from.
"""

from __future__ import annotations

import builtins
import json
import keyword
import re
import shlex
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kmint_tui.save.judged_part import BEGIN, END, ENTRY_NAME, JudgedPart
from kmint_tui.save.own_reference import Judged
from kmint_tui.save.support import Support
from kmint_tui.save.traceable import Registration
from kmint_tui.save.user_wrapper import judged_constants, user_wrapper
from kmint_tui.save.vocabulary import RESERVED
from kmint_tui.save.wrapper import constants, imports, wrapper
from referee.ops import Op
from referee.ops.signatures import KINDS

_OPEN, _CLOSE = "# /// kmint", "# ///"

_NO_STEMS = (
    frozenset(keyword.kwlist) | frozenset(dir(builtins)) | frozenset(sys.stdlib_module_names) | RESERVED
    | frozenset("ARGUMENTS JUDGED conftest numpy pytest".split())
)  # fmt: skip
"""No file is called like these: its function would hide a name that it uses, or the file a module from everything beside it."""


@dataclass(frozen=True)
class Provenance:
    """Where a kernel comes from. `verdict` and `measured` are in words, `versions` by package."""

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
    measured: str
    versions: Mapping[str, str]


def file_stem(op: Op) -> str:
    """The name of the saved file without its ending: the op's, made a name that a Python file and its function may have."""
    stem = re.sub(r"\W", "_", op.name)
    # What the file binds beside its function begins with an underscore.
    return stem if stem.isidentifier() and not stem.startswith("_") and stem not in _NO_STEMS else f"op_{stem}"


def render(op: Op, part: JudgedPart, support: Support | Judged, how: Registration | None, namespace: str, origin: Provenance) -> str:
    """The saved file's text; for a user's own reference `support` is what it was judged with, and `how` is None."""
    stem = file_stem(op)
    judged = f"{BEGIN}\n\n{part.text}\n\n{END}\n"
    if isinstance(support, Judged) or how is None:
        assert isinstance(support, Judged)
        head = ["import torch", "import triton", "import triton.language as tl", "from torch import Tensor", *part.imports]
        rest = user_wrapper(support, stem, ENTRY_NAME)
        public = [stem]
        limits = judged_constants(support) + "\n"
    else:
        wraps = ["from torch.library import triton_op, wrap_triton"] if how == "triton_op" else []
        head = [*imports().splitlines(), *wraps, *part.imports]
        rest = wrapper(op, stem, namespace, support, how)
        public = [*sorted([stem, "reference"])]
        limits = constants(support) + "\n"
    head.sort(key=lambda line: (line.startswith("from") and not line.startswith("from torch import"), line.split()[1] != "math"))
    lines = [
        _docstring(op, stem, support, how, origin),
        _block(origin, support),
        "",
        "\n".join(head),
        "",
        f"__all__ = {json.dumps(public)}",
        "",
        limits + judged,
        "",
        rest,
    ]
    return "\n".join(lines)


def provenance(text: str) -> dict[str, Any] | None:
    """The provenance block of a saved file; None when there is none that can be read."""
    lines = text.splitlines()
    try:
        begin = lines.index(_OPEN)
        end = lines.index(_CLOSE, begin)
        return tomllib.loads("\n".join(line.removeprefix("#").strip() for line in lines[begin + 1 : end]))
    except (ValueError, tomllib.TOMLDecodeError):
        return None


def verify_command(stem: str, support: Support | Judged) -> str:
    """What to type to have a saved file judged again."""
    # The folder is left to the reader: the reference may well have the name of the saved file.
    option = f" --reference {shlex.quote(f'PATH/TO/{support.reference.name}')}" if isinstance(support, Judged) else ""
    return plain(f"kmint verify {stem}.py{option}")


def _docstring(op: Op, stem: str, support: Support | Judged, how: Registration | None, origin: Provenance) -> str:
    lines = [f'"""{plain(op.title)}.', "", f"    {plain(op.formula)}", ""]
    lines += _own_contract(stem, support) if isinstance(support, Judged) else _contract(op, stem, support, how)
    lines += [
        "",
        f"Written by {plain(origin.model)}, judged by the kmint referee: {plain(origin.verdict)}.",
        plain(origin.measured),
        f"{stem}.receipt.json holds the evidence. Judge it again:",
        "",
        f"    {verify_command(stem, support)}",
        '"""',
        "",
    ]
    return "\n".join(lines)


def _own_contract(stem: str, judged: Judged) -> list[str]:
    return [
        f"    {stem}({', '.join(judged.names)})",
        "",
        f"Judged by a reference of the user's own, {plain(judged.reference.name)}.",
        "Accepted: contiguous tensors on one GPU, with the very shapes and dtypes it was judged with: JUDGED below, and in the receipt",
        "under `support`. For others add them to the examples of the reference, and mint again. Not supported: backward (it raises).",
    ]


def _contract(op: Op, stem: str, support: Support, how: Registration | None) -> list[str]:
    arguments = ", ".join(parameter.name for parameter in KINDS[op.kind].parameters)
    columns = f"one of {', '.join(map(str, support.heads))}" if support.heads else f"1 to {support.max_columns}"
    layout = "contiguous, or matrices with one gap after every row" if support.padded else "contiguous"
    return [
        f"    {stem}({arguments}) -> Tensor",
        "",
        f"Accepted: {', '.join(support.dtypes)}; last dimension {columns}; {layout}; views with an offset; no rows at all;",
        f"{'any number of elements' if support.large else 'at most 2**31 - 1 elements a tensor'}; on a GPU, or on the CPU, where"
        " reference() computes it.",
        f"NaN and infinities {'propagate' if support.nonfinite else 'in the input are not promised to propagate'} as in PyTorch.",
        f"Works under torch.compile(fullgraph=True) as a {how}. Not supported: backward (it raises).",
    ]


def _block(origin: Provenance, support: Support | Judged) -> str:
    values = {name: value for name, value in vars(origin).items() if name != "versions"}
    if isinstance(support, Judged):
        values |= {"reference": support.reference.name, "reference_sha256": support.reference.sha256}
    # A JSON string in ASCII is a TOML string as well.
    lines = [f"# {name} = {json.dumps(value)}" for name, value in values.items()]
    lines += [f'# versions."{name}" = {json.dumps(version)}' for name, version in origin.versions.items() if '"' not in name]
    return "\n".join([_OPEN, *lines, _CLOSE])


def plain(text: str) -> str:
    """Text that can neither end the docstring nor put an escape into it."""
    return " ".join(text.replace("\\", "/").replace('"', "'").split())

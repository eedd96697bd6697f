"""The text of a saved kernel: a docstring for people, a provenance block for machines, and the judged code.

The provenance block is TOML in comments, in the manner of PEP 723, so that a file copied alone still says where it is from.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from kmint_tui.save.host_code import HostCode
from referee.ops import Op

_IMPORTS = "import torch\nimport triton\nimport triton.language as tl\n"


@dataclass(frozen=True)
class Provenance:
    """Where a kernel comes from. `verdict` and `device` are in words, `versions` by package."""

    id: str
    created: str
    model: str
    model_sha256: str
    prompt_sha256: str
    seed: int
    draft_seed: int
    source_sha256: str
    verdict: str
    versions: Mapping[str, str | None]


def file_stem(op: Op) -> str:
    """The name of the saved file without its ending: the op's, made a Python identifier."""
    stem = re.sub(r"\W", "_", op.name)
    return stem if stem.isidentifier() else f"op_{stem}"


def render(op: Op, code: HostCode, origin: Provenance) -> str:
    """The saved file's text."""
    stem = file_stem(op)
    text = [
        f'"""{_plain(op.title)}.',
        "",
        f"    run({', '.join(code.arguments)}) -> Tensor",
        "",
        _plain(op.formula),
        "",
        f"Written by the model {_plain(origin.model)} and judged by the kmint referee: {_plain(origin.verdict)}.",
        f"{stem}.receipt.json holds the whole verdict. Inputs are contiguous CUDA tensors as in the receipt's cells; there is no",
        "backward pass. Judge it again with",
        "",
        f"    kmint judge {stem}.py --op {_plain(op.name)}",
        '"""',
        "",
        _block(origin),
        "",
        _IMPORTS,
        code.body,
    ]
    return "\n".join(text)


def _block(origin: Provenance) -> str:
    values = {
        "id": origin.id,
        "created": origin.created,
        "model": origin.model,
        "model_sha256": origin.model_sha256,
        "prompt_sha256": origin.prompt_sha256,
        "seed": origin.seed,
        "draft_seed": origin.draft_seed,
        "source_sha256": origin.source_sha256,
        **{f"version.{name}": version for name, version in origin.versions.items() if version},
    }
    # A JSON string in ASCII is a TOML string as well.
    lines = [f"# {_key(name)} = {json.dumps(value)}" for name, value in values.items()]
    return "\n".join(["# /// kmint", *lines, "# ///"])


def _key(name: str) -> str:
    table, _, key = name.partition(".")
    return f'{table}."{key}"' if key else table


def _plain(text: str) -> str:
    """Text that can neither end the docstring nor put an escape into it."""
    return " ".join(text.replace("\\", "/").replace('"""', "'''").split())

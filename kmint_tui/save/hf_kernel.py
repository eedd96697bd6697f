"""A saved kernel as a package in the layout of Hugging Face `kernels`: sources and built variants.

Nothing has to be compiled, so the built variants are copies of the sources with their metadata.
`kernels.get_local_kernel` loads them without a network. The kernel file is the one that is saved
alone, with its receipt next to it. Checked with kernels 0.17.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping

from kmint_tui.errors import UsageError
from kmint_tui.save.kernel import Kernel
from kmint_tui.save.line_width import narrow
from kmint_tui.save.receipt import seal, sha256
from referee.ops.signatures import KINDS

BACKENDS = ("cuda", "cpu")
VERSION = 1
UNKNOWN_LICENCE = "unknown"
"""Licence of the package; the field is required, and kmint does not decide the owner of a model's
kernel."""
_OWNED = {"w": "weight", "b": "bias", "bias": "bias"}
"""Arguments that a module owns, as torch's own modules call them."""


def package(kernel: Kernel) -> tuple[dict[str, str], str]:
    """The package's texts by path, and the path of its receipt. Raises UsageError for a kernel
    without a registered op.
    """
    namespace = kernel.receipt["namespace"]
    if namespace is None:
        raise UsageError(
            "a kernel judged by a reference of your own is saved as a file only",
            fix="leave out --format hf-kernel",
        )
    python = package_name(kernel.stem)
    name = python.replace("_", "-")
    built = {
        "__init__.py": _init(kernel.stem),
        "layers.py": _layers(kernel.stem, kernel.kind),
        f"{kernel.stem}.py": kernel.code,
    }
    texts = {
        "build.toml": _build(name, _licence(kernel)),
        "CARD.md": _card(name, kernel),
        f"tests/test_{kernel.stem}.py": kernel.test,
        "pytest.ini": "[pytest]\npythonpath = torch-ext\n",
        **{
            f"{folder}/{file}": text
            for folder in (f"torch-ext/{python}", *map(_variant, BACKENDS))
            for file, text in built.items()
        },
    }
    receipt_file = f"{kernel.stem}.receipt.json"
    receipt = seal(
        {
            **kernel.receipt,
            "files": {f"{kernel.stem}.py": sha256(kernel.code)},
            "package": {path: sha256(text) for path, text in texts.items()},
        }
    )
    for folder in (f"torch-ext/{python}", *map(_variant, BACKENDS)):
        texts[f"{folder}/{receipt_file}"] = receipt
    licence, identity = _licence(kernel), f"_{python}_{namespace}"
    listed = {**built, receipt_file: receipt}
    for backend in BACKENDS:
        metadata = _metadata(name, licence, identity, backend, listed)
        texts[f"{_variant(backend)}/metadata.json"] = metadata
    return texts, f"torch-ext/{python}/{receipt_file}"


def package_name(stem: str) -> str:
    """The import name of the package."""
    return f"kmint_{stem}"


def _variant(backend: str) -> str:
    return f"build/torch-{backend}"


def _init(stem: str) -> str:
    return (
        f'from . import layers\nfrom .{stem} import reference, {stem}\n\n__all__ = ["layers", '
        f'"reference", "{stem}"]\n'
    )


def _layers(stem: str, kind: str) -> str:
    title = "".join(part.capitalize() for part in stem.split("_"))
    names = [parameter.name for parameter in KINDS[kind].parameters]
    given = ", ".join(f"{name}: Tensor" for name in names if name not in _OWNED)
    passed = ", ".join(f"self.{_OWNED[name]}" if name in _OWNED else name for name in names)
    owned = "".join(f"    {_OWNED[name]}: Tensor\n" for name in names if name in _OWNED)
    return narrow(f'''"""A layer for `kernels.kernelize`, with the module's weights."""

from torch import Tensor, nn

from .{stem} import {stem}


class {title}(nn.Module):
    has_backward = True
    can_torch_compile = True
{owned}
    def forward(self, {given}) -> Tensor:
        return {stem}({passed})


__all__ = ["{title}"]
''')


def _licence(kernel: Kernel) -> str:
    given = str(kernel.receipt["licence"])
    return UNKNOWN_LICENCE if given == "NOASSERTION" else given


def _build(name: str, licence: str) -> str:
    backends = ", ".join(f'"{backend}"' for backend in BACKENDS)
    general = {
        "name": f'"{name}"',
        "version": VERSION,
        "edition": 5,
        "license": f'"{licence}"',
        "backends": f"[{backends}]",
    }
    return "\n".join(
        [
            "[general]",
            *(f"{key} = {value}" for key, value in general.items()),
            "",
            "[torch-noarch]",
            "",
        ]
    )


def _metadata(
    name: str, licence: str, identity: str, backend: str, files: Mapping[str, str]
) -> str:
    digests = {
        path: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for path, text in sorted(files.items())
    }
    content = {
        "id": identity,
        "name": name,
        "version": VERSION,
        "license": licence,
        "python-depends": [],
        "backend": {"type": backend},
        "digest": {"algorithm": "sha256", "files": digests},
    }
    return json.dumps(content, indent=2) + "\n"


def _card(name: str, kernel: Kernel) -> str:
    receipt = kernel.receipt
    return f"""---
tags:
  - kernels
  - triton
---

# {name}

`{kernel.stem}`, a fused Triton kernel by the model {receipt["model"]["id"]}. The kmint referee
judged it ({receipt["verdict"]["verdict"]}, {receipt["verdict"]["mode"]}). The receipt next to the
source holds the evidence.

```python
from kernels import get_local_kernel

kernel = get_local_kernel("path/to/{name}")
kernel.{kernel.stem}  # the same call on the CPU runs kernel.reference
```

`kmint verify .` judges it again. `build/` is a copy of `torch-ext/`; the next save replaces it.
"""

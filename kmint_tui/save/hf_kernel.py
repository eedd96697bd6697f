"""A saved kernel as a package in the layout of Hugging Face `kernels`: sources for its builder, and the built variants.

There is nothing to compile, so the built variants are copies of the sources with their metadata; `kernels.get_local_kernel`
loads them with no network. The kernel file in it is the same as the one saved alone, its receipt beside it. Checked with
kernels 0.17.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping

from kmint_tui.errors import UsageError
from kmint_tui.save.kernel import Kernel
from kmint_tui.save.receipt import seal, sha256

BACKENDS = ("cuda", "cpu")
VERSION = 1
LICENCE = "unknown"
"""The field must be there; whose work a model's kernel is, kmint does not decide."""


def package(kernel: Kernel) -> tuple[dict[str, str], str]:
    """The package's texts by path, and the path of its receipt. Raises UsageError for a kernel without a registered op."""
    namespace = kernel.receipt["namespace"]
    if namespace is None:
        raise UsageError("a kernel judged by a reference of your own is saved as a file only", fix="leave out --format hf-kernel")
    name = f"kmint-{kernel.stem.replace('_', '-')}"
    python = name.replace("-", "_")
    built = {
        "__init__.py": _init(kernel.stem),
        "layers.py": _layers(kernel.stem),
        f"{kernel.stem}.py": kernel.code,
    }
    texts = {
        "build.toml": _build(name),
        "CARD.md": _card(name, kernel),
        f"tests/test_{kernel.stem}.py": kernel.test.replace(
            f'Path(__file__).with_name("{kernel.stem}.py")', f'Path(__file__).parents[1] / "torch-ext" / "{python}" / "{kernel.stem}.py"'
        ),
        **{f"{folder}/{file}": text for folder in (f"torch-ext/{python}", *map(_variant, BACKENDS)) for file, text in built.items()},
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
    for backend in BACKENDS:
        texts[f"{_variant(backend)}/metadata.json"] = _metadata(name, f"_{python}_{namespace}", backend, {**built, receipt_file: receipt})
    return texts, f"torch-ext/{python}/{receipt_file}"


def _variant(backend: str) -> str:
    return f"build/torch-{backend}"


def _init(stem: str) -> str:
    return f'from . import layers\nfrom .{stem} import reference, {stem}\n\n__all__ = ["layers", "reference", "{stem}"]\n'


def _layers(stem: str) -> str:
    title = "".join(part.capitalize() for part in stem.split("_"))
    return f'''"""The kernel as a layer without state, for `kernels.kernelize`."""

from torch import Tensor, nn

from .{stem} import {stem}


class {title}(nn.Module):
    has_backward = False
    can_torch_compile = True

    def forward(self, *inputs: Tensor) -> Tensor:
        return {stem}(*inputs)


__all__ = ["{title}"]
'''


def _build(name: str) -> str:
    backends = ", ".join(f'"{backend}"' for backend in BACKENDS)
    general = {"name": f'"{name}"', "version": VERSION, "edition": 5, "license": f'"{LICENCE}"', "backends": f"[{backends}]"}
    return "\n".join(["[general]", *(f"{key} = {value}" for key, value in general.items()), "", "[torch-noarch]", ""])


def _metadata(name: str, identity: str, backend: str, files: Mapping[str, str]) -> str:
    digests = {path: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for path, text in sorted(files.items())}
    content = {
        "id": identity,
        "name": name,
        "version": VERSION,
        "license": LICENCE,
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

`{kernel.stem}`, a fused Triton kernel written by the model {receipt["model"]["id"]} and judged by the kmint referee
({receipt["verdict"]["verdict"]}, {receipt["verdict"]["mode"]}); the receipt beside the source holds the evidence.

```python
from kernels import get_local_kernel

kernel = get_local_kernel("path/to/{name}")
kernel.{kernel.stem}  # the same call on the CPU runs kernel.reference
```

`kmint verify .` judges it again. `build/` is a copy of `torch-ext/` and is replaced when the kernel is saved again.
"""

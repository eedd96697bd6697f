"""The keys of a PEFT adapter file: the module of each, and its part of the change.

Trainers wrap a model before they save it, and every wrapper leaves its name in the keys. These
names are removed, and so is the adapter's own name (`lora_A.default.weight`). PEFT's layouts for
whole tensors all replace the base's tensor: the plain name, `base_layer`, `modules_to_save` and
`token_adapter.base_layer`. `original_module` is the unchanged copy next to such a tensor.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from convert.errors import AdapterError

Role = Literal["part", "replacement", "copy"]

# torch.compile, FSDP, activation checkpointing, DataParallel.
_WRAPPERS = frozenset(("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"))
_OUTER = frozenset(("module", "base_model"))
_MLX = re.compile(r"\.lora_[ab]$")
_NAME = r"(?:\.(?P<name>[^.]+))?"
_PARTS = (
    (re.compile(rf"\.lora_(?P<side>[AB]){_NAME}\.(?P<tensor>weight|bias)$"), ".lora_{side}{bias}"),
    (re.compile(rf"\.lora_embedding_(?P<side>[AB]){_NAME}$"), ".lora_embedding_{side}"),
    (
        re.compile(r"\.lora_magnitude_vector(?:\.(?!weight$)(?P<name>[^.]+))?(?:\.weight)?$"),
        ".lora_magnitude_vector",
    ),
    (
        re.compile(rf"\.token_adapter\.trainable_tokens_delta{_NAME}$"),
        ".token_adapter.trainable_tokens_delta",
    ),
)
_SAVED = re.compile(r"\.modules_to_save\.(?:(?P<name>[^.]+)\.)?(?P<tensor>weight|bias)$")


@dataclass(frozen=True)
class Key:
    """One stored tensor's place.

    `module` is the module's path in the base model. `suffix` names the part of a LoRA; for whole
    tensors it is the rest of the tensor's name, such as ".weight". A "copy" is ignored.
    """

    stored: str
    module: str
    suffix: str
    role: Role
    adapter_name: str | None = None


def read_keys(stored: Collection[str]) -> tuple[Key, ...]:
    """Every key of an adapter file, in order of the stored names.

    Raises AdapterError for an adapter in MLX's layout and for several adapters in one file.
    """
    if any(_MLX.search(key) for key in stored):
        raise AdapterError(
            "the adapter's tensors are named as MLX names them; kmint reads PEFT's layout",
            "fuse it with `mlx_lm.fuse` and convert the fused checkpoint",
        )
    keys = tuple(_key(key) for key in sorted(stored))
    names = sorted({key.adapter_name for key in keys if key.adapter_name is not None})
    if len(names) > 1:
        raise AdapterError(
            f"the file holds {len(names)} adapters: {', '.join(names)[:120]}",
            "save the one you want with PEFT's `save_pretrained(..., selected_adapters=[NAME])`",
        )
    return keys


def _key(stored: str) -> Key:
    path = _unwrapped(stored)
    for expression, form in _PARTS:
        if found := expression.search(path):
            groups = found.groupdict()
            bias = ".bias" if groups.get("tensor") == "bias" else ""
            suffix = form.format(side=groups.get("side"), bias=bias)
            return Key(stored, path[: found.start()], suffix, "part", groups.get("name"))
    for marker in ("original_module", "trainable_tokens_original"):
        if f".{marker}" in path:
            return Key(stored, path.partition(f".{marker}")[0], "", "copy")
    for marker in (".token_adapter.base_layer.", ".base_layer."):
        if marker in path:
            module, _, tensor = path.partition(marker)
            return Key(stored, module, f".{tensor}", "replacement")
    if found := _SAVED.search(path):
        module = path[: found.start()]
        return Key(stored, module, f".{found['tensor']}", "replacement", found["name"])
    module, _, tensor = path.rpartition(".")
    return Key(stored, module, f".{tensor}", "replacement")


def _unwrapped(key: str) -> str:
    """The key from the base model's own root, without the names of wrappers."""
    parts = [part for part in key.split(".") if part not in _WRAPPERS]
    while parts and parts[0] in _OUTER:
        outer = parts.pop(0)
        # PEFT's own root is "base_model.model", and the model under it may be wrapped again.
        if outer == "base_model" and parts and parts[0] == "model":
            parts.pop(0)
        elif outer == "base_model" and parts[:2] == ["module", "model"]:
            del parts[:2]
    return ".".join(parts)

"""A PEFT LoRA adapter folder: which base tensor each of its tensors changes, and by how much, row by row.

Merged weights are computed in float32 as W + scale * (B @ A) and rounded once, when they are written. (PEFT, merging
into a bfloat16 base, rounds the delta and then the sum.) DoRA: m * (W + dW) / ||W + dW||, the norm over each output row,
https://arxiv.org/abs/2402.09353.

Every adapter tensor must find its place: an unmatched key or a shape that does not fit is an error, because the classic
silent failure of a merge is that it changed nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

from convert.adapter_config import AdapterConfig, parse_adapter_config
from convert.errors import AdapterError, SourceError
from convert.safetensors_file import Floats, SafetensorsFile
from convert.source import read_json

_PREFIX = "base_model.model."
_SUFFIXES = (
    ".lora_A.weight",
    ".lora_B.weight",
    ".lora_B.bias",
    ".lora_embedding_A",
    ".lora_embedding_B",
    ".lora_magnitude_vector.weight",
    ".lora_magnitude_vector",
    ".token_adapter.trainable_tokens_delta",
)


@dataclass
class Change:
    """What happens to one base tensor: an optional replacement of the whole, then the adapter tensors by suffix."""

    module: str
    parts: dict[str, str] = field(default_factory=dict)
    replacement: str | None = None


class Adapter:
    """An adapter bound to a base checkpoint's tensor names. Raises AdapterError or SourceError when it does not fit."""

    def __init__(self, folder: Path, names: Collection[str], shape: Callable[[str], tuple[int, ...]]) -> None:
        self.config: AdapterConfig = parse_adapter_config(read_json(folder / "adapter_config.json"))
        path = folder / "adapter_model.safetensors"
        if not path.is_file():
            raise SourceError(f"{path} is missing", "only safetensors adapters are read; give the folder (and --subfolder) that holds it")
        self._file = SafetensorsFile(path)
        self.path = path
        try:
            self.changes = self._bind(names)
            for name, change in self.changes.items():
                self._check(name, change, shape(name) if name in names else None)
        except AdapterError:
            self.close()
            raise

    def _bind(self, names: Collection[str]) -> dict[str, Change]:
        changes: dict[str, Change] = {}
        unmatched = []
        for key in sorted(self._file.entries):
            module, suffix = _split(key)
            target = _find(module, ".weight" if suffix else "", names)
            if suffix == ".lora_B.bias":
                target = _find(module, ".bias", names)
            if target is None and not suffix and module.endswith("lm_head.weight"):
                target = "lm_head.weight"
            if target is None:
                unmatched.append(key)
                continue
            change = changes.setdefault(target, Change(module))
            if suffix:
                change.parts[suffix.removesuffix(".weight")] = key
            else:
                change.replacement = key
        if unmatched:
            raise AdapterError(
                f"{len(unmatched)} adapter tensors match nothing in the base, the first is {unmatched[0]!r}",
                "is this the base model the adapter was trained on?",
            )
        if not changes:
            raise AdapterError(f"{self.path} holds no tensors, merging it would change nothing")
        return changes

    def _check(self, name: str, change: Change, base: tuple[int, ...] | None) -> None:
        """Refuse a change whose shapes do not fit the base tensor; `base` is None for a tensor the adapter adds."""
        if change.replacement is not None:
            shape = self._file.entries[change.replacement].shape
            if base is not None and shape[1:] != base[1:]:
                raise AdapterError(f"{name}: the adapter's replacement has shape {shape}, the base {base}")
            base = shape
        assert base is not None
        shapes = {part: self._file.entries[key].shape for part, key in change.parts.items()}
        fits = True
        if ".lora_A" in shapes or ".lora_B" in shapes:
            a, b = shapes.get(".lora_A"), shapes.get(".lora_B")
            fits = a is not None and b is not None and len(base) == 2 and b[0] == base[0] and a[1] == base[1] and a[0] == b[1]
        elif ".lora_embedding_A" in shapes or ".lora_embedding_B" in shapes:
            a, b = shapes.get(".lora_embedding_A"), shapes.get(".lora_embedding_B")
            fits = a is not None and b is not None and a[1] == base[0] and b[0] == base[1] and a[0] == b[1]
        if not fits:
            raise AdapterError(f"{name}: adapter shapes {shapes} do not fit the base's {base}", "is this the right base model?")
        if ".lora_magnitude_vector" in shapes and ".lora_A" not in shapes:
            raise AdapterError(f"{name}: DoRA on an embedding is not supported", "merge it with PEFT and convert the result")
        if self.config.dora and ".lora_A" in shapes and ".lora_magnitude_vector" not in shapes:
            raise AdapterError(f"{name}: adapter_config.json says DoRA, the magnitude vector is missing")

    def shape(self, name: str, base: tuple[int, ...] | None) -> tuple[int, ...]:
        """The merged tensor's shape; differs from the base only where modules_to_save resized it."""
        change = self.changes.get(name)
        if change is not None and change.replacement is not None:
            return self._file.entries[change.replacement].shape
        assert base is not None
        return base

    def merge(self, name: str, rows: npt.NDArray[np.int64], base: Callable[[npt.NDArray[np.int64]], Floats]) -> Floats:
        """Rows of the merged tensor as float32. `base(rows)` reads the same rows of the base tensor."""
        change = self.changes.get(name)
        if change is None:
            return base(rows)
        merged = base(rows) if change.replacement is None else self._file.rows(change.replacement, rows)
        parts = change.parts
        if ".lora_A" in parts:
            a, b = self._file.rows(parts[".lora_A"]), self._file.rows(parts[".lora_B"], rows)
            delta = b @ a
            self._file.release(parts[".lora_A"])
            delta *= np.float32(self.config.scale(change.module, a.shape[0]))
            delta += merged
            merged = delta
            if ".lora_magnitude_vector" in parts:
                magnitude = self._file.rows(parts[".lora_magnitude_vector"]).reshape(-1)[rows]
                merged = merged * (magnitude / np.linalg.norm(merged, axis=1))[:, None]
        if ".lora_embedding_A" in parts:
            a, b = self._file.rows(parts[".lora_embedding_A"]), self._file.rows(parts[".lora_embedding_B"])
            merged = merged + self.config.scale(change.module, a.shape[0]) * (a[:, rows].T @ b.T)
        if ".lora_B.bias" in parts:
            rank = self._file.entries[parts[".lora_B.bias"].removesuffix("bias") + "weight"].shape[1]
            merged = merged + self.config.scale(change.module, rank) * self._file.rows(parts[".lora_B.bias"], rows)
        if ".token_adapter.trainable_tokens_delta" in parts:
            merged = self._replace_tokens(name, change, rows, merged)
        return merged.astype(np.float32, copy=False)

    def _replace_tokens(self, name: str, change: Change, rows: npt.NDArray[np.int64], merged: Floats) -> Floats:
        wanted = next((ids for module, ids in self.config.trainable_tokens.items() if change.module.endswith(module)), None)
        values = self._file.rows(change.parts[".token_adapter.trainable_tokens_delta"])
        if wanted is None or len(wanted) != len(values):
            raise AdapterError(f"{name}: trainable_token_indices in adapter_config.json do not match the stored rows")
        position = {token: index for index, token in enumerate(wanted)}
        merged = merged.copy()
        for here, row in enumerate(rows.tolist()):
            if row in position:
                merged[here] = values[position[row]]
        return merged

    def close(self) -> None:
        """Release the adapter file."""
        self._file.close()

    def __enter__(self) -> Adapter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _split(key: str) -> tuple[str, str]:
    """(module path or tensor name, LoRA suffix or "") of an adapter key."""
    path = key.removeprefix(_PREFIX)
    for suffix in _SUFFIXES:
        if path.endswith(suffix):
            return path.removesuffix(suffix), suffix
    return path.replace(".modules_to_save.default.", ".").replace(".base_layer.", "."), ""


def _find(module: str, tail: str, names: Collection[str]) -> str | None:
    """The base tensor of a module path, allowing for the `language_model` level that some checkpoints have."""
    without = module.replace("language_model.", "", 1)
    for candidate in (module, without, f"model.{without}", without.replace("model.", "model.language_model.", 1)):
        if candidate + tail in names:
            return candidate + tail
    return None

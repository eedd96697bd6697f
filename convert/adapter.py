"""A PEFT LoRA adapter folder: the base tensor that each of its tensors changes, row by row.

Merged weights are computed in float32 as W + scale * (B @ A) and rounded once, when they are
written. PEFT, merging into a bfloat16 base, rounds the delta and then the sum.
DoRA is m * V / ||V|| with V = W + dW. Its norm is over each output row,
https://arxiv.org/abs/2402.09353.

Every adapter tensor must find its place. An unmatched key or a wrong shape is an error, because a
merge that silently changed nothing is the classic failure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

from convert.adapter_config import AdapterConfig, parse_adapter_config
from convert.adapter_keys import Key, read_keys
from convert.errors import AdapterError
from convert.folders import adapter_files
from convert.safetensors_file import Floats, SafetensorsFile
from convert.source import read_json

TOKENS = ".token_adapter.trainable_tokens_delta"


@dataclass
class Change:
    """The change of one base tensor: a replacement or None, and adapter tensors by suffix."""

    module: str
    parts: dict[str, str] = field(default_factory=dict)
    replacement: str | None = None


class Adapter:
    """An adapter bound to a base checkpoint's tensor names.

    `left_out(tensor)` gives the reason why a conversion leaves out a tensor that is not in `names`.
    The adapter's changes of such tensors are dropped, and `notes` counts them. Raises AdapterError
    or SourceError when adapter and base do not fit.
    """

    def __init__(
        self,
        folder: Path,
        names: Collection[str],
        shape: Callable[[str], tuple[int, ...]],
        left_out: Callable[[str], str | None] = lambda name: None,
    ) -> None:
        config, self.path = adapter_files(folder)
        self.config: AdapterConfig = parse_adapter_config(read_json(config))
        self._file = SafetensorsFile(self.path)
        self.notes: tuple[str, ...] = ()
        try:
            self.changes = self._bind(names, left_out)
            self.config = self.config.for_modules(
                {change.module for change in self.changes.values()}
            )
            for name, change in self.changes.items():
                self._check(name, change, self._base_shape(name, names, shape))
            self.notes += self.config.notes
        except AdapterError:
            self.close()
            raise

    @property
    def file(self) -> SafetensorsFile:
        """The adapter's tensors."""
        return self._file

    def _bind(
        self, names: Collection[str], left_out: Callable[[str], str | None]
    ) -> dict[str, Change]:
        changes: dict[str, Change] = {}
        unmatched: list[str] = []
        dropped: Counter[str] = Counter()
        for key in read_keys(self._file.entries):
            if key.role == "copy":
                continue
            target, tail = self._target(key, names)
            reason = left_out(target or f"{key.module}{tail}")
            if reason is not None:
                dropped[reason] += 1
                continue
            if target is None:
                unmatched.append(key.stored)
                continue
            change = changes.setdefault(target, Change(key.module))
            if key.role == "part":
                change.parts[key.suffix] = key.stored
            else:
                change.replacement = key.stored
        if unmatched:
            raise AdapterError(
                f"{len(unmatched)} adapter tensors match nothing in the base, the first is "
                f"{unmatched[0]!r}",
                "is this the base model the adapter was trained on?",
            )
        if not changes:
            what = next(iter(dropped), "the file holds no tensors")
            raise AdapterError(f"{self.path}: merging it would change nothing ({what})")
        self.notes = tuple(
            f"{count} adapter tensors left out: {why}" for why, count in sorted(dropped.items())
        )
        return changes

    def _target(self, key: Key, names: Collection[str]) -> tuple[str | None, str]:
        """The base tensor that a key changes, or None, and the end of its name."""
        tail = key.suffix if key.role == "replacement" else ".weight"
        if key.suffix == ".lora_B.bias":
            tail = ".bias"
        target = _find(key.module, tail, names)
        # A tied base stores no head; the adapter may give it one.
        if target is None and tail == ".weight" and key.module.endswith("lm_head"):
            target = "lm_head.weight"
        return target, tail

    def _base_shape(
        self, name: str, names: Collection[str], shape: Callable[[str], tuple[int, ...]]
    ) -> tuple[int, ...] | None:
        """The shape of the base tensor; a tied head has the embedding's."""
        if name in names:
            return shape(name)
        embedding = _find("model.embed_tokens", ".weight", names)
        return shape(embedding) if name == "lm_head.weight" and embedding else None

    def _check(self, name: str, change: Change, base: tuple[int, ...] | None) -> None:
        """Refuse a change whose shapes do not fit the base tensor.

        `base` is None for a tensor that the adapter adds.
        """
        if change.replacement is not None:
            shape = self._file.entries[change.replacement].shape
            if base is not None and shape[1:] != base[1:]:
                raise AdapterError(
                    f"{name}: the adapter's replacement has shape {shape}, the base {base}"
                )
            base = shape
        if base is None:
            raise AdapterError(
                f"{name}: the adapter changes this tensor, and the base does not have it",
                "is this the base model the adapter was trained on?",
            )
        shapes = {part: self._file.entries[key].shape for part, key in change.parts.items()}
        fits = True
        if ".lora_A" in shapes or ".lora_B" in shapes:
            a, b = shapes.get(".lora_A"), shapes.get(".lora_B")
            fits = (
                a is not None
                and b is not None
                and len(base) == 2
                and b[0] == base[0]
                and a[1] == base[1]
                and a[0] == b[1]
            )
        elif ".lora_embedding_A" in shapes or ".lora_embedding_B" in shapes:
            a, b = shapes.get(".lora_embedding_A"), shapes.get(".lora_embedding_B")
            fits = (
                a is not None
                and b is not None
                and a[1] == base[0]
                and b[0] == base[1]
                and a[0] == b[1]
            )
        if not fits:
            raise AdapterError(
                f"{name}: adapter shapes {shapes} do not fit the base's {base}",
                "is this the right base model?",
            )
        if ".lora_magnitude_vector" in shapes and ".lora_A" not in shapes:
            raise AdapterError(
                f"{name}: DoRA on an embedding is not supported",
                "merge it with PEFT and convert the result",
            )
        if self.config.dora and ".lora_A" in shapes and ".lora_magnitude_vector" not in shapes:
            raise AdapterError(
                f"{name}: adapter_config.json says DoRA, the magnitude vector is missing"
            )
        for part in (".lora_A", ".lora_embedding_A"):
            if part in shapes:
                self.config.scale(change.module, shapes[part][0])
        if (
            ".lora_B.bias" in shapes
            and ".lora_A" not in shapes
            and self._rank_of_bias(change) is None
        ):
            raise AdapterError(f"{name}: the adapter has a bias of lora_B without its lora_B")
        if TOKENS in shapes:
            wanted = self._tokens(name, change)
            if max(wanted, default=0) >= base[0]:
                raise AdapterError(
                    f"{name}: the adapter trains token {max(wanted)}, and the base has "
                    f"{base[0]} rows",
                    "the vocabulary was resized before training: give the resized base",
                )

    def _rank_of_bias(self, change: Change) -> int | None:
        """The rank of the lora_B whose bias this change holds; the bias is a separate tensor."""
        stored = change.parts[".lora_B.bias"].removesuffix("bias") + "weight"
        return self._file.entries[stored].shape[1] if stored in self._file.entries else None

    def shape(self, name: str, base: tuple[int, ...] | None) -> tuple[int, ...]:
        """The merged tensor's shape; it differs from the base's only after a resize by
        modules_to_save.
        """
        change = self.changes.get(name)
        if change is not None and change.replacement is not None:
            return self._file.entries[change.replacement].shape
        assert base is not None
        return base

    def merge(
        self,
        name: str,
        rows: npt.NDArray[np.int64],
        base: Callable[[npt.NDArray[np.int64]], Floats],
    ) -> Floats:
        """Rows of the merged tensor as float32; `base(rows)` reads the same rows of the base
        tensor.
        """
        change = self.changes.get(name)
        if change is None:
            return base(rows)
        merged = (
            base(rows) if change.replacement is None else self._file.rows(change.replacement, rows)
        )
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
            a, b = (
                self._file.rows(parts[".lora_embedding_A"]),
                self._file.rows(parts[".lora_embedding_B"]),
            )
            merged = merged + self.config.scale(change.module, a.shape[0]) * (a[:, rows].T @ b.T)
        if ".lora_B.bias" in parts:
            rank = self._rank_of_bias(change)
            assert rank is not None
            merged = merged + self.config.scale(change.module, rank) * self._file.rows(
                parts[".lora_B.bias"], rows
            )
        if TOKENS in parts:
            merged = self._replace_tokens(name, change, rows, merged)
        return merged.astype(np.float32, copy=False)

    def _replace_tokens(
        self, name: str, change: Change, rows: npt.NDArray[np.int64], merged: Floats
    ) -> Floats:
        wanted = self._tokens(name, change)
        values = self._file.rows(change.parts[TOKENS])
        position = {token: index for index, token in enumerate(wanted)}
        merged = merged.copy()
        for here, row in enumerate(rows.tolist()):
            if row in position:
                merged[here] = values[position[row]]
        return merged

    def _tokens(self, name: str, change: Change) -> tuple[int, ...]:
        """The ids whose rows the adapter stores, in the stored order."""
        listed = self.config.trainable_tokens
        wanted = next(
            (ids for module, ids in listed.items() if change.module.endswith(module)), None
        )
        if wanted is None and change.module.endswith("lm_head"):
            # PEFT trains the same rows of a head that is tied to the embedding.
            wanted = next(
                (ids for module, ids in listed.items() if module.endswith("embed_tokens")), None
            )
        if wanted is None or len(wanted) != self._file.entries[change.parts[TOKENS]].shape[0]:
            raise AdapterError(
                f"{name}: trainable_token_indices in adapter_config.json do not match the "
                "stored rows"
            )
        return wanted

    def close(self) -> None:
        """Release the adapter file."""
        self._file.close()

    def __enter__(self) -> Adapter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _find(module: str, tail: str, names: Collection[str]) -> str | None:
    """The base tensor of a module path; some checkpoints add a `language_model` level."""
    without = module.replace("language_model.", "", 1)
    for candidate in (
        module,
        without,
        f"model.{without}",
        without.replace("model.", "model.language_model.", 1),
    ):
        if candidate + tail in names:
            return candidate + tail
    return None

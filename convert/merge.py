"""A checkpoint with an adapter applied, with the `names`, `shape` and `rows` of a Source."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from convert.adapter import TOKENS, Adapter
from convert.errors import AdapterError
from convert.safetensors_file import Floats
from convert.source import Source

_HEAD = "lm_head.weight"
_EMBEDDING = ("model.embed_tokens.weight", "model.language_model.embed_tokens.weight")


class Merged:
    """`source` with `adapter` (or none), merged row by row without a copy on disk or in memory.

    A tied head reads the embedding as well. An adapter that changes one of the two separates them,
    as in PEFT: `names` then has a separate head, and `notes` says so.
    """

    def __init__(self, source: Source, adapter: Adapter | None) -> None:
        self.source = source
        self.adapter = adapter
        self.names = source.names | (frozenset(adapter.changes) if adapter else frozenset())
        self.config: dict[str, Any] = dict(source.config)
        self.notes: tuple[str, ...] = ()
        self._embedding = next((name for name in _EMBEDDING if name in source.names), None)
        if adapter is not None:
            self._follow_adapter(adapter)

    def _follow_adapter(self, adapter: Adapter) -> None:
        tied = bool(self.config.get("tie_word_embeddings")) and _HEAD not in self.source.names
        change = adapter.changes.get(self._embedding or "")
        if change is not None and self._embedding is not None:
            self.config["vocab_size"] = self.shape(self._embedding)[0]
        if not tied:
            return
        # PEFT gives the tied head the same trained token rows.
        follows = adapter.config.tied or (change is not None and set(change.parts) == {TOKENS})
        if _HEAD in adapter.changes:
            self.notes = ("the adapter separates the head from the embedding it was tied to",)
        elif change is not None and not follows:
            if change.replacement is not None and self._base_rows() != self.config["vocab_size"]:
                raise AdapterError(
                    "the adapter resizes the embedding of a model whose head is tied to "
                    "it, and does not say "
                    "what the head's new rows are",
                    "save the adapter with ensure_weight_tying, or with lm_head in modules_to_save",
                )
            self.names |= {_HEAD}
            self.notes = (
                "the adapter changes the embedding alone: the head, which was tied to it, "
                "keeps the base's weights",
            )

    def _base_rows(self) -> int:
        assert self._embedding is not None
        return self.source.shape(self._embedding)[0]

    def _base(self, name: str) -> str:
        """The stored tensor behind `name`: the embedding for a tied head."""
        if name == _HEAD and name not in self.source.names and self._embedding is not None:
            return self._embedding
        return name

    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's merged shape."""
        stored = self._base(name)
        base = self.source.shape(stored) if stored in self.source.names else None
        return (
            base if self.adapter is None and base is not None else self._adapter().shape(name, base)
        )

    def rows(self, name: str, index: npt.NDArray[np.int64]) -> Floats:
        """Merged rows as float32."""
        if self.adapter is None:
            return self.source.rows(name, index)
        return self.adapter.merge(
            name, index, lambda rows: self.source.rows(self._base(name), rows)
        )

    def _adapter(self) -> Adapter:
        assert self.adapter is not None
        return self.adapter

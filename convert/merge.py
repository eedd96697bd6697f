"""A checkpoint with an adapter applied, seen as one checkpoint: the same `names`, `shape` and `rows` as a Source."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from convert.adapter import Adapter
from convert.errors import AdapterError
from convert.safetensors_file import Floats
from convert.source import Source

_EMBEDDING = ("model.embed_tokens.weight", "model.language_model.embed_tokens.weight")


class Merged:
    """`source` with `adapter` (or none) applied lazily; nothing is copied to disk or held in memory."""

    def __init__(self, source: Source, adapter: Adapter | None) -> None:
        self.source = source
        self.adapter = adapter
        self.names = source.names | (frozenset(adapter.changes) if adapter else frozenset())
        self.config: dict[str, Any] = dict(source.config)
        if adapter is not None:
            self._follow_adapter(adapter)

    def _follow_adapter(self, adapter: Adapter) -> None:
        head = adapter.changes.get("lm_head.weight")
        if self.config.get("tie_word_embeddings") and head is not None and head.replacement is None:
            raise AdapterError(
                "the adapter changes lm_head of a model whose head is tied to the embedding", "merge it with PEFT and convert the result"
            )
        for name in _EMBEDDING:
            if name in adapter.changes:
                self.config["vocab_size"] = self.shape(name)[0]

    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's merged shape."""
        base = self.source.shape(name) if name in self.source.names else None
        return base if self.adapter is None and base is not None else self._adapter().shape(name, base)

    def rows(self, name: str, index: npt.NDArray[np.int64]) -> Floats:
        """Merged rows as float32."""
        if self.adapter is None:
            return self.source.rows(name, index)
        return self.adapter.merge(name, index, lambda rows: self.source.rows(name, rows))

    def _adapter(self) -> Adapter:
        assert self.adapter is not None
        return self.adapter

"""A smith in torch with its tokenizer: read from the shipped GGUF file or from a folder, and saved.

A folder has the form of a training run, with the tokenizer's files in it; `forge.export` takes it
as both of its folders. The weights of a quantised GGUF are those that llama.cpp computes with.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from convert import files
from convert.gguf_file import GgufFile
from convert.gguf_header import read_header
from convert.llama import gguf_name, pair_order
from convert.safetensors_file import Floats, SafetensorsFile
from forge import tokenizer as bpe
from forge.model import Llama, Shape
from forge.train import save as save_weights

if TYPE_CHECKING:
    from tokenizers import Tokenizer

EMBEDDED = (
    Path(__file__).resolve().parents[1]
    / "kmint_tui"
    / "smith"
    / "embedded"
    / "kmint-embedded-Q8_0.gguf"
)
_PADDING = "[PAD"
_SIZES = {
    "vocabulary": "vocab_size",
    "hidden": "embedding_length",
    "layers": "block_count",
    "heads": "attention.head_count",
    "head_dim": "attention.key_length",
    "ffn": "feed_forward_length",
    "context": "context_length",
    "rope_theta": "rope.freq_base",
    "eps": "attention.layer_norm_rms_epsilon",
}
"""The GGUF key of each size."""


@dataclass(frozen=True)
class Checkpoint:
    """A model and its tokenizer."""

    model: Llama
    tokenizer: Tokenizer

    @property
    def eos(self) -> int:
        """The number of the end-of-text token."""
        number = self.tokenizer.token_to_id(bpe.EOS)
        assert number is not None
        return int(number)


def read(path: Path) -> Checkpoint:
    """The checkpoint in a GGUF file, or in a folder that `write` made.

    Raises SourceError or VerifyError for a file that is damaged, OSError for one that is missing.
    """
    return _of_folder(path) if path.is_dir() else _of_gguf(path)


def write(checkpoint: Checkpoint, folder: Path) -> None:
    """Save a checkpoint, whole or not at all. `folder` must not exist. Raises OSError.

    The weights are rounded to float16.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with files.temporary_folder(folder.parent) as scratch:
        made = scratch / "made"
        save_weights(checkpoint.model, made, checkpoint.eos)
        bpe.save(checkpoint.tokenizer, made)
        for path in made.iterdir():
            files.sync(path)
        files.move(made, folder)


def _of_gguf(path: Path) -> Checkpoint:
    header = read_header(path)
    sizes: dict[str, Any] = {name: header.metadata[f"llama.{key}"] for name, key in _SIZES.items()}
    model = Llama(Shape(**sizes))
    order = np.argsort(pair_order(model.shape.heads, model.shape.head_dim))
    with GgufFile(path) as file:

        def values(name: str, rows: int) -> Floats:
            neighbours = name.endswith(("q_proj.weight", "k_proj.weight"))
            return file.rows(gguf_name(name), order if neighbours else np.arange(rows))

        _fill(model, values)
    return Checkpoint(model, _tokenizer_of(path))


def _tokenizer_of(path: Path) -> Tokenizer:
    import gguf

    stored = gguf.GGUFReader(str(path)).fields
    tokens, merges, pre = (
        stored[f"tokenizer.ggml.{key}"].contents() for key in ("tokens", "merges", "pre")
    )
    named = [token for token in tokens if not token.startswith(_PADDING)]
    return bpe.of_vocabulary(named, merges, pre=pre)


def _of_folder(folder: Path) -> Checkpoint:
    from tokenizers import Tokenizer

    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    model = Llama(Shape.of_config(config))
    index = json.loads((folder / "model.safetensors.index.json").read_text(encoding="utf-8"))
    places: dict[str, str] = index["weight_map"]
    shards = {name: SafetensorsFile(folder / name) for name in set(places.values())}
    try:
        _fill(model, lambda name, rows: shards[places[name]].rows(name, np.arange(rows)))
    finally:
        for shard in shards.values():
            shard.close()
    return Checkpoint(model, Tokenizer.from_file(str(folder / "tokenizer.json")))


@torch.no_grad()
def _fill(model: Llama, values: Callable[[str, int], Floats]) -> None:
    """Set every parameter to the values of its name; `values` gets the number of rows too."""
    for name, parameter in model.named_parameters():
        parameter.copy_(torch.from_numpy(values(name, parameter.shape[0]).copy()))

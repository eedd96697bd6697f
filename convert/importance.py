"""An importance matrix: the weight of each column for llama.cpp's quantisation, measured on texts.

The model reads the texts in llama.cpp, in a child process (`activations.py`). The means go into an
.npz next to the other temporary files. Quantisation then keeps the columns with large inputs more
exactly. Q8_0 makes no use of it.

Limits: texts are cut at `LONGEST` tokens; every text is one pass over all weights, which are read
from the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from convert.llama_child import call
from convert.processors import usable_processors

LONGEST = 1024
"""Largest number of tokens of a text."""


@dataclass(frozen=True)
class Importance:
    """The file, and the numbers of tokens and tensors of its measurement."""

    path: Path
    tokens: int
    tensors: int


def measure(model: Path, texts: Sequence[str], output: Path) -> Importance:
    """Measure an unquantised GGUF on `texts` and write `output` (.npz). Raises ConvertError."""
    threads = usable_processors()
    request = {
        "model": model,
        "texts": list(texts),
        "longest": LONGEST,
        "threads": threads,
        "output": output,
    }
    answer, _ = call("activations", request)
    return Importance(output, answer["tokens"], answer["tensors"])

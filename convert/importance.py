"""An importance matrix: how much each column of each weight matters, measured on given texts, for llama.cpp's quantisation.

The model runs over the texts in llama.cpp, in a child process (`activations.py`); the means go into an .npz beside the
other temporary files. Quantising then keeps the columns with large inputs more exactly. Q8_0 makes no use of it.

Limits: texts are cut at `LONGEST` tokens; every text is one pass over all weights, which are read from the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from convert.llama_child import call
from convert.processors import usable_processors

LONGEST = 1024


@dataclass(frozen=True)
class Importance:
    """The file, and how many tokens it was measured on and how many tensors it covers."""

    path: Path
    tokens: int
    tensors: int


def measure(model: Path, texts: Sequence[str], output: Path) -> Importance:
    """Measure an unquantised GGUF on `texts` and write `output` (.npz). Raises ConvertError."""
    threads = usable_processors()
    request = {"model": str(model), "texts": list(texts), "longest": LONGEST, "threads": threads, "output": str(output)}
    answer, _ = call("activations", request)
    return Importance(output, answer["tokens"], answer["tensors"])

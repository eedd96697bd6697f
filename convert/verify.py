"""Proof that a written GGUF equals the checkpoint and adapter, in levels.

- structure: every planned tensor exists with its shape, and sampled rows, dequantised, equal the
  merged source within the type's precision;
- tokenizer: a corpus encodes to the same ids in llama.cpp and in Hugging Face tokenizers;
- logits: the file's logits in llama.cpp against reference logits (`reference_logits.py`): largest
  difference, mean KL divergence, top-1 agreement.

Limits: rows are sampled, not exhausted (the seed is in the report); logits are compared on a few
prompts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from convert import files
from convert.errors import ConvertError
from convert.gguf_file import GgufFile
from convert.llama_child import call
from convert.pretokenizer import unknown_to_llama_cpp
from convert.processors import usable_processors
from convert.recipe import Recipe
from convert.reference_tokenizer import encode
from convert.safetensors_file import Floats
from convert.write import ReadRows, made_rows

ROWS_SAMPLED = 16
"""Number of rows sampled in each tensor."""

_UNKNOWN_PRE = re.compile(r"unknown pre-tokenizer type: '([^']*)'")

# Largest allowed |stored - source| as a share of the row's largest magnitude. Q8_0 allows half a
# step, an F16 scale, and the F16 file that llama.cpp may have quantised. F32 allows another order
# of the sums in a matrix product.
_LARGEST = {"F32": 2.0**-18, "F16": 2.0**-11, "BF16": 2.0**-8, "Q8_0": 1 / 254 + 2.0**-10}
# Largest allowed root mean square of the difference for coarser types, as a share of the row's own.
# Single values may differ much where an importance matrix gives them no weight. Rows in the wrong
# order give 1.4.
_MEAN_SQUARE = {"Q6_K": 0.06, "Q5_K": 0.12, "Q5_0": 0.12, "Q5_1": 0.12, "Q4_K": 0.25}
_LOOSE = 0.3
"""Limit for types without an entry above."""


@dataclass(frozen=True)
class Proof:
    """One level's result. `figures` are plain numbers; `detail` explains a skipped level."""

    level: str
    status: Literal["pass", "fail", "skipped"]
    detail: str
    figures: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        """The result as a plain dict."""
        return asdict(self)


def verify_structure(path: Path, recipe: Recipe, read: ReadRows, *, seed: int = 0) -> Proof:
    """Compare the tensor table and sampled rows of `path` with the recipe's source."""
    with GgufFile(path) as stored:
        return _compare_structure(stored, recipe, read, seed)


def _compare_structure(stored: GgufFile, recipe: Recipe, read: ReadRows, seed: int) -> Proof:
    planned = {rule.name: rule for rule in recipe.tensors}
    if set(stored.tensors) != set(planned):
        differing = sorted(set(stored.tensors) ^ set(planned))
        return Proof(
            "structure",
            "fail",
            f"{len(differing)} tensors are missing or extra, the first is {differing[0]}",
            {},
        )
    random = np.random.default_rng(seed)
    worst, rows_checked = 0.0, 0
    zeros: list[str] = []
    for name, rule in planned.items():
        tensor = stored.tensors[name]
        if tensor.shape != rule.shape:
            return Proof(
                "structure", "fail", f"{name} has shape {tensor.shape}, planned {rule.shape}", {}
            )
        rows = np.sort(
            random.choice(rule.shape[0], size=min(ROWS_SAMPLED, rule.shape[0]), replace=False)
        )
        expected = made_rows(rule, rows, read)
        if expected.ndim > 1 and not expected.any():
            zeros.append(name)
        actual = stored.rows(name, rows)
        if not np.isfinite(actual).all():
            return Proof("structure", "fail", f"{name} holds values that are not finite", {})
        error, allowed = _row_error(actual, expected, tensor.type.name)
        if error > allowed:
            return Proof(
                "structure",
                "fail",
                f"{name} differs from the source by {error:.2e} of its row's range",
                {"error": error},
            )
        worst, rows_checked = max(worst, error), rows_checked + len(rows)
    figures = {
        "tensors": len(planned),
        "rows": rows_checked,
        "worst_relative_error": worst,
        "seed": seed,
    }
    zero_note = (
        f"; {len(zeros)} matrices are zeros in every sampled row, the first is {zeros[0]}"
        if zeros
        else ""
    )
    return Proof(
        "structure",
        "pass",
        f"{len(planned)} tensors, {rows_checked} sampled rows equal the source{zero_note}",
        figures,
    )


def _row_error(actual: Floats, expected: Floats, kind: str) -> tuple[float, float]:
    """The largest error of a row relative to its size, and its limit, for rows stored as `kind`."""
    flat = (1, -1) if expected.ndim == 1 else (len(expected), -1)
    difference, wanted = np.abs(actual - expected).reshape(flat), np.abs(expected).reshape(flat)
    if kind in _LARGEST:
        return float((difference.max(axis=1) / (wanted.max(axis=1) + 1e-30)).max()), _LARGEST[kind]
    ratio = np.linalg.norm(difference, axis=1) / (np.linalg.norm(wanted, axis=1) + 1e-30)
    return float(ratio.max()), _MEAN_SQUARE.get(kind, _LOOSE)


def verify_tokenizer(path: Path, folder: Path, texts: Sequence[str]) -> Proof:
    """Encode `texts` with llama.cpp and with the folder's own tokenizer; the ids must be equal.

    Raises VocabError when llama.cpp does not know the pre-tokenizer that the file names.
    """
    theirs = encode(folder, texts)
    if theirs.reason:
        return Proof("tokenizer", "skipped", f"not checked: {theirs.reason}", {})
    ours = gguf_ids(path, theirs.texts)
    differing = [index for index, ids in enumerate(ours) if tuple(ids) != theirs.ids[index]]
    figures = {
        "texts": len(theirs.texts),
        "tokens": sum(len(ids) for ids in theirs.ids),
        "differing": len(differing),
    }
    if differing:
        text = theirs.texts[differing[0]]
        detail = (
            f"{len(differing)} of {len(theirs.texts)} texts encode differently from "
            f"{theirs.by}, the first is {text[:60]!r}"
        )
        return Proof("tokenizer", "fail", detail, figures)
    return Proof(
        "tokenizer",
        "pass",
        f"{figures['tokens']} tokens of {len(theirs.texts)} texts are as {theirs.by} has them",
        figures,
    )


def gguf_ids(path: Path, texts: Sequence[str]) -> list[list[int]]:
    """llama.cpp's token ids of each text, without added special tokens."""
    try:
        answer, _ = call("tokenize", {"model": path, "texts": list(texts)})
    except ConvertError as error:
        unknown = _UNKNOWN_PRE.search(error.reason)
        if unknown is None:
            raise
        raise unknown_to_llama_cpp(unknown[1]) from None
    ids: list[list[int]] = answer["ids"]
    return ids


def gguf_logits(
    path: Path, prompts: Sequence[Sequence[int]], *, adapter: Path | None = None
) -> Floats:
    """llama.cpp's float32 logits after every token of every prompt: (tokens, vocabulary).

    The prompts are concatenated. `adapter` is a LoRA GGUF to apply at run time.
    """
    with files.temporary_folder() as folder:
        output, threads = folder / "logits.npy", min(2, usable_processors())
        request: dict[str, Any] = {
            "model": path,
            "prompts": [list(ids) for ids in prompts],
            "threads": threads,
            "output": output,
        }
        if adapter is not None:
            request["adapter"] = adapter
        call("logits", request)
        result: Floats = np.load(output, allow_pickle=False)
        return result


def compare_logits(
    level: str, actual: Floats, expected: Floats, *, max_difference: float, max_kl: float
) -> Proof:
    """Largest |difference|, mean KL(expected || actual) in nats, and top-1 agreement.

    Both arrays have the shape (tokens, vocabulary).
    """
    p, q = _log_softmax(expected), _log_softmax(actual)
    divergence = float((np.exp(p) * (p - q)).sum(axis=1).mean())
    difference = float(np.abs(actual - expected).max())
    agreement = float((actual.argmax(axis=1) == expected.argmax(axis=1)).mean())
    figures = {
        "max_difference": difference,
        "mean_kl": divergence,
        "top1": agreement,
        "tokens": len(expected),
    }
    passed = (
        bool(np.isfinite(actual).all()) and difference <= max_difference and divergence <= max_kl
    )
    detail = (
        f"max |difference| {difference:.2e}, mean KL {divergence:.2e}, top-1 {agreement:.1%} "
        f"over {len(expected)} tokens"
    )
    return Proof(level, "pass" if passed else "fail", detail, figures)


def _log_softmax(logits: Floats) -> npt.NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    result: npt.NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return result

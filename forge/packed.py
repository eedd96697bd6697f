"""The corpus as one compressed file of tokens, which training reads with numpy alone.

Layout of `corpus.npz`:
- `prompts` and `answers` are flat uint16 token arrays, with exclusive ends in `prompts_ends` and
  `answers_ends`;
- `pairs` holds (prompt, answer) indices;
- `digests` are those of the answers' kernels, to choose the kernels that passed the referee;
- `eval_prompts`, with their ends, are one prompt for each operation;
- `eval_names` (JSON) names the operation of each, and whether it is held out;
- `token_bytes` (JSON, latin-1) lets training decode its own samples.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from forge import tokenizer as bpe

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MOST_TOKENS = 1400
"""Tokens of a prompt and its answer; longer examples are left out."""
_LEARNT_FROM = 6000
"""Number of prompts, and likewise of answers, that train the tokenizer."""


@dataclass(frozen=True)
class Pair:
    """One example. `answer` lacks the end-of-text token; `digest` is that of the kernel alone."""

    prompt: str
    answer: str
    digest: str


@dataclass(frozen=True)
class Evaluated:
    """The prompt of an operation, for drafts after training."""

    op: str
    heldout: bool
    prompt: str


@dataclass(frozen=True, kw_only=True)
class Tokenised:
    """Examples as tokens: different prompts and answers, and pairs of their numbers.

    An answer ends in the end-of-text token `eos`. `lengths` are the tokens of each pair.
    """

    prompts: Sequence[Sequence[int]]
    answers: Sequence[Sequence[int]]
    pairs: Sequence[tuple[int, int]]
    digests: Sequence[str]
    lengths: Sequence[int]
    eos: int


def tokenised(examples: Sequence[Pair], tokenizer: Tokenizer) -> Tokenised:
    """The examples that are short enough, in their order; one that is given twice counts twice."""
    prompts = list(dict.fromkeys(one.prompt for one in examples))
    answers = list(dict.fromkeys(one.answer for one in examples))
    eos = bpe.SPECIAL.index(bpe.EOS)
    prompt_tokens = [row.ids for row in tokenizer.encode_batch(prompts)]
    answer_tokens = [[*row.ids, eos] for row in tokenizer.encode_batch(answers)]
    prompt_at = {text: number for number, text in enumerate(prompts)}
    answer_at = {text: number for number, text in enumerate(answers)}
    pairs, digests, lengths = [], [], []
    for one in examples:
        prompt, answer = prompt_at[one.prompt], answer_at[one.answer]
        length = len(prompt_tokens[prompt]) + len(answer_tokens[answer])
        if length <= MOST_TOKENS:
            pairs.append((prompt, answer))
            digests.append(one.digest)
            lengths.append(length)
    return Tokenised(
        prompts=prompt_tokens,
        answers=answer_tokens,
        pairs=pairs,
        digests=digests,
        lengths=lengths,
        eos=eos,
    )


def pack(
    examples: Sequence[Pair], evaluated: Sequence[Evaluated], folder: Path
) -> dict[str, float | int]:
    """Write `corpus.npz` and the tokenizer into the folder; returns the corpus's figures."""
    prompts = list(dict.fromkeys(one.prompt for one in examples))
    answers = list(dict.fromkeys(one.answer for one in examples))
    tokenizer = bpe.train([*prompts[:_LEARNT_FROM], *answers[:_LEARNT_FROM]])
    bpe.save(tokenizer, folder)
    found = tokenised(examples, tokenizer)
    lengths = found.lengths
    arrays = {
        **_flat("prompts", found.prompts),
        **_flat("answers", found.answers),
        **_flat(
            "eval_prompts",
            [row.ids for row in tokenizer.encode_batch([one.prompt for one in evaluated])],
        ),
        "pairs": np.array(found.pairs, dtype=np.int32),
        "digests": np.array(found.digests),
        "eval_names": _json([{"op": one.op, "heldout": one.heldout} for one in evaluated]),
        "eos": np.array(found.eos),
        "token_bytes": _json([token.decode("latin-1") for token in bpe.token_bytes(tokenizer)]),
    }
    np.savez_compressed(folder / "corpus.npz", **arrays)
    return {
        "pairs": len(found.pairs),
        "kernels": len(set(found.digests)),
        "prompts": len(prompts),
        "vocabulary": tokenizer.get_vocab_size(),
        "prompt_tokens_mean": float(np.mean([len(found.prompts[one]) for one, _ in found.pairs])),
        "answer_tokens_mean": float(np.mean([len(found.answers[one]) for _, one in found.pairs])),
        "tokens_max": max(lengths),
        "tokens_mean": float(np.mean(lengths)),
    }


def _flat(name: str, rows: Sequence[Sequence[int]]) -> dict[str, Any]:
    flat = np.fromiter((token for row in rows for token in row), dtype=np.uint16)
    return {name: flat, f"{name}_ends": np.cumsum([len(row) for row in rows]).astype(np.int64)}


def _json(content: object) -> Any:
    return np.array(json.dumps(content))

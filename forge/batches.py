"""The tokenised corpus as batches: pairs of like length together, padded on the right.

The loss counts on the answer only.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from forge.packed import Tokenised

_POOL = 8192
Integers = NDArray[np.int64]
Batch = tuple[Integers, Integers, Integers]


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """corpus.npz in memory (layout: see `forge/corpus.py`)."""

    prompts: list[NDArray[np.uint16]]
    answers: list[NDArray[np.uint16]]
    pairs: NDArray[np.int32]
    eval_prompts: list[list[int]]
    eval_names: list[dict[str, Any]]
    token_bytes: list[bytes]
    eos: int

    def decode(self, tokens: list[int]) -> str:
        """Text of a token list."""
        return b"".join(
            self.token_bytes[token] for token in tokens if token < len(self.token_bytes)
        ).decode("utf-8", errors="replace")


def _rows(flat: NDArray[np.uint16], ends: Integers) -> list[NDArray[np.uint16]]:
    return np.split(flat, ends[:-1])


def load(path: Path, passed: frozenset[str] | None = None) -> Corpus:
    """Read corpus.npz: the pairs whose kernels passed, or all for None."""
    with np.load(path) as data:
        chosen = (
            slice(None)
            if passed is None
            else np.array([str(digest) in passed for digest in data["digests"]])
        )
        return Corpus(
            prompts=_rows(data["prompts"], data["prompts_ends"]),
            answers=_rows(data["answers"], data["answers_ends"]),
            pairs=data["pairs"][chosen],
            eval_prompts=[
                row.tolist() for row in _rows(data["eval_prompts"], data["eval_prompts_ends"])
            ],
            eval_names=json.loads(str(data["eval_names"])),
            token_bytes=[text.encode("latin-1") for text in json.loads(str(data["token_bytes"]))],
            eos=int(data["eos"]),
        )


def in_memory(found: Tokenised) -> Corpus:
    """A corpus for training alone: it has no evaluation prompts and no texts."""
    return Corpus(
        prompts=[np.array(row, dtype=np.uint16) for row in found.prompts],
        answers=[np.array(row, dtype=np.uint16) for row in found.answers],
        pairs=np.array(found.pairs, dtype=np.int32).reshape(-1, 2),
        eval_prompts=[],
        eval_names=[],
        token_bytes=[],
        eos=found.eos,
    )


def batches(corpus: Corpus, tokens_per_batch: int, seed: int, context: int) -> Iterator[Batch]:
    """Endless batches (tokens, where, labels) of at most `context` tokens a sequence.

    `labels[i]` is the token that follows flat position `where[i]`, of answers only.
    """
    rng = np.random.default_rng(seed)
    lengths = (
        np.array([len(corpus.prompts[p]) + len(corpus.answers[a]) for p, a in corpus.pairs]) - 1
    )
    usable = np.nonzero(lengths <= context)[0]
    while True:
        order = rng.permutation(usable)
        pieces: list[Integers] = []
        for start in range(0, len(order), _POOL):
            pool = order[start : start + _POOL]
            pool = pool[np.argsort(lengths[pool], kind="stable")]
            while len(pool):
                width = _round_up(int(lengths[pool[min(len(pool) - 1, 8)]]))
                count = max(1, tokens_per_batch // width)
                while (
                    count > 1
                    and _round_up(int(lengths[pool[min(count, len(pool)) - 1]])) * count
                    > tokens_per_batch
                ):
                    count -= 1
                pieces.append(pool[:count])
                pool = pool[count:]
        for index in rng.permutation(len(pieces)):
            yield _batch(corpus, pieces[index], _round_up(int(lengths[pieces[index]].max())))


def _round_up(length: int) -> int:
    return -(-length // 64) * 64


def _batch(corpus: Corpus, members: Integers, width: int) -> Batch:
    tokens = np.full((len(members), width), corpus.eos, dtype=np.int64)
    where, labels = [], []
    for row, member in enumerate(members):
        prompt, answer = (
            corpus.prompts[corpus.pairs[member, 0]],
            corpus.answers[corpus.pairs[member, 1]],
        )
        head, total = len(prompt), len(prompt) + len(answer)
        tokens[row, :head] = prompt
        tokens[row, head : total - 1] = answer[:-1]
        where.append(np.arange(row * width + head - 1, row * width + total - 1))
        labels.append(answer.astype(np.int64))
    return tokens, np.concatenate(where), np.concatenate(labels)


def prefetched(source: Iterator[Batch], depth: int = 8) -> Iterator[Batch]:
    """`source` drawn ahead in a daemon thread; its error is raised here."""
    ready: queue.Queue[Batch | Exception] = queue.Queue(depth)

    def fill() -> None:
        try:
            for item in source:
                ready.put(item)
        except Exception as error:
            ready.put(error)

    threading.Thread(target=fill, daemon=True).start()
    while True:
        item = ready.get()
        if isinstance(item, Exception):
            raise item
        yield item

"""The training corpus: (prompt, kernel) pairs, tokenised, in one compressed file that training reads without other packages.

`python -m forge.corpus build/forge` writes `corpus.npz` and the tokenizer. Everything follows from `SEED`. Prompts are
made by the application's own prompt builder and chat template, so the smith reads in training what it reads in use.

Layout of corpus.npz: `prompts` and `answers` are flat uint16 token arrays with `*_ends` (exclusive ends); `pairs` holds
(prompt, answer) indices; `eval_prompts` (+ ends) are one prompt per op, `eval_names` (JSON) their op, dialect and whether
the op is held out; `token_bytes` (JSON, latin-1) lets training decode its own samples.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from forge import tokenizer as bpe
from forge.grammar import canonical_hash, designs, recipe, write, write_fixed
from forge.grammar.design import Design
from forge.ops import heldout, synthetic, training
from forge.passed import read_passed
from kmint_tui.smith.exemplars import Dialect
from kmint_tui.smith.prompts import build
from kmint_tui.smith.template import FENCE, render
from referee.ops import Op, catalogue, signature

SEED = 1
CARD, FENCED, REPAIR = 0.7, 0.25, 0.08
CLOSE = "```"


@dataclass(frozen=True)
class Share:
    """How many designs and pairs each op of a group gets."""

    designs: int
    pairs: int


SHARES = {
    "chain": Share(10, 180),
    "other": Share(16, 450),
    "short": Share(8, 150),
    "synthetic": Share(5, 120),
    "remix": Share(2, 30),
}


@dataclass(frozen=True)
class Pair:
    """One example. `answer` lacks the end-of-text token."""

    op: str
    prompt: str
    answer: str


@cache
def group(op: Op) -> str:
    """Which share an op gets."""
    if op.origin == "remix":
        return "remix"
    if op.name in {made.name for made in synthetic()}:
        return "synthetic"
    return "short" if op.regime == "short" else "chain" if op.family == "chain" else "other"


def op_designs(op: Op) -> tuple[Design, ...]:
    """The designs of an op that the corpus may use (before validation)."""
    return designs(op, SHARES[group(op)].designs, SEED)


def feedback(op: Op, rng: random.Random) -> str:
    """A line such as the referee gives about an earlier draft."""
    names = signature(op)
    return rng.choice(
        (
            f"incorrect: error {rng.uniform(0.01, 900):.3g} at f16-37x4097-mixed-x64, {rng.randint(1, 150000)} elements over the tolerance",
            f"compile: NameError('{rng.choice(names)}_ptr is not defined')",
            "incorrect: the output holds NaN at f32-5x1000-mixed-x1; subtract the row maximum and mask the tail of the row",
            f"trace: run() takes {len(names)} arguments {names}",
            "compile: mean is not defined",
            "screen: no function decorated with @triton.jit",
            "screen: the source does not parse: '(' was never closed",
            f"incorrect: wrong at odd sizes (rows of {rng.choice((127, 1000, 4097))}): masked lanes enter the reduction",
            f"loss: {rng.uniform(0.4, 0.98):.2f}x of the fastest baseline; the row is read {rng.choice((2, 3))} times",
            "trace: aten._softmax: the answer must be computed in Triton",
        )
    )


@lru_cache(maxsize=20_000)
def prompt_text(op: Op, dialect: Dialect, *, fenced: bool = False, repair: str | None = None) -> str:
    """The exact text the smith reads."""
    return render(build(op, dialect, feedback=repair), bpe.CHAT_TEMPLATE, bos=bpe.BOS, prefill=FENCE if fenced else "")


def draw_pair(op: Op, chosen: Sequence[Design], rng: random.Random) -> Pair:
    """One example of an op."""
    weights = recipe(op)[1]
    per_structure = {name: [design for design in chosen if design.structure == name] for name in weights}
    present = {name: weight for name, weight in weights.items() if per_structure[name]}
    structure = rng.choices(tuple(present), tuple(present.values()))[0]
    source = write(op, rng.choice(per_structure[structure]), rng)
    fenced = rng.random() < FENCED
    repair = feedback(op, rng) if rng.random() < REPAIR else None
    dialect: Dialect = "card" if rng.random() < CARD else "trained"
    return Pair(op.name, prompt_text(op, dialect, fenced=fenced, repair=repair), source + CLOSE if fenced else source)


def pairs(passed: frozenset[str] | None = None, scale: float = 1.0) -> Iterator[Pair]:
    """All examples. `passed` holds the canonical hashes that the referee passed; others are left out."""
    rng = random.Random(SEED)
    for op in training():
        chosen = [design for design in op_designs(op) if passed is None or canonical_hash(write_fixed(op, design)) in passed]
        for _ in range(max(1, round(SHARES[group(op)].pairs * scale)) if chosen else 0):
            yield draw_pair(op, chosen, rng)


def eval_ops() -> tuple[tuple[Op, bool], ...]:
    """Every catalogue op and every held-out remix, with whether it is held out."""
    out = {op.name for op in heldout()}
    return tuple((op, op.name in out) for op in {op.name: op for op in (*catalogue(), *heldout())}.values())


def _flatten(rows: Sequence[Sequence[int]]) -> tuple[Any, Any]:
    import numpy as np

    flat = np.fromiter((token for row in rows for token in row), dtype=np.uint16)
    return flat, np.cumsum([len(row) for row in rows]).astype(np.int64)


def build_corpus(folder: Path, *, pre: str = bpe.PRE, passed: frozenset[str] | None = None, scale: float = 1.0) -> dict[str, Any]:
    """Write the corpus and its tokenizer to `folder`; returns its figures."""
    import numpy as np

    examples = list(pairs(passed, scale))
    random.Random(SEED).shuffle(examples)
    unique_prompts = list(dict.fromkeys(example.prompt for example in examples))
    unique_answers = list(dict.fromkeys(example.answer for example in examples))
    tokenizer = bpe.train([*unique_prompts[:400], *unique_answers[:12000]], pre=pre)
    bpe.save(tokenizer, folder)
    prompt_tokens = [row.ids for row in tokenizer.encode_batch(unique_prompts)]
    eos = bpe.SPECIAL.index(bpe.EOS)
    answer_tokens: list[list[int]] = [[*row.ids, eos] for row in tokenizer.encode_batch(unique_answers)]
    prompt_index = {text: index for index, text in enumerate(unique_prompts)}
    answer_index = {text: index for index, text in enumerate(unique_answers)}
    table = np.array([(prompt_index[example.prompt], answer_index[example.answer]) for example in examples], dtype=np.int32)
    judged = [(op, out, prompt_text(op, "card")) for op, out in eval_ops()]
    eval_tokens = [row.ids for row in tokenizer.encode_batch([text for _, _, text in judged])]
    names = [{"op": op.name, "dialect": "card", "heldout": out} for op, out, _ in judged]
    arrays = {}
    for name, rows in (("prompts", prompt_tokens), ("answers", answer_tokens), ("eval_prompts", eval_tokens)):
        arrays[name], arrays[f"{name}_ends"] = _flatten(rows)
    np.savez_compressed(
        folder / "corpus.npz",
        pairs=table,
        eval_names=np.array(json.dumps(names)),
        eos=np.array(eos),
        token_bytes=np.array(json.dumps([token.decode("latin-1") for token in bpe.token_bytes(tokenizer)])),
        **arrays,
    )
    lengths = [len(prompt_tokens[p]) + len(answer_tokens[a]) for p, a in table.tolist()]
    figures = {
        "pairs": len(examples),
        "ops": len({example.op for example in examples}),
        "answers": len(unique_answers),
        "prompts": len(unique_prompts),
        "vocabulary": tokenizer.get_vocab_size(),
        "pre": pre,
        "prompt_tokens_card": len(eval_tokens[0]),
        "prompt_tokens_mean": float(np.mean([len(prompt_tokens[p]) for p in table[:, 0]])),
        "answer_tokens_mean": float(np.mean([len(answer_tokens[a]) for a in table[:, 1]])),
        "answer_tokens_max": max(map(len, answer_tokens)),
        "tokens_max": max(lengths),
        "tokens_mean": float(np.mean(lengths)),
        "seed": SEED,
    }
    (folder / "corpus.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return figures


def main() -> None:
    """Command line: `python -m forge.corpus FOLDER [--passed FILE] [--pre NAME]`."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--passed", type=Path, help="hashes the referee passed, one a line, optionally gzipped")
    parser.add_argument("--pre", default=bpe.PRE)
    parser.add_argument("--scale", type=float, default=2.0, help="multiplies the pairs of every op")
    arguments = parser.parse_args()
    passed = None
    if arguments.passed:
        passed = read_passed(arguments.passed)
    print(json.dumps(build_corpus(arguments.folder, pre=arguments.pre, passed=passed, scale=arguments.scale), indent=1))


if __name__ == "__main__":
    main()

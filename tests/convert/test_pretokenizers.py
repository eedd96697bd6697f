"""Every pre-tokenizer that kmint recognises by its published structure, compared with llama.cpp.

The vocabularies are trained here, over code in several scripts; the patterns are the published
ones.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from convert import checks
from convert.errors import VocabError
from convert.job import ConvertJob
from convert.pretokenizer import KNOWN, Known
from convert.request import ConvertRequest
from tests.convert import reference_models

TEXTS = [
    Path(__file__).read_text(encoding="utf-8"),
    *checks.CORPUS * 20,
    "x1y22 1234567 3.14e-10 東京の天気 한국어 Ελλάδα русский naïve e\u0301 ''''' don't YOU'LL == != <<= ->\r\n\t\t"
    * 20,
]


def steps(known: Known) -> pre_tokenizers.PreTokenizer:
    """The pre-tokenizer in the form of a tokenizer.json."""
    own = known.patterns[-1].startswith("ByteLevel")
    made: list[pre_tokenizers.PreTokenizer] = []
    for pattern in known.patterns[: len(known.patterns) - own]:
        single = pattern == r"\p{N}"
        made.append(
            pre_tokenizers.Digits(individual_digits=True)
            if single
            else pre_tokenizers.Split(Regex(pattern), "isolated")
        )
    return pre_tokenizers.Sequence(
        [*made, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=own)]
    )


def checkpoint(known: Known, folder: Path) -> Path:
    """A base whose tokenizer cuts as `known` does."""
    reference_models.write(reference_models.CASES["llama"], folder)
    base = folder / "base"
    tokenizer = Tokenizer(models.BPE(ignore_merges=known.ignore_merges))
    tokenizer.pre_tokenizer = steps(known)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokens = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=1500, special_tokens=tokens, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.save(str(base / "tokenizer.json"))
    config = {**reference_models.CASES["llama"].config, "vocab_size": 1536}
    (base / "config.json").write_text(json.dumps(config))
    shapes = reference_models.tensors(config)
    reference_models.save(
        base / "model.safetensors",
        {name: reference_models.values(name, shape) for name, shape in shapes.items()},
        "F32",
    )
    return base


@pytest.mark.sweep
@pytest.mark.parametrize("known", KNOWN, ids=[known.name for known in KNOWN])
def test_it_is_recognised_and_proven(known: Known, tmp_path: Path) -> None:
    base = checkpoint(known, tmp_path)
    with ConvertJob(ConvertRequest(base=base, out=tmp_path / "m.gguf", kinds=("F16",))) as job:
        assert job.vocab.metadata["tokenizer.ggml.pre"] == known.name
        proven = checks.prove_vocabulary(tmp_path, job.request, job.recipe, job.vocab)
    assert proven is not None and proven.finding.figures["texts"] > 600
    for alias in known.aliases[:1]:
        with ConvertJob(
            ConvertRequest(base=base, out=tmp_path / "m.gguf", kinds=("F16",), pre=alias)
        ) as job:
            checks.prove_vocabulary(tmp_path, job.request, job.recipe, job.vocab)


def test_a_wrong_name_fails_the_proof(tmp_path: Path) -> None:
    """Each name on a vocabulary whose tokenizer cuts digits, marks or words in another way."""
    by_name = {known.name: known for known in KNOWN}
    for true, false in (
        ("qwen2", "gpt-2"),
        ("llama-bpe", "qwen2"),
        ("smollm", "gpt-2"),
        ("deepseek-coder", "qwen2"),
    ):
        folder = tmp_path / f"{true}-{false}"
        folder.mkdir()
        with ConvertJob(
            ConvertRequest(
                base=checkpoint(by_name[true], folder), out=folder / "m.gguf", kinds=("F16",)
            )
        ) as job:
            job.vocab.metadata["tokenizer.ggml.pre"] = false
            with pytest.raises(VocabError, match="texts encode differently"):
                checks.prove_vocabulary(folder, job.request, job.recipe, job.vocab)

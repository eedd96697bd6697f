"""llama.cpp splits text exactly as the trained tokenizer, through a vocabulary-only GGUF file."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from convert.job import ConvertJob
from convert.request import ConvertRequest
from convert.verify import verify_tokenizer
from forge import tokenizer as bpe
from forge.choices import draw
from forge.corpus import seed_pairs
from forge.export import assemble
from forge.model import Llama, Shape
from forge.train import save
from kmint_tui.graph.operations import catalogue_program
from kmint_tui.template.structures import kernel_source

TOUGH = (
    "x  =  1024*0.7978845608\n\n\n\tif N>=2048:\r\n   pass",
    "don't we'll a_b__c  \n  ",
    "é漢字 🙂 1234567 x1y22",
    "<|im_start|>user\nhi<|im_end|>\n",
)


@pytest.fixture(scope="module")
def texts() -> list[str]:
    drawn = [pair for seed in range(40) for pair in seed_pairs(seed)]
    return [text for pair in drawn for text in (pair.prompt, pair.answer)]


@pytest.mark.parametrize("pre", ["gpt-2", "llama-bpe"])
def test_llama_cpp_gives_the_same_tokens(pre: str, texts: list[str], tmp_path: Path) -> None:
    trained = bpe.train(texts, pre=pre)
    bpe.save(trained, tmp_path / "corpus")
    size = -(-trained.get_vocab_size() // 64) * 64
    save(
        Llama(Shape(vocabulary=size, hidden=32, layers=1, heads=1, head_dim=32, ffn=32)),
        tmp_path / "run",
        eos=1,
    )
    assemble(tmp_path / "run", tmp_path / "corpus", tmp_path / "hf")
    with ConvertJob(
        ConvertRequest(
            base=tmp_path / "hf", out=tmp_path / "smith.gguf", kinds=("F16",), level="structure"
        )
    ) as job:
        (written,) = job.run()
    assert any(pre in note for note in written.notes)
    finding = verify_tokenizer(Path(written.path), tmp_path / "hf", [*texts, *TOUGH])
    assert finding.status == "pass", finding.detail
    assert finding.figures["tokens"] > 10_000


def test_tokens_decode_to_their_text(texts: list[str]) -> None:
    trained = bpe.train(texts)
    parts = bpe.token_bytes(trained)
    program = catalogue_program("softmax")
    assert program is not None
    stage = program.stages[program.main]
    source = kernel_source(stage, *draw(stage, random.Random(0)))
    assert b"".join(parts[token] for token in trained.encode(source).ids).decode() == source
    assert trained.get_vocab_size() <= bpe.VOCABULARY
    assert [trained.token_to_id(name) for name in bpe.SPECIAL] == list(range(len(bpe.SPECIAL)))


def test_prompt_and_answer_split_where_the_model_starts(texts: list[str]) -> None:
    trained = bpe.train(texts)
    for prompt, answer in list(zip(texts[::2], texts[1::2], strict=True))[:40]:
        assert (
            trained.encode(prompt).ids + trained.encode(answer).ids
            == trained.encode(prompt + answer).ids
        )

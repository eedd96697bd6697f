"""llama.cpp splits text exactly as the tokenizer we train does, through a vocabulary-only GGUF file."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from forge import tokenizer as bpe
from forge.corpus import pairs
from forge.grammar import designs, write
from referee.ops import get

TOUGH = (
    "x  =  1024*0.7978845608\n\n\n\tif N>=2048:\r\n   pass",
    "don't we'll a_b__c  \n  ",
    "é漢字 🙂 1234567 x1y22",
    "<|im_start|>user\nhi<|im_end|>\n",
)


@pytest.fixture(scope="module")
def texts() -> list[str]:
    drawn = [pair for index, pair in enumerate(pairs(scale=0.02)) if index % 9 == 0]
    return [text for pair in drawn for text in (pair.prompt, pair.answer)]


@pytest.mark.parametrize("pre", ["gpt-2", "llama-bpe"])
def test_llama_cpp_gives_the_same_tokens(pre: str, texts: list[str], tmp_path: Path) -> None:
    llama_cpp = pytest.importorskip("llama_cpp")
    gguf = pytest.importorskip("gguf")
    trained = bpe.train(texts, pre=pre)
    bpe.save(trained, tmp_path)
    names = [trained.id_to_token(i) for i in range(trained.get_vocab_size())]
    path = tmp_path / "vocab.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    vocab = gguf.SpecialVocab(tmp_path, load_merges=True)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(names)
    writer.add_token_types([3 if name in bpe.SPECIAL else 1 for name in names])
    vocab.add_to_gguf(writer)
    for name in ("context_length", "embedding_length", "block_count", "feed_forward_length", "head_count"):
        getattr(writer, f"add_{name}")(64)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    model = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
    for text in (*texts, *TOUGH):
        assert model.tokenize(text.encode(), add_bos=False, special=True) == trained.encode(text).ids, text[:80]
    model.close()


def test_tokens_decode_to_their_text(texts: list[str]) -> None:
    trained = bpe.train(texts)
    parts = bpe.token_bytes(trained)
    source = write(get("softmax"), designs(get("softmax"), 1, 0)[0], random.Random(0))
    assert b"".join(parts[token] for token in trained.encode(source).ids).decode() == source
    assert trained.get_vocab_size() <= bpe.VOCABULARY
    assert [trained.token_to_id(name) for name in bpe.SPECIAL] == list(range(len(bpe.SPECIAL)))


def test_prompt_and_answer_split_where_the_model_starts(texts: list[str]) -> None:
    trained = bpe.train(texts)
    for prompt, answer in list(zip(texts[::2], texts[1::2], strict=True))[:40]:
        assert trained.encode(prompt).ids + trained.encode(answer).ids == trained.encode(prompt + answer).ids

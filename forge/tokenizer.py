"""The smith's tokenizer: byte-level BPE, at most 2,048 tokens, in a form llama.cpp knows by name.

The special tokens come first (ids 0-6). The pre-tokenizer is one of llama.cpp's named ones;
`tests/forge` proves that llama.cpp splits text into the same tokens.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from tokenizers.models import BPE

VOCABULARY = 2048
BOS, EOS, PAD = "<s>", "</s>", "<pad>"
SPECIAL = (BOS, EOS, PAD, "<|im_start|>", "<|im_end|>", "<think>", "</think>")
PRE = "llama-bpe"
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
    "{% if enable_thinking is defined and enable_thinking is false %}"
    "{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}{% endif %}"
)
# Source: Llama 3's published pattern. Letters with one leading sign, digits by three, newlines
# after punctuation.
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def train(texts: Iterable[str], *, pre: str = PRE, vocabulary: int = VOCABULARY) -> Tokenizer:
    """A tokenizer trained on `texts`. `pre` is gpt-2 or llama-bpe, else ValueError is raised."""
    from tokenizers import models, pre_tokenizers, trainers

    tokenizer = _split(models.BPE(ignore_merges=pre == "llama-bpe"), pre)
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def of_vocabulary(tokens: Sequence[str], merges: Sequence[str], *, pre: str = PRE) -> Tokenizer:
    """The tokenizer of a vocabulary in id order and of its merges, as a GGUF file has them.

    The special tokens are those of `SPECIAL`. Raises ValueError for another `pre`.
    """
    from tokenizers import AddedToken, models

    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    numbers = {token: number for number, token in enumerate(tokens)}
    tokenizer = _split(models.BPE(numbers, pairs, ignore_merges=pre == "llama-bpe"), pre)
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in SPECIAL])
    return tokenizer


def _split(model: BPE, pre: str) -> Tokenizer:
    """A tokenizer of this model with the pre-tokenizer of that name."""
    from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers

    if pre not in ("gpt-2", "llama-bpe"):
        raise ValueError(f"unknown pre-tokenizer {pre!r}: use gpt-2 or llama-bpe")
    tokenizer = Tokenizer(model)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pre == "gpt-2")
    split = pre_tokenizers.Split(Regex(_LLAMA3), behavior="isolated")
    tokenizer.pre_tokenizer = (
        byte_level if pre == "gpt-2" else pre_tokenizers.Sequence([split, byte_level])
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def save(tokenizer: Tokenizer, folder: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json, chat_template.jinja in Hugging Face's form."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": EOS,
        "pad_token": PAD,
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 2048,
    }
    (folder / "tokenizer_config.json").write_text(
        json.dumps(config, indent=1) + "\n", encoding="utf-8"
    )
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")


def token_bytes(tokenizer: Tokenizer) -> list[bytes]:
    """The bytes of every token, by id; special tokens give nothing."""
    alphabet = _byte_of()
    texts = {number: text for text, number in tokenizer.get_vocab().items()}
    return [
        b"" if texts[i] in SPECIAL else bytes(alphabet[c] for c in texts[i])
        for i in range(len(texts))
    ]


def _byte_of() -> dict[str, int]:
    """The byte each character of GPT-2's printable alphabet stands for."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)]
    table = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in printable)
    return table | {chr(256 + index): byte for index, byte in enumerate(others)}

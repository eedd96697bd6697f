"""A tokenizer with a made-up vocabulary: a byte-level BPE whose merges are random pairs.

It has any number of tokens, so nothing has to be trained.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from convert.pretokenizer import KNOWN

_LONGEST_TOKEN = 12
"""Characters of the longest token."""


def write_tokenizer(
    folder: Path, size: int, pre: str, special: tuple[str, ...], seed: int = 2
) -> None:
    """Write tokenizer.json with `size` tokens and tokenizer_config.json to `folder`.

    `pre` is llama.cpp's name of the pre-tokenizer. The first special token is bos, the second eos.
    """
    from tokenizers import pre_tokenizers

    known = next(known for known in KNOWN if known.name == pre)
    draw, tokens = random.Random(seed), sorted(pre_tokenizers.ByteLevel.alphabet())
    seen, merges = {*tokens, *special}, []
    while len(seen) < size:
        left, right = draw.choice(tokens), draw.choice(tokens)
        if len(left + right) <= _LONGEST_TOKEN and left + right not in seen:
            merges.append([left, right])
            tokens.append(left + right)
            seen.add(left + right)
    steps: list[dict[str, Any]] = [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        for pattern in known.patterns
    ]
    steps.append(
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    )
    flags = {
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": number, "content": text, **flags} for number, text in enumerate(special)
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
        "post_processor": None,
        "decoder": {
            "type": "ByteLevel",
            "add_prefix_space": True,
            "trim_offsets": True,
            "use_regex": True,
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": known.ignore_merges,
            "vocab": {text: number for number, text in enumerate([*special, *tokens])},
            "merges": merges,
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(document))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": special[0],
        "eos_token": special[1],
        "chat_template": "{{ messages }}",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))

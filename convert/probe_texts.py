"""About a thousand short texts on which two different tokenizers are likely to differ.

Half come from the vocabulary: a wrong pre-tokenizer cuts a token apart, so tokens of mixed kinds of
characters come first. The others are runs that pre-tokenizers treat in different ways: digits,
blanks, operators, contractions, CJK, combining marks, emoji. The same vocabulary gives the same
texts.
"""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from convert.sentencepiece import CONTROL, NORMAL, USER_DEFINED

LONGEST_TOKEN = 40
EACH_KIND, AT_RANDOM, MOST_ADDED = 40, 120, 4000
_OPERATORS = (
    "+ - * / % = == != <= >= << >> -> => ** // += |= && || ... :: @ # $ ^ ~ ` ?. ?? "
    "<| |> {{ }} [( )] ;; \\n"
).split(" ")
_WORDS = (
    "run",
    "Kernel",
    "BLOCK_SIZE",
    "tl.load",
    "x_ptr",
    "über",
    "İstanbul",
    "ﬁn",
    "naïve",
    "Ελλάδα",
    "мир",
    "ǅ",
    "ß",
    "don't",
)
_SCRIPTS = (
    "東京の天気",
    "한국어",
    "中文字符",
    "ไทย",
    "हिन्दी",
    "עברית",
    "العربية",
    "ქართული",
    "\u0e33\u0e49",
    "一二三四五六七八九十",
)
_MARKS = (
    "e\u0301",
    "a\u0308b",
    "\u0300x",
    "q\u0323\u0307",
    "\u200d",
    "\ufeff",
    "\u00ad",
    "\u0340",
    "\u2126",
    "\u212b",
)
_EMOJI = (
    "😀",
    "👩\u200d🚀",
    "🇩🇪",
    "👍🏽",
    "❤\ufe0f",
    "🏴\U000e0067\U000e007f",
    "①",
    "²",
    "½",
    "Ⅷ",
    "٣٤",
    "१२३",
)
_BLANKS = (
    " ",
    "  ",
    "\t",
    "\n",
    "\r\n",
    "\n\n",
    " \n",
    "\n ",
    "\u00a0",
    "\u3000",
    "\u2003",
    "\v",
    "\f",
    "\u0085",
    "\u2028",
)


def probe_texts(vocabulary: Mapping[str, Any]) -> tuple[str, ...]:
    """The texts for a vocabulary in GGUF's `tokenizer.*` keys; each added token occurs in one."""
    tokens, types = vocabulary["tokenizer.ggml.tokens"], vocabulary["tokenizer.ggml.token_type"]
    decode = _bytes_decoded if vocabulary["tokenizer.ggml.model"] == "gpt2" else _pieces_decoded
    normal = (decode(text) for text, kind in zip(tokens, types, strict=True) if kind == NORMAL)
    readable = tuple(text for text in normal if text and len(text) <= LONGEST_TOKEN)
    added = [
        text for text, kind in zip(tokens, types, strict=True) if kind in (CONTROL, USER_DEFINED)
    ]
    chance = random.Random(0)
    texts = [*_of_vocabulary(readable, chance), *_runs(), *_mixed(chance)]
    texts += [form for text in added[:MOST_ADDED] for form in (text, f"a {text} b")]
    return tuple(dict.fromkeys(texts))


def _of_vocabulary(tokens: Sequence[str], chance: random.Random) -> list[str]:
    kinds: dict[str, Callable[[str], bool]] = {
        "digits": lambda text: any(letter.isdigit() for letter in text),
        "blanks": lambda text: text.isspace() and len(text) > 1,
        "lines": lambda text: "\n" in text.strip(" ") and not text.isspace(),
        "mixed": lambda text: len({_class(letter) for letter in text.strip()}) > 1,
        "quotes": lambda text: "'" in text,
        "operators": lambda text: (
            len(text.strip()) > 1 and all(_class(letter) == "P" for letter in text.strip())
        ),
        "foreign": lambda text: not text.isascii(),
        "marks": lambda text: any(unicodedata.combining(letter) for letter in text),
        "capitals": lambda text: text.strip()[1:].lower() != text.strip()[1:],
    }
    chosen: list[str] = []
    for fits in kinds.values():
        found = [text for text in tokens if fits(text)]
        chosen += chance.sample(found, min(EACH_KIND, len(found)))
    chosen += chance.sample(list(tokens), min(AT_RANDOM, len(tokens)))
    neighbours = chosen[1:] + chosen[:1]
    return [*chosen, *(left + right for left, right in zip(chosen, neighbours, strict=True))]


def _runs() -> list[str]:
    digits = ["1234567890123"[:count] for count in range(1, 14)]
    blanks = [blank * count for blank in _BLANKS for count in (1, 2, 3, 4, 8)]
    words = [*_OPERATORS, *_WORDS, *_SCRIPTS, *_MARKS, *_EMOJI]
    quotes = [
        f"it{mark}{end}"
        for mark in "'’"
        for end in ("s", "S", "ll", "LL", "re", "ve", "m", "d", "T", "x")
    ]
    return [
        *digits,
        *(f"x{run}" for run in digits),
        *(f" {run}.5" for run in digits),
        *blanks,
        *words,
        *quotes,
    ]


def _mixed(chance: random.Random) -> list[str]:
    """Pairs over kinds: many pre-tokenizers read the character before a word, number or sign."""
    kinds = (_OPERATORS, _WORDS, _SCRIPTS, _MARKS, _EMOJI, _BLANKS, ("7", "42", "2026", "12345"))
    return [
        chance.choice(kinds[left]) + chance.choice(kinds[right])
        for left in range(7)
        for right in range(7)
        for _ in range(4)
    ]


def _class(letter: str) -> str:
    """L, N, Z (blanks included), or P for every other character."""
    kind = unicodedata.category(letter)[0]
    return "Z" if letter.isspace() else kind if kind in "LN" else "P"


def _bytes_decoded(token: str) -> str:
    """The text of a byte-level token; "" for an incomplete text."""
    try:
        return bytes(_BYTES[letter] for letter in token).decode("utf-8")
    except (KeyError, UnicodeDecodeError):
        return ""


def _pieces_decoded(piece: str) -> str:
    return piece.replace("\u2581", " ")


def _byte_letters() -> dict[str, int]:
    """The letter of each byte in a byte-level vocabulary (GPT-2's table)."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in kept]
    return {chr(byte): byte for byte in kept} | {
        chr(256 + index): byte for index, byte in enumerate(others)
    }


_BYTES = _byte_letters()

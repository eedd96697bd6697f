"""Finds which of llama.cpp's named pre-tokenizers a tokenizer.json describes, by its structure.

The split patterns below are those of the models' published tokenizer.json files; llama.cpp knows
each by the name next to it.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any

from convert.errors import VocabError

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_WORD = r"|[^\r\n\p{L}\p{N}]?\p{L}+"


# A Digits step that isolates every digit, and the built-in pattern of a ByteLevel step.
_DIGITS, _GPT2 = r"\p{N}", "ByteLevel's own pattern"


@dataclass(frozen=True)
class Known:
    """A pre-tokenizer: its patterns in order, and whether whole words skip merges
    (`ignore_merges`).

    `aliases` are further names under which llama.cpp does the same.
    """

    name: str
    patterns: tuple[str, ...]
    ignore_merges: bool = False
    aliases: tuple[str, ...] = ()


KNOWN = (
    Known(
        "gpt-2", (_GPT2,), aliases=("phi-2", "olmo", "jais", "trillion", "mpt", "granite-docling")
    ),
    Known(
        "smollm",
        (_DIGITS, _GPT2),
        aliases=("starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"),
    ),
    Known(
        "llama-bpe",
        (_CONTRACTIONS + _WORD + r"|\p{N}{1,3}" + _TAIL,),
        True,
        ("llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "lfm2"),
    ),
    Known(
        "qwen2",
        (_CONTRACTIONS + _WORD + r"|\p{N}" + _TAIL,),
        aliases=("deepseek-r1-qwen", "kormo", "stablelm2", "hunyuan"),
    ),
    Known(
        "qwen35",
        (
            _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
            r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ),
    ),
    Known("minicpm5", (r"\p{N}{1,3}", _CONTRACTIONS + _WORD + r"|\p{N}+" + _TAIL), True),
    Known(
        "deepseek-coder", ("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-\ud7ff]+", _DIGITS)
    ),
    Known(
        "seed-coder",
        (
            _CONTRACTIONS
            + (
                "|[^\r\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| "
                "?[^\\s\\p{L}\\p{N}\r\n]+|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
            ),
        ),
    ),
)
# The spelling of line ends in a pattern makes no difference.
_SPELLINGS = (("\r", "\\r"), ("\n", "\\n"))


def named(document: dict[str, Any], given: str | None) -> tuple[str, str]:
    """(name, reason) for `tokenizer.ggml.pre`; `given` is the value of --pre.

    Raises VocabError for an unknown structure without a given name, and for a given name that
    contradicts a known structure.
    """
    found = _recognised(document)
    if given is None:
        if found is None:
            raise VocabError(
                f"pre-tokenizer not recognised ({_described(document)})",
                f"name it with --pre ({_candidates()}); it will be proven by encoding text "
                "both ways",
            )
        count, ignore = len(found.patterns), found.ignore_merges
        return (
            found.name,
            f"its {count} split pattern(s) and ignore_merges={ignore} are those of {found.name}",
        )
    if found is None:
        return given, "given with --pre"
    if given not in (found.name, *found.aliases):
        raise VocabError(
            f"--pre says {given[:60]!r}, and tokenizer.json cuts text as {found.name!r} does",
            "leave out --pre",
        )
    return given, f"given with --pre; tokenizer.json cuts text as {found.name} does"


def unknown_to_llama_cpp(name: str) -> VocabError:
    """The refusal of a name that the installed llama.cpp lacks."""
    near = difflib.get_close_matches(
        name, [known for item in KNOWN for known in (item.name, *item.aliases)], n=2
    )
    fix = (
        f"did you mean {' or '.join(near)}?"
        if near
        else f"give one that it knows with --pre ({_candidates()})"
    )
    return VocabError(f"the installed llama.cpp does not know the pre-tokenizer {name[:60]!r}", fix)


def _candidates() -> str:
    return "for example " + ", ".join(known.name for known in KNOWN)


def _recognised(document: dict[str, Any]) -> Known | None:
    patterns, ignore = _patterns(document), bool(document.get("model", {}).get("ignore_merges"))
    return next(
        (
            item
            for item in KNOWN
            if tuple(map(_spelled, item.patterns)) == patterns and item.ignore_merges == ignore
        ),
        None,
    )


def _described(document: dict[str, Any]) -> str:
    return (
        " + ".join(str(step.get("type")) for step in _steps(document.get("pre_tokenizer")))
        or "none"
    )


def _patterns(document: dict[str, Any]) -> tuple[str, ...] | None:
    """The patterns of all steps in order, or None for a step of another kind."""
    steps = _steps(document.get("pre_tokenizer"))
    if (
        not steps
        or steps[-1].get("type") != "ByteLevel"
        or steps[-1].get("add_prefix_space", False)
    ):
        return None
    patterns = [_pattern(step) for step in steps[:-1]]
    if steps[-1].get("use_regex", True):
        patterns.append(_GPT2)
    known = tuple(_spelled(pattern) for pattern in patterns if pattern is not None)
    return known if len(known) == len(patterns) else None


def _pattern(step: dict[str, Any]) -> str | None:
    """The regular expression of an isolating Split or a Digits step; None for any other step."""
    if step.get("type") == "Digits":
        return _DIGITS if step.get("individual_digits") else None
    pattern = step.get("pattern")
    if (
        step.get("type") != "Split"
        or step.get("behavior") != "Isolated"
        or step.get("invert")
        or not isinstance(pattern, dict)
    ):
        return None
    expression = pattern.get("Regex")
    return expression if isinstance(expression, str) else None


def _spelled(pattern: str) -> str:
    for plain, escaped in _SPELLINGS:
        pattern = pattern.replace(plain, escaped)
    return pattern


def _steps(pre_tokenizer: Any) -> list[dict[str, Any]]:
    if not isinstance(pre_tokenizer, dict):
        return []
    if pre_tokenizer.get("type") == "Sequence":
        return [step for step in pre_tokenizer.get("pretokenizers", []) if isinstance(step, dict)]
    return [pre_tokenizer]

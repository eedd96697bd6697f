"""Finds operations by words in their names, titles and families, and by synonyms. Torch-free.

`find` lists every operation with all words. `resolve` demands exactly one.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from functools import lru_cache

from referee.ops.catalogue import NEAREST, UnknownOp, get, listed
from referee.ops.grammar import parse_remix
from referee.ops.shipped import shipped
from referee.ops.spec import Op

MOST_CANDIDATES = 6
"""Maximum number of candidates in an error message."""

SHORTEST_PART = 3
"""Minimum letters of a word that may match inside another one: "norm" in "rmsnorm"."""

_NOISE = frozenset({"a", "and", "fused", "kernel", "of", "op", "operation", "the", "then", "with"})

_OTHER_NAMES: dict[str, tuple[str, ...]] = {
    "layernorm": ("layer norm", "layer normalisation", "layer normalization", "ln"),
    "rmsnorm": ("rms", "rms norm", "rms normalisation", "rms normalization", "root mean square"),
    "l2norm": ("l2 norm", "l2 normalisation", "l2 normalization", "l2"),
    "qknorm": ("qk norm", "query key norm"),
    "add": ("residual", "skip connection", "skip", "plus"),
    "silu": ("swish", "sigmoid linear unit"),
    "hardswish": ("hard swish", "hard silu"),
    "hardsigmoid": ("hard sigmoid",),
    "hardtanh": ("hard tanh",),
    "softsign": ("soft sign",),
    "softplus": ("soft plus",),
    "relu2": ("squared relu", "relu squared", "relu 2"),
    "relu6": ("relu 6",),
    "leaky relu": ("leakyrelu",),
    "abs": ("absolute value", "absolute"),
    "gelu erf": ("exact gelu", "gelu exact", "erf gelu"),
    "glu": ("gated linear unit",),
    "rope": ("rotary", "rotary embedding", "rotary position embedding", "rotate half"),
    "rope interleaved": ("interleaved rotary", "rotary interleaved", "interleaved rope"),
    "softmax": ("soft max",),
    "log softmax": ("logsoftmax", "log soft max"),
    "softmax scale": ("scaled softmax", "softmax scaled"),
    "softcap softmax": ("softcapped softmax", "soft capped softmax", "soft cap softmax"),
    "dequant int8": ("dequant", "dequantise", "dequantize", "dequantisation", "dequantization"),
    "cross entropy": ("crossentropy", "cross entropy loss", "nll"),
    "kl div": ("kl", "kl divergence", "kullback leibler", "kullback leibler divergence"),
    "cumsum": ("cumulative sum", "cum sum", "prefix sum", "scan"),
}
_PHRASES = sorted(
    ((other, name) for name, others in _OTHER_NAMES.items() for other in (*others, name)),
    key=lambda pair: -len(pair[0]),
)
_ANY_PHRASE = re.compile(r"\b(" + "|".join(other for other, _ in _PHRASES) + r")\b")
_NAME_OF = dict(_PHRASES)


class AmbiguousOp(LookupError):
    """Several operations match the words; `candidates` has all of them, the nearest first."""

    def __init__(self, text: str, candidates: tuple[Op, ...]) -> None:
        self.text = text
        self.candidates = candidates
        super().__init__(f"{text!r} may be {len(candidates)} operations")


def words(text: str) -> tuple[str, ...]:
    """The words of a request in the catalogue's spelling: `Layer norm + GELU` gives layernorm,
    gelu.
    """
    plain = " ".join(re.findall(r"[a-z0-9]+", text.lower()))
    spelled = _ANY_PHRASE.sub(lambda found: _NAME_OF[found[0]], plain)
    return tuple(dict.fromkeys(word for word in spelled.split() if word not in _NOISE))


def find(text: str, ops: Iterable[Op] | None = None) -> tuple[Op, ...]:
    """Operations whose name, title or family has every word, the nearest first.

    An empty text matches all.
    """
    wanted, known = words(text), listed() if ops is None else tuple(ops)
    if not wanted:
        return () if text.strip() else known
    held = [op for op in known if all(_holds(op, word) for word in wanted)]
    return tuple(sorted(held, key=lambda op: _distance(op, wanted)))


def resolve(text: str) -> Op:
    """The one operation that `text` names: by its name, by exactly its words, or as the only match.

    Raises UnknownOp without a match, AmbiguousOp with several.
    """
    try:
        return get(text)
    except UnknownOp as unknown:
        wanted = words(text)
        if not wanted:
            raise
        op = _of_exactly(wanted)
        if op is not None:
            return op
        found = find(text)
        if not found:
            raise UnknownOp(text, _nearest(text) or unknown.nearest) from None
    if len(found) > 1:
        raise AmbiguousOp(text, found)
    return found[0]


def _of_exactly(wanted: tuple[str, ...]) -> Op | None:
    """The operation or remix whose name has exactly these words; activations of a remix keep their
    order.
    """
    named = next((op for op in listed() if set(op.name.split("_")) == set(wanted)), None)
    if named is not None:
        return named
    leading = [word for word in ("add", "rmsnorm", "layernorm") if word in wanted]
    return parse_remix("_".join((*leading, *(word for word in wanted if word not in leading))))


def _holds(op: Op, word: str) -> bool:
    """Whether the operation's words contain the word; a very short word must begin one of them."""
    text = _text(op)
    return (
        word in text
        if len(word) >= SHORTEST_PART
        else any(one.startswith(word) for one in re.findall(r"[a-z0-9]+", text))
    )


def other_words(op: Op) -> tuple[str, ...]:
    """Synonyms of the operation, in addition to its name and title."""
    function = shipped().get(op.name)
    if function is not None and op.is_function:
        return function.words
    parts = set(op.name.split("_"))
    return tuple(
        other
        for name, others in _OTHER_NAMES.items()
        if set(name.split()) <= parts
        for other in others
    )


@lru_cache(maxsize=1024)
def _text(op: Op) -> str:
    """Every word that finds the operation."""
    text = f"{op.name} {op.title} {op.family}".lower()
    function = shipped().get(op.name)
    if function is None or not op.is_function:
        return text
    text = f"{text} {' '.join(function.words)}"
    return f"{text} {' '.join(words(text))}"


def _distance(op: Op, wanted: tuple[str, ...]) -> tuple[int, int]:
    name = op.name.split("_")
    return sum(word not in name for word in wanted), len(name)


def _nearest(text: str) -> tuple[str, ...]:
    """Names of operations that match if each word is replaced by the nearest known one."""
    known = {word for op in listed() for word in op.name.split("_")}
    known |= {
        word for others in _OTHER_NAMES.values() for other in others for word in other.split()
    }
    spelled = [
        (difflib.get_close_matches(word, sorted(known), n=1) or [word])[0]
        for word in re.findall(r"[a-z0-9]+", text.lower())
    ]
    return tuple(op.name for op in find(" ".join(spelled))[:NEAREST])

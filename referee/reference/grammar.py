"""The grammar of `--input` and `--fix`. Torch-free.

    inputs  = item { (space | "," | ";") item };
    item    = name "=" (tensor | scalar);
    name    : x, or batch.mask and xs.0 inside a dictionary or list;
    tensor  = dtype "[" [size {"," size}] "]" [strides] [":" values];
    size    = number | symbol | number "*" symbol | symbol ("/" | "+" | "-") number;
    strides = "(" number {"," number} ")" ["+" offset];
    values  = "normal" | "uniform" | "distinct" | [bound ".." bound] {"|" number};
    scalar  = literal {"|" literal};
    literal : 1e-6, True, None, 'mean', (4, 8), torch.float32;

    x=bf16[B,2048,4096] w=bf16[4096] eps=1e-6
    logits=f32[N,V] labels=i64[N]:0..V|-100
    q=bf16[B,H,T,D] cos=f32[T,D/2] mask=bool[T,T]

Every error is one line that quotes the text from the position of the error.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence

from referee.reference.inputs import (
    SHORT_DTYPES,
    Dim,
    DtypeName,
    Entry,
    InputSet,
    Number,
    ScalarInput,
    TensorInput,
    Values,
)
from referee.reference.unusable import InputError

NAMES = {
    **{short: name for name, short in SHORT_DTYPES.items()},
    **{name: name for name in SHORT_DTYPES},
    "fp16": "float16", "half": "float16", "fp32": "float32", "float": "float32", "long": "int64", "int": "int32",
}  # fmt: skip
"""Every dtype name that `--input` takes."""

KINDS = ("normal", "uniform", "distinct")
MOST_QUOTED = 24

_NAME = re.compile(r"[^\W\d]\w*(?:\.\w+)*")
_WORD = re.compile(r"[^\W\d]\w*")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|inf\b)")
_WHOLE = re.compile(r"\d+")
_GAP = re.compile(r"[\s,;]*")
_BEFORE_SIGN = re.compile(r"\s*(?=[*/+|-])")
_DTYPE = re.compile(r"torch\.([a-z]\w*)")
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")


def parse_inputs(texts: Sequence[str], option: str = "--input") -> tuple[InputSet, ...]:
    """The sets of inputs in the options. Raises InputError.

    A repeated name begins a new set, which takes missing entries from the previous one.
    """
    sets: list[dict[str, Entry]] = []
    named: set[str] = set()
    for text in texts:
        for name, entry in _Reader(text, option).items():
            if not sets or name in named:
                sets.append(dict(sets[-1]) if sets else {})
                named = set()
            named.add(name)
            sets[-1][name] = entry
    return tuple(InputSet(tuple(found.items())) for found in sets)


def parse_fixed(texts: Sequence[str], option: str = "--fix") -> dict[str, object]:
    """The values of `--fix NAME=VALUE`. Raises InputError."""
    found: dict[str, object] = {}
    for text in texts:
        reader = _Reader(text, option)
        for name, entry in reader.items():
            if not isinstance(entry, ScalarInput) or len(entry.values) != 1:
                raise InputError(
                    f"{option} {text!r}: {name} is fixed at one value, as in {name}=1e-6"
                )
            found[name] = entry.values[0]
    return found


class _Reader:
    """Reads one text from left to right."""

    def __init__(self, text: str, option: str) -> None:
        self._text, self._option, self._at = text, option, 0

    def items(self) -> list[tuple[str, Entry]]:
        found: list[tuple[str, Entry]] = []
        self._take(_GAP)
        while self._at < len(self._text):
            name = self._need(_NAME, "the name of an argument, as in x=bf16[B,4096]")
            self._expect("=", f"'=' after {name!r}, as in {name}=bf16[B,4096]")
            found.append((name, self._entry()))
            start = self._at
            if not self._take(_GAP) and self._at < len(self._text):
                raise self._error("a space, ',' or ';' before the next argument", start)
        if not found:
            raise self._error("an argument, as in x=bf16[B,4096]", 0)
        return found

    def _entry(self) -> Entry:
        word = _WORD.match(self._text, self._at)
        if word and self._text[word.end() : word.end() + 1] == "[":
            if word.group() not in NAMES:
                raise self._error(f"one of the dtypes {', '.join(SHORT_DTYPES.values())}", self._at)
            self._at = word.end()
            return self._tensor(NAMES[word.group()])
        return ScalarInput(tuple(self._several(self._literal)))

    def _tensor(self, dtype: str) -> TensorInput:
        self._expect("[", "'['")
        dims: list[Dim] = []
        while not self._is("]"):
            if dims:
                self._expect(",", "',' or ']'")
            dims.append(self._dim())
            self._spaces()
        strides, offset = None, 0
        if self._is("("):
            opened = self._at - 1
            strides = tuple(map(int, self._several(self._whole, ",", ")")))
            offset = self._whole() if self._is("+") else 0
            if len(strides) != len(dims):
                raise self._error(f"{len(dims)} strides, one for each size", opened)
            if any(dim.symbol for dim in dims):
                raise self._error("numbers for all sizes where strides are given", opened)
        values = self._values(dtype) if self._is(":") else Values()
        return TensorInput(
            dtype=dtype, dims=tuple(dims), values=values, strides=strides, offset=offset
        )

    def _dim(self) -> Dim:
        """A size, without the spaces after it, which may precede the next argument."""
        self._spaces()
        start = self._at
        if number := self._take(_WHOLE):
            if self._is("*"):
                return self._after(self._need(_WORD, "the name of a size"), int(number), start)
            return Dim(plus=int(number))
        return self._after(
            self._need(_WORD, "a size: a number, a name such as B, or 2*N, N/2, N+1"), 1, start
        )

    def _after(self, symbol: str, times: int, start: int) -> Dim:
        self._take(_BEFORE_SIGN)
        over, plus = 1, 0
        if self._is("*"):
            times *= self._whole()
        if self._is("/"):
            self._is("/")
            over = self._whole()
        if self._is("+"):
            plus = self._whole()
        elif self._is("-"):
            plus = -self._whole()
        if not over or not times:
            raise self._error("a factor and a divisor that are not 0", start)
        return Dim(symbol, times, over, plus)

    def _values(self, dtype: str) -> Values:
        word = _WORD.match(self._text, self._at)
        if word and word.group() in KINDS:
            start, self._at = self._at, word.end()
            if (word.group() == "distinct") != ("int" in dtype):
                known = "0..N or distinct" if "int" in dtype else "normal, uniform or 0..1"
                raise self._error(f"values that {dtype} takes: {known}", start)
            return Values(word.group())
        whole = "int" in dtype or dtype == "bool"
        low = self._bound(whole)
        if self._text.startswith("..", self._at):
            self._at += 2
            high = self._bound(whole)
            return Values(
                "range", low, high, tuple(self._several(self._number)) if self._is("|") else ()
            )
        if isinstance(low, Dim):
            raise self._error("'..' and the end of the range", self._at)
        return Values("among", among=(low, *(self._several(self._number) if self._is("|") else ())))

    def _bound(self, whole: bool) -> Dim | Number:
        start = self._at
        if _WORD.match(self._text, self._at) or re.match(r"\d+\*", self._text[self._at :]):
            return self._dim()
        if not (found := re.compile(r"[+-]?\d+(?=\.\.)").match(self._text, self._at)):
            number = self._number()
            if whole and not isinstance(number, int):
                raise self._error("a whole number", start)
            return number
        self._at = found.end()
        return int(found.group())

    def _several(
        self, read: Callable[[], object], between: str = "|", end: str = ""
    ) -> list[Number]:
        found = [read()]
        while self._is(between):
            found.append(read())
        if end:
            self._expect(end, f"{between!r} or {end!r}")
        return found  # type: ignore[return-value]

    def _number(self) -> Number:
        text = self._need(_NUMBER, "a number")
        return int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text)

    def _whole(self) -> int:
        self._spaces()
        return int(self._need(_WHOLE, "a whole number"))

    def _literal(self) -> object:
        """A Python value; a bare word is a text, and torch.float32 a dtype name."""
        start = self._at
        if dtype := _DTYPE.match(self._text, start):
            self._at = dtype.end()
            return DtypeName(dtype.group(1))
        for pattern in (_QUOTED, _NUMBER):
            if text := self._take(pattern):
                return ast.literal_eval(text) if text[-1] != "f" else float(text)
        if self._text[start : start + 1] in ("(", "["):
            return self._nested(start)
        word = self._need(_WORD, "a dtype with a shape, as in bf16[B,4096], or a value, as in 1e-6")
        return {"True": True, "False": False, "None": None, "true": True, "false": False}.get(
            word, word
        )

    def _nested(self, start: int) -> object:
        """A tuple or list: the shortest text from here that Python can read."""
        for end in range(start + 2, len(self._text) + 1):
            if self._text[end - 1] in ")]":
                try:
                    value = ast.literal_eval(self._text[start:end])
                except (ValueError, SyntaxError):
                    continue
                self._at = end
                return value
        raise self._error("a tuple or list of plain values", start)

    def _spaces(self) -> None:
        self._take(re.compile(r"\s*"))

    def _is(self, character: str) -> bool:
        """Step over the character if it is the next one."""
        if self._text.startswith(character, self._at):
            self._at += 1
            return True
        return False

    def _expect(self, character: str, wanted: str) -> None:
        if not self._is(character):
            raise self._error(wanted, self._at)

    def _take(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return found.group() if found else ""

    def _need(self, pattern: re.Pattern[str], wanted: str) -> str:
        found = self._take(pattern)
        if not found:
            raise self._error(wanted, self._at)
        return found

    def _error(self, wanted: str, at: int) -> InputError:
        rest = self._text[at:]
        quoted = (
            f"{rest[:MOST_QUOTED]!r}{'...' if len(rest) > MOST_QUOTED else ''}"
            if rest
            else "the end"
        )
        return InputError(
            f"{self._option} {self._text!r}: at character {at + 1}, {quoted}: expected {wanted}"
        )

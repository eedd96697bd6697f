"""Breaks long lines of generated Python like a formatter: inside brackets, before operators."""

from __future__ import annotations

import io
import re
import textwrap
import tokenize
from dataclasses import dataclass

from kmint_tui.escapes import visible

WIDTH = 100

_LEVELS = (
    frozenset({"if", "else", "for"}),
    frozenset({"or"}),
    frozenset({"and"}),
    frozenset({"<", ">", "==", "!=", "<=", ">=", "in", "is"}),
    frozenset({"|", "^", "&"}),
    frozenset({"<<", ">>"}),
    frozenset({"+", "-"}),
    frozenset({"*", "/", "//", "%", "@"}),
)
"""Operators at which an expression is broken, from the weakest to the strongest."""
_WORDS = ("return ", "if ", "elif ", "while ", "assert ")
_NO_OPERAND = frozenset({"", "=", ",", ":", "(", "[", "{", "return", "lambda", "not"}).union(
    *_LEVELS
)
_ASSIGNS = re.compile(r"[-+*/%&|^@]?=|//=|\*\*=|>>=|<<=")


@dataclass(frozen=True)
class _Token:
    text: str
    start: int
    end: int
    depth: int


def narrow(text: str, width: int = WIDTH) -> str:
    """The same code in lines of at most `width`, as far as its words allow."""
    lines: list[str] = []
    for line in text.splitlines():
        stripped = line.lstrip()
        indent = len(line) - len(stripped)
        if len(line) <= width or stripped.startswith("#") or not _is_statement(stripped):
            lines.append(line)
        else:
            lines += [" " * indent + one for one in _statement(stripped, width - indent)]
    return "\n".join(lines) + ("\n" if text.endswith("\n") else "")


def paragraph(text: str, *, before: str = "", after: str | None = None) -> list[str]:
    """Words in lines of at most WIDTH, with `before` in front, and `after` from the second on."""
    rest = before if after is None else after
    return textwrap.wrap(
        text, WIDTH, initial_indent=before, subsequent_indent=rest, break_on_hyphens=False
    )


def plain(text: str) -> str:
    """Text that cannot end the docstring, hold an escape, or send control codes to a terminal."""
    return " ".join(visible(text).replace("\\", "/").replace('"', "'").split())


def _is_statement(code: str) -> bool:
    """False for a line of a longer statement, and for one of a string of several lines."""
    try:
        tokens = _tokens(code)
    except (tokenize.TokenError, SyntaxError, IndentationError):
        return False
    return bool(tokens) and tokens[-1].depth == 0


def _statement(code: str, width: int) -> list[str]:
    if len(code) <= width:
        return [code]
    head, body, tail = _parts(code)
    tokens = _tokens(body)
    if any(_level(tokens, at) is not None for at in range(len(tokens))) or not _groups(tokens):
        if head and not _is_pair(tokens):
            inner = _lines(body, width - 4)
            return [f"{head}(", *(f"    {line}" for line in inner), f"){tail}"]
    return _exploded(code, width) or [code]


def _parts(code: str) -> tuple[str, str, str]:
    """The text before the expression of a statement, the expression, and the colon after it."""
    for word in _WORDS:
        if code.startswith(word):
            tail = ":" if code.endswith(":") else ""
            return word, code[len(word) : len(code) - len(tail)], tail
    for token in _tokens(code):
        if token.depth == 0 and _ASSIGNS.fullmatch(token.text):
            return code[: token.end] + " ", code[token.end :].lstrip(), ""
    return "", code, ""


def _is_pair(tokens: list[_Token]) -> bool:
    """True if a comma or an assignment splits the text into several expressions."""
    return any(one.depth == 0 and (one.text in (",", ":=") or one.text == "=") for one in tokens)


def _lines(code: str, width: int) -> list[str]:
    """An expression inside brackets, where a line may end after every word."""
    if len(code) <= width:
        return [code]
    tokens = _tokens(code)
    levels = [(level, at) for at in range(len(tokens)) if (level := _level(tokens, at)) is not None]
    named = next((one for one in tokens if one.depth == 0 and one.text in ("=", "lambda")), None)
    if levels and named is None:
        weakest = min(levels)[0]
        starts = [0, *(tokens[at].start for level, at in levels if level == weakest)]
        pieces = [code[a:b].strip() for a, b in zip(starts, [*starts[1:], None], strict=True)]
        if len(pieces) > 1:
            return [line for piece in pieces if piece for line in _lines(piece, width)]
    return _exploded(code, width) or _cut_string(code, width)


def _exploded(code: str, width: int) -> list[str]:
    """The widest brackets opened, their content on separate lines; nothing without brackets."""
    tokens = _tokens(code)
    groups = _groups(tokens)
    if not groups:
        return []
    first, last = max(groups, key=lambda one: tokens[one[1]].start - tokens[one[0]].end)
    head, body = code[: tokens[first].end], code[tokens[first].end : tokens[last].start].strip()
    tail = code[tokens[last].start :]
    if len(body) <= width - 4:
        inner = [body]
    else:
        pieces = _arguments(body)
        comma = "," if len(pieces) > 1 else ""
        inner = [line for piece in pieces for line in _with(_lines(piece, width - 5), comma)]
        if not comma and body.rstrip().endswith(","):
            inner[-1] += ","
    return [head, *(f"    {line}" for line in inner), tail]


def _with(lines: list[str], comma: str) -> list[str]:
    return [*lines[:-1], lines[-1] + comma]


def _arguments(body: str) -> list[str]:
    tokens = _tokens(body)
    if any(one.depth == 0 and one.text == "for" for one in tokens):
        return [body]
    inside = False
    ends = []
    for token in tokens:
        if token.depth == 0 and token.text in ("lambda", ":"):
            inside = token.text == "lambda"
        if token.depth == 0 and token.text == "," and not inside:
            ends.append(token)
    starts = [0, *(one.end for one in ends)]
    stops = [*(one.start for one in ends), len(body)]
    return [piece for a, b in zip(starts, stops, strict=True) if (piece := body[a:b].strip())]


def _cut_string(code: str, width: int) -> list[str]:
    """A plain string as several strings that Python joins; other text unchanged."""
    quote = code[:1]
    plain = quote in ("'", '"') and code.endswith(quote) and "\\" not in code
    plain = plain and len(_tokens(code)) == 1
    if not plain or code.startswith(quote * 3):
        return [code]
    words = re.findall(r"\S*\s*", code[1:-1])
    lines, line = [], ""
    for word in words:
        if line and len(line) + len(word) > width - 2:
            lines.append(line)
            line = ""
        line += word
    return [f"{quote}{one}{quote}" for one in (*lines, line) if one]


def _groups(tokens: list[_Token]) -> list[tuple[int, int]]:
    """The outermost pairs of brackets with something in them."""
    pairs, opened = [], 0
    for at, token in enumerate(tokens):
        if token.depth == 0 and token.text in ("(", "[", "{"):
            opened = at
        if token.depth == 0 and token.text in (")", "]", "}") and at > opened + 1:
            pairs.append((opened, at))
    return pairs


def _level(tokens: list[_Token], at: int) -> int | None:
    """The precedence of the operator at that place; None if no binary operator stands there."""
    token, before = tokens[at], tokens[at - 1].text if at else ""
    if token.depth or before in _NO_OPERAND:
        return None
    if token.text == "not":
        return 3
    if token.text == "in" and before == "not":
        return None
    return next((level for level, some in enumerate(_LEVELS) if token.text in some), None)


def _tokens(code: str) -> list[_Token]:
    """The words of one line, with the number of brackets around each; an f-string is one word."""
    found: list[_Token] = []
    depth, strings, began = 0, 0, 0
    names = {getattr(tokenize, name, -1): name for name in ("FSTRING_START", "FSTRING_END")}
    for token in tokenize.generate_tokens(io.StringIO(code + "\n").readline):
        name = names.get(token.type)
        if name == "FSTRING_START":
            began = began if strings else token.start[1]
            strings += 1
        elif name == "FSTRING_END":
            strings -= 1
            if not strings:
                found.append(_Token(code[began : token.end[1]], began, token.end[1], depth))
        elif not strings and token.string.strip():
            depth -= token.string in (")", "]", "}") and token.type == tokenize.OP
            found.append(_Token(token.string, token.start[1], token.end[1], depth))
            depth += token.string in ("(", "[", "{") and token.type == tokenize.OP
    return found

"""The rules of plain English that a machine can check: words to avoid, and sentences of at most
25 words.

    python -m docs.generate.words [PATH ...]

Prints each message, and each sentence of a page, a docstring or a comment, that breaks a rule; with
PATH only those of modules or pages that begin so.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

from docs.generate.messages import messages
from docs.generate.pages import ROOT, handwritten

MOST_WORDS = 25
"""Words of a sentence. A semicolon or a line break ends a sentence as a full stop does."""

CODE = ("kmint_tui", "referee", "convert", "forge", "bench", "release")
"""Folders whose docstrings and comments are checked."""
TITLES = "referee/ops/functions/"

AVOID = {
    r"nobody|no one|somebody|someone|anybody|anyone|whoever|everybody": "name the user, kernel",
    r"so (?:many|much) (?!as\b)": "give the number, or say `this many`",
    r"as many\b(?!(?: \w+){0,2} as)": "give the number",
    r"beside|besides": "say next to, while, together with, or except",
    r"told|tells? of": "say reported, shown, or says",
    r"(?:is|are|was|were) (?:asked|said) (?:of|to be)": "use the active voice",
    r"asked of|asked for": "say requested, or turn the sentence round",
    r"what(?! (?:an?|each|happened|happens|is wrong|it|kmint|the|to|works)\b)": "name the noun",
    r"who|whom": "name the user, process, kernel",
    r"be it|be they": "say whether, or even if",
    r"of which|of whom|in whose|to whom": "make two sentences",
    r"elsewhere": "say on another machine, or in another place",
    r"by itself|of (?:its|their) own": "say alone, or separate",
}
"""Words that kmint's texts avoid, as a regular expression, and what to do instead."""

_EXAMPLES = ("\b", "python ", "pip ", "kmint ")
"""Beginnings of paragraphs that hold commands."""
_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+|\n+")
_CODE = re.compile(r"`[^`]*`|\{[^}]*\}")


@dataclass(frozen=True)
class Offence:
    """A text that breaks a rule: where it stands, the text, and what is wrong with it."""

    place: str
    text: str
    fault: str


def faults(text: str) -> Iterator[str]:
    """What is wrong with a text; code in backticks and what braces stand for count as one word."""
    plain = _CODE.sub("CODE", text)
    for pattern, advice in AVOID.items():
        for found in re.finditer(rf"\b(?:{pattern})\b", plain, re.IGNORECASE):
            yield f"{found[0].strip()!r}: {advice}"
    for sentence in _SENTENCE_END.split(plain):
        count = len(sentence.split())
        if count > MOST_WORDS:
            yield f"a sentence of {count} words"


def of_messages() -> list[Offence]:
    """The faults of every message."""
    return [
        Offence(one.module, one.text, fault) for one in messages() for fault in faults(one.text)
    ]


def of_pages() -> list[Offence]:
    """The faults of the pages that are written by hand, outside code and generated blocks."""
    found = []
    for page in handwritten():
        for paragraph in paragraphs(page.read_text(encoding="utf-8")):
            found += [
                Offence(str(page.relative_to(ROOT)), paragraph, fault)
                for fault in faults(paragraph)
            ]
    return found


def of_code() -> list[Offence]:
    """The faults of docstrings and comments in the packages and in bench.

    The docstrings of the catalogue's functions are titles that models were trained on; they stay.
    """
    found = []
    for path in sorted(path for folder in CODE for path in (ROOT / folder).rglob("*.py")):
        place = str(path.relative_to(ROOT))
        if place.startswith(TITLES):
            continue
        source = path.read_text(encoding="utf-8")
        for line, text in (*_docstrings(source), *_comments(source)):
            found += [Offence(f"{place}:{line}", text, fault) for fault in faults(text)]
    return found


def _docstrings(source: str) -> Iterator[tuple[int, str]]:
    """The line and text of each paragraph, without examples of commands."""
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            value = getattr(statement, "value", None)
            if not isinstance(statement, ast.Expr) or not isinstance(value, ast.Constant):
                continue
            if isinstance(value.value, str):
                for paragraph in re.split(r"\n\s*\n", value.value):
                    if not paragraph.lstrip().startswith(_EXAMPLES):
                        yield statement.lineno, " ".join(paragraph.split())


def _comments(source: str) -> Iterator[tuple[int, str]]:
    """The first line and the text of each block of comments that has its lines for itself."""
    block: list[tuple[int, str]] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and token.line.lstrip().startswith("#"):
            if block and block[-1][0] != token.start[0] - 1:
                yield block[0][0], " ".join(text for _, text in block)
                block = []
            block.append((token.start[0], token.string.lstrip("# ")))
    if block:
        yield block[0][0], " ".join(text for _, text in block)


def paragraphs(page: str) -> Iterator[str]:
    """The text of a page: paragraphs, list items and table cells, without code blocks, comments
    and generated blocks."""
    page = re.sub(r"<!-- generated: .*?<!-- end -->", "", page, flags=re.DOTALL)
    page = re.sub(r"<!--.*?-->", "", page, flags=re.DOTALL)
    page = re.sub(r"^```.*?^```$", "", page, flags=re.DOTALL | re.MULTILINE)
    page = re.sub(r"^(?: {4}|\t).*$", "", page, flags=re.MULTILINE)
    page = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", page)
    page = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", page)
    for block in re.split(r"\n\s*\n|\n(?=[-|#])", page):
        for cell in block.split("|") if block.lstrip().startswith("|") else [block]:
            text = " ".join(cell.strip(" #-").split())
            if text:
                yield text


def main(prefixes: list[str]) -> int:
    """Print what breaks a rule; exit code 1 if anything does."""
    found = [
        one
        for one in (*of_messages(), *of_pages(), *of_code())
        if not prefixes or one.place.startswith(tuple(prefixes))
    ]
    for one in found:
        print(f"{one.place}: {one.fault}\n    {one.text}")
    print(f"{len(found)} faults", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

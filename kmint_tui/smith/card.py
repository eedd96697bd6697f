"""Reads the prompt that the code of a model card builds, and fills it for other operations.

The code comes from a stranger, so it is parsed and never run. Literals, f-strings and sums of texts
that the card itself assigns are evaluated. The card's messages give the system text, the example
kernel and the form of the user's message. Another operation's name, description and signature
replace those of the card's own operation.

Limits: one example kernel a card; a user message of the form "`NAME`: DESCRIPTION", a signature
with `run(`, and one fenced example. Any other form is refused with the reason.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kmint_tui.smith.exemplars import exemplar_for, exemplar_source
from kmint_tui.smith.template import Prompt

LONGEST = 1 << 20
MOST_LINES = 400
_FENCE = re.compile(r"[ ]{0,3}(?P<fence>`{3,}|~{3,})[ \t]*(?P<language>[\w+-]*)")
_LANGUAGES = ("", "python", "py", "python3")
_CODE_START = re.compile(r"^(?:import|from)[ \t]+\w")
_OPERATION = re.compile(r"`(?P<name>\w+)`:[ \t]*(?P<description>[^\n]+)\n")
_SIGNATURE = re.compile(r"^(?P<indent>[ \t]*)(?P<signature>(?:def )?run\([^\n]*)$", re.MULTILINE)
_EXAMPLE = re.compile(
    r"^```(?:python|py)?[ \t]*\n(?P<kernel>.*?)\n?```[ \t]*$", re.MULTILINE | re.DOTALL
)
_QUOTED = re.compile(r"`(\w+)`")


class CardUnreadable(ValueError):
    """The card gives no prompt; `reason` is one line."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, kw_only=True)
class CardPrompt:
    """The prompt that a card's code builds. `own` is the unchanged prompt of the card's own
    operation.

    `before`, `between`, `after` and `end` are the user's message around name, description and
    signature. `indent` starts each line of the signature. `sha256` is the digest of the card's
    text.
    """

    system: str
    own: Prompt
    own_op: str
    example_op: str
    example: str
    before: str
    between: str
    after: str
    end: str
    indent: str
    sha256: str

    def build(self, op_name: str, signature: str, description: str) -> Prompt:
        """The card's prompt for an operation; its own operation gets the card's own text."""
        if op_name == self.own_op:
            return self.own
        lines = "\n".join(self.indent + line for line in signature.splitlines())
        one_line, end = " ".join(description.split()), self.end
        if op_name == self.example_op:
            # The card's example would be the answer for its own operation, so kmint's example
            # replaces it.
            other = exemplar_for(op_name)
            end = end.replace(f"`{self.example_op}`", f"`{other}`").replace(
                self.example, exemplar_source(other, "card")
            )
        user = f"{self.before}{op_name}{self.between}{one_line}{self.after}{lines}{end}"
        return Prompt(self.system, user)


def read_card(text: str) -> CardPrompt:
    """The prompt of a card's text. Raises CardUnreadable."""
    if len(text) > LONGEST:
        raise CardUnreadable(f"the card is {len(text)} characters long, more than {LONGEST}")
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    text = text.replace("\r\n", "\n")
    reason = "the card has no Python code"
    for tree in _codes(text):
        messages = _messages(tree)
        if messages is None:
            reason = "the card's code builds no list of messages from texts that can be read"
            continue
        return _card_prompt(messages.get("system", ""), messages["user"], digest)
    raise CardUnreadable(reason)


def _codes(text: str) -> Iterator[ast.Module]:
    """The card's code: its fenced blocks, or every parsable run of lines without fences."""
    lines = text.split("\n")
    blocks = list(_fenced(lines))
    if blocks:
        yield from (tree for tree in map(_parsed, blocks) if tree is not None)
        return
    for first, line in enumerate(lines):
        if _CODE_START.match(line):
            last = min(len(lines), first + MOST_LINES)
            found = (_parsed("\n".join(lines[first:stop])) for stop in range(last, first + 1, -1))
            tree = next((tree for tree in found if tree is not None), None)
            if tree is not None:
                yield tree


def _fenced(lines: list[str]) -> Iterator[str]:
    """The contents of fences of Python, or of no language."""
    inside: list[str] = []
    fence, wanted = "", False
    for line in lines:
        found = _FENCE.match(line)
        if not fence and found is not None:
            fence, wanted, inside = found["fence"], found["language"].lower() in _LANGUAGES, []
        elif fence and line.strip().startswith(fence) and not line.strip().strip(fence[0]):
            if wanted:
                yield "\n".join(inside)
            fence = ""
        elif fence:
            inside.append(line)


def _parsed(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _messages(tree: ast.Module) -> dict[str, str] | None:
    """The texts of the first list of messages with a user's text, by role; None without one."""
    known: dict[str, str] = {}
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target, value = statement.targets[0], _text(statement.value, known)
            if isinstance(target, ast.Name) and value is not None:
                known[target.id] = value
        for node in ast.walk(statement):
            if isinstance(node, ast.List):
                roles = dict(_roles(node, known))
                if "user" in roles:
                    return roles
    return None


def _roles(node: ast.List, known: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for item in node.elts:
        if not isinstance(item, ast.Dict):
            continue
        keys = [_text(key, known) if key is not None else None for key in item.keys]
        pairs = dict(zip(keys, item.values, strict=True))
        if "role" in pairs and "content" in pairs:
            role, content = _text(pairs["role"], known), _text(pairs["content"], known)
            if role is not None and content is not None:
                yield role, content


def _text(node: ast.expr, known: Mapping[str, str]) -> str | None:
    """The text of an expression; None for an expression that only running it would evaluate."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _text(node.left, known), _text(node.right, known)
        return None if left is None or right is None else left + right
    if isinstance(node, ast.JoinedStr):
        parts = [
            _text(value.value if isinstance(value, ast.FormattedValue) else value, known)
            for value in node.values
        ]
        texts = [part for part in parts if part is not None]
        return (
            "".join(texts)
            if len(texts) == len(parts) and all(map(_is_plain, node.values))
            else None
        )
    return None


def _is_plain(value: ast.expr) -> bool:
    """True for a part of an f-string without conversion or format."""
    return not isinstance(value, ast.FormattedValue) or (
        value.conversion == -1 and value.format_spec is None
    )


def _card_prompt(system: str, user: str, digest: str) -> CardPrompt:
    operation = _OPERATION.search(user)
    if operation is None:
        raise CardUnreadable("the card's user message names no operation as `NAME`: DESCRIPTION")
    fence = user.find("```", operation.end())
    signature = _SIGNATURE.search(user, operation.end(), len(user) if fence < 0 else fence)
    if signature is None:
        raise CardUnreadable("the card's user message has no signature of run(...)")
    example = _EXAMPLE.search(user, signature.end())
    if example is None:
        raise CardUnreadable("the card's user message holds no fenced example kernel")
    names = _QUOTED.findall(user[signature.end() : example.start()])
    kernel = example["kernel"]
    _require_kernel(kernel)
    return CardPrompt(
        system=system,
        own=Prompt(system, user),
        own_op=operation["name"],
        example_op=names[-1] if names else "",
        example=kernel + "\n",
        before=user[: operation.start("name")],
        between=user[operation.end("name") : operation.start("description")],
        after=user[operation.end("description") : signature.start()],
        end=user[signature.end() :],
        indent=signature["indent"],
        sha256=digest,
    )


def _require_kernel(kernel: str) -> None:
    """Raise CardUnreadable unless the example is Python with a function `run`."""
    try:
        tree = ast.parse(kernel)
    except IndentationError:
        raise CardUnreadable(
            "the example kernel's indentation is lost in this text; use the card's README.md"
        ) from None
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise CardUnreadable(f"the example kernel is not Python ({type(error).__name__})") from None
    if not any(isinstance(node, ast.FunctionDef) and node.name == "run" for node in tree.body):
        raise CardUnreadable("the example kernel defines no function `run`")

"""Renders a prompt to the exact text that a model reads: its chat template without thinking.

The template comes from the GGUF file, so it is untrusted and runs in jinja2's immutable sandbox.
A ChatML result is compared, character by character, with the form of the public smiths' training:

    [BOS]<|im_start|>system\\nSYS<|im_end|>\\n<|im_start|>user\\nUSER<|im_end|>\\n
    <|im_start|>assistant\\n<think>\\n\\n</think>\\n\\n

The line break is not part of it. Qwen3.6 has no BOS and trims the contents; a model that never
thinks has no think block. A template that may let the model think is refused with the reason: a
smith that thinks spends its token budget on prose. Thinking is off when the prompt ends in a closed
empty block, or when the template never mentions thinking.

The text holds its own BOS exactly once, so it must be tokenised without adding special tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from jinja2.sandbox import ImmutableSandboxedEnvironment
FENCE = "```python\n"
NO_THINKING = "<think>\n\n</think>\n\n"
MAX_TEMPLATE = 200_000
# The names under which templates offer a switch for thinking.
_QUIET: dict[str, object] = {
    "enable_thinking": False,
    "thinking": False,
    "thinking_mode": "disabled",
    "thinking_budget": 0,
}
_LOUD: dict[str, object] = {"enable_thinking": True, "thinking": True, "thinking_mode": "enabled"}
_OWN_SYSTEM = re.compile(r"\A<\|im_start\|>system\n.*?<\|im_end\|>\n", re.DOTALL)
BLOCKS = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|channel>thought", "<channel|>"),
)
# Tags with a name before or after the word, such as <seed:think>.
_NAMED = r"(?:<[\w:]*think[\w:]*>\s*)?</[\w:]*think[\w:]*>\s*$"
_CLOSED = re.compile(
    "|".join(
        [_NAMED, *(rf"(?:{re.escape(start)}\s*)?{re.escape(end)}\s*$" for start, end in BLOCKS)]
    )
)
_OPENED = re.compile(r"<[\w:]*think[\w:]*>|" + "|".join(re.escape(start) for start, _ in BLOCKS))
# How templates name thoughts: tags, switches, and the fields of earlier messages.
_KNOWS = re.compile(
    r"[<\[|][/|\w:]*think|enable_thinking|thinking_|reasoning_(?:effort|strength|content)|add_thoughts|channel\|?>\W*(?:analysis|thought)",
    re.IGNORECASE,
)
_LONGEST_BLOCK = 400
_WORDS = ("think", "thought", "reason", "analysis")


@dataclass(frozen=True)
class Prompt:
    """`system` is "" for a smith without a system text.

    `user` ends in a newline unless it carries feedback.
    """

    system: str
    user: str


class TemplateRefused(ValueError):
    """The chat template cannot be used; `reason` is one line."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def render(
    prompt: Prompt, template: str, *, bos: str, add_bos: bool = False, prefill: str = ""
) -> str:
    """The text to tokenise, ready for the model's answer.

    `template` is the GGUF's `tokenizer.chat_template`, `bos` the text of its BOS token ("" without
    one) and `add_bos` its `tokenizer.ggml.add_bos_token`. `prefill` (for example `FENCE`) starts
    the model's answer. Raises TemplateRefused.
    """
    if not template.strip():
        raise TemplateRefused("the model file carries no chat template")
    if len(template) > MAX_TEMPLATE:
        raise too_long(template)
    body, opened = _without_bos(prompt, template, bos)
    add_bos = opened or (add_bos and not (bos and body.startswith(bos)))
    if "<|im_start|>" in template:
        _check_chatml(body, prompt, switchable="enable_thinking" in template)
    else:
        _check_contents(body, prompt)
    tail = body.rpartition(prompt.user.strip())[2]
    reason = why_it_may_think(tail, template, switched=False)
    # A stranger's template runs no more often than needed.
    decided_by_switch = (
        reason is not None and why_it_may_think(tail, template, switched=True) is None
    )
    if reason is not None and not (decided_by_switch and _is_switched(prompt, template, bos)):
        raise TemplateRefused(reason)
    return (bos if add_bos else "") + body + prefill


def too_long(template: str) -> TemplateRefused:
    """The refusal of a template above MAX_TEMPLATE characters."""
    return TemplateRefused(
        f"the chat template is {len(template)} characters long, more than {MAX_TEMPLATE}"
    )


def _without_bos(prompt: Prompt, template: str, bos: str) -> tuple[str, bool]:
    """The rendered text without its leading BOS, and whether the template writes one.

    A BOS token that opens a turn (SmolLM2) belongs to the text and stays.
    """
    bare = _apply(prompt, template, "")
    if not bos:
        return bare, False
    body = _apply(prompt, template, bos)
    if body.endswith(bare):
        before = body[: len(body) - len(bare)]
        if before == bos * before.count(bos):
            return bare, bool(before)
    # The template compares or repeats its BOS, so only leading ones are known not to be text.
    opened = body.startswith(bos)
    while body.startswith(bos):
        body = body[len(bos) :]
    return body, opened


def _is_switched(prompt: Prompt, template: str, bos: str) -> bool:
    """True when the template writes another prompt with thinking on."""
    try:
        return _apply(prompt, template, bos, _LOUD) != _apply(prompt, template, bos)
    except TemplateRefused:
        return False


def _apply(prompt: Prompt, template: str, bos: str, thinking: Mapping[str, object] = _QUIET) -> str:
    """Run the template. Without a system role, the system text goes to the head of the user's."""
    from jinja2 import TemplateError

    environment = _environment()
    user = {"role": "user", "content": prompt.user}
    forms = [
        [{"role": "system", "content": prompt.system}, user],
        [{"role": "user", "content": f"{prompt.system}\n\n{prompt.user}"}],
    ]
    failure = ""
    try:
        compiled = environment.from_string(template)
        for messages in forms if prompt.system else [[user]]:
            try:
                return compiled.render(
                    messages=messages,
                    bos_token=bos,
                    eos_token="",
                    add_generation_prompt=True,
                    **thinking,
                )
            except TemplateError as error:
                failure = failure or _reason(error)
    except (
        TemplateError,
        ArithmeticError,
        LookupError,
        TypeError,
        ValueError,
        RecursionError,
        AttributeError,
    ) as error:
        failure = _reason(error)
    raise TemplateRefused(f"the chat template fails: {failure}")


def _environment() -> ImmutableSandboxedEnvironment:
    """jinja2 with transformers' settings for chat templates (trim, lstrip, loop controls)."""
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    from kmint_tui.smith.generation_block import GenerationBlock

    extensions = ["jinja2.ext.loopcontrols", GenerationBlock]
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=extensions
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _no_clock
    return environment


def _raise_exception(message: str) -> NoReturn:
    from jinja2 import TemplateError

    raise TemplateError(message)


def _to_json(
    value: object, ensure_ascii: bool = False, indent: int | None = None, **more: object
) -> str:
    """transformers' filter, which writes neither HTML entities nor escapes for other scripts."""
    del more
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _no_clock(form: str) -> str:
    """Today's date in a prompt would make a seed's tokens depend on the day."""
    del form
    return "1 January 2026"


def _reason(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:200]


def _check_chatml(body: str, prompt: Prompt, switchable: bool) -> None:
    """Refuse a text that is not the ChatML form of the smiths' training.

    Where thinking can be switched, the form ends in an empty block.
    """
    end = closed_block(body)
    head = body.removesuffix(end) if end else body
    if not prompt.system:
        # Some templates bring their own system text.
        head = _OWN_SYSTEM.sub("", head, count=1)
    forms = tuple(_chatml_heads(prompt))
    if head in forms and (end or not switchable):
        return
    expected = [form + (NO_THINKING if switchable else "") for form in forms]
    at = max(_common_prefix(body, form) for form in expected)
    raise TemplateRefused(
        "the chat template does not give the thinking-suppressed ChatML form: it differs "
        f"from character {at} on "
        f"({body[max(0, at - 20) : at + 40]!r})"
    )


def _chatml_heads(prompt: Prompt) -> Iterator[str]:
    texts = ((prompt.system, prompt.system.strip()), (prompt.user, prompt.user.strip()))
    for system, user in product(*texts):
        opening = f"<|im_start|>system\n{system}<|im_end|>\n" if system else ""
        yield f"{opening}<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n"


def _check_contents(body: str, prompt: Prompt) -> None:
    for name, content in (("system", prompt.system), ("user", prompt.user)):
        if content and body.count(content.strip()) != 1:
            raise TemplateRefused(f"the chat template does not carry the {name} text exactly once")
    if body.rstrip().endswith(prompt.user.strip()):
        raise TemplateRefused("the chat template opens no turn for the assistant")


def _common_prefix(left: str, right: str) -> int:
    for index, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return index
    return min(len(left), len(right))


def closed_block(text: str) -> str:
    """The closed empty block at the end of a text, "" without one."""
    # A search from every position of a long text takes seconds.
    found = _CLOSED.search(text[-_LONGEST_BLOCK:])
    return found.group(0) if found is not None else ""


def why_it_may_think(tail: str, template: str, *, switched: bool) -> str | None:
    """The reason why the model may think, None where thinking is off.

    `tail` is the text after the user's. `switched` means that the template writes another prompt
    when thinking is on.
    """
    block = closed_block(tail)
    if block:
        opened = _OPENED.search(tail[: -len(block)])
        return (
            f"the chat template opens a block of thinking that is not empty ({tail[-60:]!r})"
            if opened
            else None
        )
    if any(word in tail.lower() for word in _WORDS):
        return (
            "the chat template starts the answer with thinking even with enable_thinking=False "
            f"({tail[-60:]!r})"
        )
    known = _KNOWS.search(template)
    if known is None or switched:
        return None
    return (
        f"the chat template mentions thinking ({known[0]!r}) but does not close an empty block "
        "with enable_thinking=False"
    )

"""From a prompt to the exact text a model reads: its own chat template, with thinking switched off.

The template comes out of the GGUF file, so it is untrusted: it runs in jinja2's immutable sandbox. A ChatML result is
compared character by character with the suppressed form the public smiths were trained on,

    [BOS]<|im_start|>system\\nSYS<|im_end|>\\n<|im_start|>user\\nUSER<|im_end|>\\n<|im_start|>assistant\\n<think>\\n\\n</think>\\n\\n

(Qwen3.6 has no BOS and trims the contents; a model that never thinks has no think block). A template under which
thinking cannot be ruled out is refused with the reason: a smith that thinks spends its token budget on prose.

The text carries its own BOS, exactly once, so it must be tokenised without adding special tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

from kmint_tui.smith.prompts import Prompt

if TYPE_CHECKING:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

FENCE = "```python\n"
NO_THINKING = "<think>\n\n</think>\n\n"
MAX_TEMPLATE = 200_000


class TemplateRefused(ValueError):
    """The chat template cannot be used; `reason` says why in one line."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def render(prompt: Prompt, template: str, *, bos: str, add_bos: bool = False, prefill: str = "") -> str:
    """The text to tokenise, ready for the model to go on with its answer.

    `template` is the GGUF's `tokenizer.chat_template`, `bos` the text of its BOS token ("" when it has none) and
    `add_bos` its `tokenizer.ggml.add_bos_token`. `prefill` (for example `FENCE`) is put into the model's mouth.
    Raises TemplateRefused.
    """
    if not template.strip():
        raise TemplateRefused("the model file carries no chat template")
    if len(template) > MAX_TEMPLATE:
        raise TemplateRefused(f"the chat template is {len(template)} characters long, more than {MAX_TEMPLATE}")
    body = _apply(prompt, template, bos)
    while bos and body.startswith(bos):
        body, add_bos = body[len(bos) :], True
    if "<|im_start|>" in template:
        _check_chatml(body, prompt, switchable="enable_thinking" in template)
    else:
        _check_contents(body, prompt)
    _check_thinking(body, prompt, template)
    return (bos if add_bos else "") + body + prefill


def _apply(prompt: Prompt, template: str, bos: str) -> str:
    """Run the template; one that rejects the system role gets the system text at the head of the user's."""
    from jinja2 import TemplateError

    environment = _environment()
    separate = [{"role": "system", "content": prompt.system}, {"role": "user", "content": prompt.user}]
    folded = [{"role": "user", "content": f"{prompt.system}\n\n{prompt.user}"}]
    failure = ""
    try:
        compiled = environment.from_string(template)
        for messages in (separate, folded):
            try:
                return compiled.render(messages=messages, bos_token=bos, eos_token="", add_generation_prompt=True, enable_thinking=False)
            except TemplateError as error:
                failure = failure or _reason(error)
    except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError, RecursionError) as error:
        failure = _reason(error)
    raise TemplateRefused(f"the chat template fails: {failure}")


def _environment() -> ImmutableSandboxedEnvironment:
    """jinja2 as transformers sets it up for chat templates (trim and lstrip blocks, loop controls)."""
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _no_clock
    return environment


def _raise_exception(message: str) -> NoReturn:
    from jinja2 import TemplateError

    raise TemplateError(message)


def _no_clock(form: str) -> str:
    """Templates that print today's date would make a seed's tokens depend on the day."""
    del form
    return "1 January 2026"


def _reason(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:200]


def _chatml_forms(prompt: Prompt, switchable: bool) -> Iterator[str]:
    for system, user in ((prompt.system, prompt.user), (prompt.system.strip(), prompt.user.strip())):
        head = f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n"
        yield head + NO_THINKING if switchable else head


def _check_chatml(body: str, prompt: Prompt, switchable: bool) -> None:
    forms = tuple(_chatml_forms(prompt, switchable))
    if body in forms:
        return
    at = max(_common_prefix(body, form) for form in forms)
    raise TemplateRefused(
        f"the chat template does not give the thinking-suppressed ChatML form: it differs from character {at} on "
        f"({body[max(0, at - 20) : at + 40]!r})"
    )


def _check_contents(body: str, prompt: Prompt) -> None:
    for name, content in (("system", prompt.system), ("user", prompt.user)):
        if body.count(content.strip()) != 1:
            raise TemplateRefused(f"the chat template does not carry the {name} text exactly once")
    if body.rstrip().endswith(prompt.user.strip()):
        raise TemplateRefused("the chat template opens no turn for the assistant")


def _check_thinking(body: str, prompt: Prompt, template: str) -> None:
    """Refuse unless thinking is known to be off: a closed empty block, or a template that has no notion of thinking."""
    if body.endswith(NO_THINKING):
        return
    tail = body.rpartition(prompt.user.strip())[2].lower()
    if "think" in tail or "reason" in tail:
        raise TemplateRefused(f"the chat template starts the answer with thinking even with enable_thinking=False ({tail[-60:]!r})")
    if "think>" in template:
        raise TemplateRefused("the chat template knows <think> blocks but does not close an empty one with enable_thinking=False")


def _common_prefix(left: str, right: str) -> int:
    for index, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return index
    return min(len(left), len(right))

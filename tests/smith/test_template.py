"""Rendering through chat templates: the exact forms without thinking, BOS once, and refusals."""

from __future__ import annotations

import pytest

from kmint_tui.smith.prompts import Prompt
from kmint_tui.smith.template import FENCE, NO_THINKING, TemplateRefused, render

PROMPT = Prompt("SYS", "USER\n")
FEATURED = Prompt("SYS", "USER")

# Behaves like MiniCPM5's: BOS first, unchanged contents, an empty think block only when thinking is
# off.
MINICPM5 = """{{- bos_token }}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined %}
        {{- '<think>\\n' if enable_thinking else '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}"""

# Behaves like Qwen3.6's: no BOS, contents trimmed, thinking on unless switched off.
QWEN36 = """{%- macro text(content) %}{{- content }}{%- endmacro %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + text(message.content)|trim + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- else %}
        {{- '<think>\\n' }}
    {%- endif %}
{%- endif %}"""

PLAIN_CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant{{ '\\n' }}"
USER_ONLY = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    "[INST]{{ m.content }}[/INST]{% endfor %}"
)


def test_minicpm5_gives_the_exact_suppressed_form() -> None:
    assert render(FEATURED, MINICPM5, bos="<s>") == (
        "<s><|im_start|>system\nSYS<|im_end|>\n<|im_start|>user\nUSER<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )


def test_qwen36_gives_the_exact_suppressed_form() -> None:
    assert render(PROMPT, QWEN36, bos="<|endoftext|>") == (
        "<|im_start|>system\nSYS<|im_end|>\n<|im_start|>user\nUSER<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )


def test_minicpm5_keeps_the_trailing_newline_of_the_user_text() -> None:
    assert "USER\n<|im_end|>" in render(PROMPT, MINICPM5, bos="<s>")


@pytest.mark.parametrize("add_bos", [False, True])
@pytest.mark.parametrize("copies", [0, 1, 2])
def test_bos_appears_exactly_once_when_wanted(copies: int, add_bos: bool) -> None:
    text = render(PROMPT, "{{ bos_token }}" * copies + PLAIN_CHATML, bos="<s>", add_bos=add_bos)
    assert text.count("<s>") == (1 if copies or add_bos else 0)
    assert text.removeprefix("<s>").startswith("<|im_start|>system")


def test_prefill_is_put_after_the_think_block() -> None:
    assert render(PROMPT, MINICPM5, bos="<s>", prefill=FENCE).endswith(NO_THINKING + "```python\n")


def test_a_template_without_system_role_puts_it_in_the_user_text() -> None:
    assert render(FEATURED, USER_ONLY, bos="<s>", add_bos=True) == "<s>[INST]SYS\n\nUSER[/INST]"


# Behaves like SmolLM2's: its BOS is the token that opens a turn, and it has its own system text.
SMOLLM2 = (
    "{% for m in messages %}{% if loop.first and messages[0].role != 'system' %}{{ '<|im_start|>system\nOWN<|im_end|>\n' }}{% endif %}"
    "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}{{ '<|im_start|>assistant\n' }}"
)


@pytest.mark.parametrize("add_bos", [False, True])
def test_a_bos_that_opens_a_turn_belongs_to_the_text(add_bos: bool) -> None:
    text = render(FEATURED, SMOLLM2, bos="<|im_start|>", add_bos=add_bos)
    assert (
        text
        == "<|im_start|>system\nSYS<|im_end|>\n<|im_start|>user\nUSER<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_request_without_a_system_text_gets_the_templates_own() -> None:
    text = render(Prompt("", "USER"), SMOLLM2, bos="<|im_start|>")
    assert (
        text
        == "<|im_start|>system\nOWN<|im_end|>\n<|im_start|>user\nUSER<|im_end|>\n<|im_start|>assistant\n"
    )
    assert render(Prompt("", "USER"), PLAIN_CHATML, bos="").startswith("<|im_start|>user\nUSER")


def test_generation_blocks_print_what_they_hold() -> None:
    template = PLAIN_CHATML.replace(
        "{{ m.content }}", "{% generation %}{{ m.content }}{% endgeneration %}"
    )
    assert render(FEATURED, template, bos="") == render(FEATURED, PLAIN_CHATML, bos="")


TURNS = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"


@pytest.mark.parametrize(
    "end",
    [
        "<think></think>",
        "<think>\n</think>",
        "</think>",
        "[THINK][/THINK]",
        "<|START_THINKING|><|END_THINKING|>",
        "<seed:think></seed:think>",
        "<think:opensource></think:opensource>",
        "<|channel>thought\n<channel|>",
    ],
)
def test_every_closed_empty_block_rules_thinking_out(end: str) -> None:
    assert render(PROMPT, TURNS + end, bos="").endswith(end)


def test_chatml_may_close_its_block_in_another_form() -> None:
    text = render(FEATURED, PLAIN_CHATML + "<think>\n</think>{{ '\\n' }}", bos="")
    assert text.endswith("assistant\n<think>\n</think>\n")


def test_a_switch_that_changes_the_prompt_rules_thinking_out() -> None:
    switched = "{% if enable_thinking %}Deliberate.{% else %}Answer.{% endif %}" + TURNS
    assert render(PROMPT, switched, bos="").startswith("Answer.")


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("", "carries no chat template"),
        (" " * 300_000 + "x", "characters long"),
        ("{% if %}", "fails: TemplateSyntaxError"),
        ("{{ raise_exception('never') }}", "fails: TemplateError: never"),
        ("{{ messages.__class__.__mro__ }}", "fails: SecurityError"),
        ("{{ 1 // 0 }}", "fails: ZeroDivisionError"),
        ("{% for i in range(1000000) %}{% endfor %}", "fails: OverflowError"),
        (MINICPM5.replace("<think>\\n\\n</think>\\n\\n", ""), "differs from character"),
        (PLAIN_CHATML + "<think>\n", "differs from character"),
        (PLAIN_CHATML + "{% if enable_thinking %}{% endif %}", "differs from character"),
        (
            "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant><think>\n",
            "starts the answer with thinking",
        ),
        (
            "{% for m in messages %}{{ m.content }}{% endfor %}<|START_THINKING|>",
            "starts the answer with thinking",
        ),
        (
            "{# <think> #}{% for m in messages %}{{ m.content }}{% endfor %}<assistant>",
            "mentions thinking ('<think')",
        ),
        (TURNS + "[THINK]", "starts the answer with thinking"),
        (TURNS + "<think>a plan</think>", "opens a block of thinking that is not empty"),
        ("{# [THINK] #}" + TURNS, "mentions thinking"),
        ("{% if m %}<|channel|>analysis{% endif %}" + TURNS, "mentions thinking"),
        ("{{ messages[1].content }}<assistant>", "does not carry the system text"),
        (
            "{{ messages[0].content }}{{ messages[1].content * 2 }}<assistant>",
            "does not carry the user text",
        ),
        ("{% for m in messages %}{{ m.content }}{% endfor %}", "opens no turn"),
    ],
)
def test_untrusted_templates_are_refused_with_a_reason(template: str, reason: str) -> None:
    with pytest.raises(TemplateRefused) as caught:
        render(PROMPT, template, bos="<s>")
    assert reason in caught.value.reason
    assert "\n" not in caught.value.reason

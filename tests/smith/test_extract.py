"""Extraction of the kernel from an answer: a table of answers of small models."""

from __future__ import annotations

import pytest

from kmint_tui.smith.extract import Finish, extract

KERNEL = """@triton.jit
def _k(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    tl.store(y_ptr + row, tl.load(x_ptr + row))


def run(x):
    y = torch.empty_like(x)
    _k[(x.shape[0],)](x, y, x.shape[1], BLOCK=1024)
    return y
"""
WHOLE = [
    ("bare", KERNEL, False),
    ("bare without last newline", KERNEL.rstrip(), False),
    ("fenced", f"```python\n{KERNEL}```", True),
    ("fenced, fence swallowed by the stop matcher", f"```python\n{KERNEL.rstrip()}", True),
    ("fenced without language", f"```\n{KERNEL}```", True),
    ("fence with a capital and spaces", f"```Python  \n{KERNEL}```", True),
    ("indented fence", f"  ```python\n{KERNEL}  ```", True),
    ("prose before a fence", f"Here is the kernel:\n\n```python\n{KERNEL}```", True),
    ("prose after a fence", f"```python\n{KERNEL}```\nThis kernel does x.", True),
    ("second fence", f"```python\n{KERNEL}```\nUse it:\n```python\nrun(x)\n```", True),
    ("first fence is not the kernel", f"```\nsoftmax\n```\n```python\n{KERNEL}```", True),
    ("prose before bare code", f"Sure, here it is.\n{KERNEL}", False),
    ("one word before bare code", f"Kernel\n{KERNEL}", False),
    ("prose after bare code", f"{KERNEL}\nThis kernel reads each row once.", False),
    ("one word after bare code", f"{KERNEL}\nDone", False),
    ("bare code, then a fence", f"{KERNEL}```\nExplanation: fast.", False),
    ("demonstration call", f"```python\n{KERNEL}\nprint(run(torch.ones(2, 2)))\n```", True),
    ("closed thought", f"<think>\nrows...\n</think>\n\n{KERNEL}", False),
    ("stray end of thought", f"I think so.</think>\n{KERNEL}", False),
    (
        "thought around a decoy",
        f"<think>```python\ndef run(x): return x\n```</think>```python\n{KERNEL}```",
        True,
    ),
    ("open thought at the end", f"{KERNEL}<think>was that right?", False),
    ("broken second function", f"{KERNEL}\n\ndef helper(x:\n", False),
]


@pytest.mark.parametrize(
    ("text", "fenced"), [row[1:] for row in WHOLE], ids=[row[0] for row in WHOLE]
)
@pytest.mark.parametrize("finish", ["stop", "length", "cancelled"])
def test_the_kernel_is_cut_out_exactly(text: str, fenced: bool, finish: Finish) -> None:
    found = extract(text, finish)
    assert found.source == KERNEL
    assert found.fenced == fenced
    assert not found.truncated


def test_what_was_dropped_is_said() -> None:
    assert extract(f"{KERNEL}\nThis kernel is fast.", "stop").notes == (
        "text after the kernel dropped",
    )
    assert extract(KERNEL, "stop").notes == ()
    assert extract(f"<think></think>{KERNEL}", "stop").notes == ("<think> text dropped",)


def test_a_kernel_and_its_run_in_two_fences_are_joined() -> None:
    kernel, host = KERNEL.split("\n\n\n")
    found = extract(
        f"```python\n{kernel}\n```\nCall it so:\n```python\n{host}```\nInstall:\n```sh\npip install triton\n```",
        "stop",
    )
    assert found.source == f"{kernel}\n\n{host}" and found.fenced
    assert found.notes == ("1 further fenced block(s) dropped",)


def test_prefilled_answers_start_inside_the_fence() -> None:
    assert extract(KERNEL, "stop", inside=True).source == KERNEL
    assert extract(f"{KERNEL}```\nDone, that is all.", "stop", inside=True).source == KERNEL
    assert extract(f"```python\n{KERNEL}", "stop", inside=True).source == KERNEL
    assert extract(KERNEL, "stop", inside=True).fenced


def test_module_constants_imports_and_docstrings_are_kept() -> None:
    source = f'"""A kernel."""\nimport triton\n\nBLOCK = 1024\n\n\n{KERNEL}'
    assert extract(source, "stop").source == source
    assert extract(f"```python\n{source}```", "stop").source == source


@pytest.mark.parametrize(
    "at",
    [
        KERNEL.index("tl.store") + 12,
        KERNEL.index("_k[") + 8,
        KERNEL.index("    return"),
        KERNEL.index("def run"),
    ],
)
def test_a_kernel_cut_off_by_the_token_limit_is_marked(at: int) -> None:
    assert extract(KERNEL[:at], "length").truncated
    assert extract(f"```python\n{KERNEL[:at]}", "length").truncated
    assert not extract(KERNEL[:at], "stop").truncated


@pytest.mark.parametrize("text", ["", "\n", "```python\n```", "<think>for ever", "```"])
def test_answers_without_any_text_give_no_source(text: str) -> None:
    assert extract(text, "stop").source == ""


def test_an_answer_without_code_is_left_as_it_is() -> None:
    assert extract("I cannot do that.", "stop").source == "I cannot do that.\n"


def test_text_that_breaks_the_parser_does_not_break_us() -> None:
    for text in (
        "def run(x):\n" + "(" * 5000,
        "x\x00y",
        "-" * 20000 + "1",
        "def run(x):\n    return '\\d'",
    ):
        assert extract(text, "length").source.startswith(text[:5])

"""The screen: it lets good candidates through, names what is wrong with others, and takes
milliseconds.
"""

from __future__ import annotations

import pytest

from referee.reading.source import unfenced
from referee.report import SCREEN_GUARDS
from referee.stages.screen import screen
from tests.referee.trace.bad import ALLOCATE, COPY, LAUNCH, body
from tests.referee.trace.good import GOOD


def candidate(*lines: str, before: str = "") -> str:
    """A candidate with the copy kernel and this `run`."""
    return COPY + body(*lines, before=before)


@pytest.mark.parametrize("name", GOOD)
def test_good_candidates_pass_every_check(name: str) -> None:
    checks, rejection = screen(GOOD[name].source)
    assert rejection is None
    assert [(check.name, check.status) for check in checks] == [
        (name, "pass") for name in SCREEN_GUARDS
    ]


REJECTED = {
    "syntax": ("parse", "line 2", "def run(x):\n    return (x\n"),
    "no_run": ("entry_point", "`run`", COPY),
    # Grammar of Python 3.12: refused by every Python, so that no version reads another program.
    "type_parameters": (
        "parse",
        "syntax error",
        candidate("return x", before="\ndef pick[kernel](x):\n    return kernel\n"),
    ),
    "type_statement": (
        "parse",
        "syntax error",
        candidate("return x", before="type copies = list[int]\n"),
    ),
    "run_twice": ("entry_point", "more than once", candidate("pass") + "\ndef run(x):\n    pass\n"),
    "run_is_a_value": ("entry_point", "`run`", COPY + "\nrun = 3\n"),
    "run_in_class": ("entry_point", "`run`", COPY + "\nclass A:\n    def run(x):\n        pass\n"),
    "no_kernel": ("no_kernel", "Triton kernel", "def run(x):\n    return torch.softmax(x, -1)\n"),
    "import": ("imports", "`torch.*`", "from torch import *\n" + candidate("return x")),
    "plain_global": (
        "kernel_constant",
        "tl.constexpr",
        COPY.replace("BLOCK: tl.constexpr", "m").replace("BLOCK", "SIZE")
        + body("return x", before="SIZE = 64\n"),
    ),
    "kernel_print": (
        "not_judged",
        "printing",
        COPY.replace("i = ", "tl.device_print('x')\n    i = ") + body("return x"),
    ),
}


@pytest.mark.parametrize("name", REJECTED)
def test_bad_candidates_are_rejected_with_a_reason(name: str) -> None:
    guard, says, source = REJECTED[name]
    checks, rejection = screen(source)
    assert rejection is not None
    assert (rejection.stage, rejection.guard, says in rejection.reason) == (
        "screen",
        guard,
        True,
    ), rejection
    statuses = [check.status for check in checks]
    assert statuses == ["pass"] * statuses.index("fail") + ["fail"] + ["skipped"] * (
        len(SCREEN_GUARDS) - 1 - statuses.index("fail")
    )


def test_the_block_that_defines_run_is_taken_out_of_markdown() -> None:
    code = candidate(ALLOCATE, LAUNCH, "return y")
    code += "\n"
    assert unfenced(f"Here:\n\n```sh\npip\n```\n```python\n{code}```\nDone.\n") == code
    assert unfenced("```python\n" + code) == code
    assert (
        unfenced(
            f"<think>\n```python\ndef run(x):\n    return x\n```\n</think>\n```python\n{code}```\n"
        )
        == code
    )
    kernel, host = (
        "@triton.jit\ndef k(x):\n    pass\n",
        "def run(x):\n    k[(1,)](x)\n    return x\n",
    )
    assert (
        unfenced(f"```python\n{kernel}```\nand\n```sh\npip\n```\n```\n{host}```\n")
        == f"{kernel}\n{host}"
    )
    assert (
        unfenced(f"```python\n{kernel}{host}```\nUse:\n```python\nprint(run(1))\n```\n")
        == kernel + host
    )
    assert unfenced("\ufeff" + code) == code
    for text in (
        code,
        f'"""```\ndef run(x): pass\n```"""\n{code}',
        "```\nno code\n```",
        "def run(:\n",
        "",
    ):
        assert unfenced(text) == text


@pytest.mark.parametrize(
    "first",
    [
        "# -*- coding: raw_unicode_escape -*-",
        "# a\u2028b\n# vim: set fileencoding=cp437 :",
        "#coding=utf-7\r",
    ],
)
def test_a_file_that_python_reads_as_another_text_is_refused(first: str) -> None:
    _, rejection = screen(first + "\n" + candidate(ALLOCATE, LAUNCH, "return y"))
    assert rejection is not None and rejection.guard == "parse" and "encoding" in rejection.reason


def test_utf_8_may_be_named() -> None:
    assert screen("# -*- coding: UTF-8 -*-\n" + candidate(ALLOCATE, LAUNCH, "return y"))[1] is None


def test_the_main_block_is_ignored() -> None:
    source = (
        candidate(ALLOCATE, LAUNCH, "return y")
        + '\n\nif __name__ == "__main__":\n    import os\n    print(os)\n'
    )
    assert screen(source)[1] is None

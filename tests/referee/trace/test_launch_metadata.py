"""What describes launches to a profiler: it may make texts, nothing else than host code may do, and no kernel is made of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from referee.reading.screen import screen
from tests.referee.trace.bad import ALLOCATE, COPY, LAUNCH, body
from tests.referee.trace.test_unchanged import answer

DESCRIBED = COPY.replace("@triton.jit\n", "@triton.jit(launch_metadata=_describe)\n")
DESCRIBE = """
def _describe(grid, kernel, args):
    told = {}
    N, width = args["n"], args["x"].element_size()
    told["name"] = f"{kernel.name} [N={N}]"
    told[f"flops{width * 8}"] = 2.0 * N
    return told

"""
RUN = body(ALLOCATE, LAUNCH, "return y")


def source(describe: str = DESCRIBE, run: str = RUN) -> str:
    """A candidate whose kernel is described; the function stands below the imports."""
    return DESCRIBED.replace("@triton.jit(", f"{describe}\n@triton.jit(", 1) + run


def test_launches_may_be_described(tmp_path: Path) -> None:
    assert screen(source())[1] is None
    assert "plans" in answer(source(), tmp_path)


REFUSED = {
    "changes": ("state", DESCRIBE.replace("told = {}", "told = KEPT") + "KEPT = {}\n", RUN),
    "calls_what_changes": (
        "state", DESCRIBE.replace("told = {}", "told = note()") + "KEPT = []\ndef note():\n    KEPT.append(1)\n    return {}\n", RUN,
    ),
    "file": ("vocabulary", DESCRIBE.replace("told = {}", "told = open('f')"), RUN),
    "computes": ("torch_compute", DESCRIBE.replace("told = {}", "told = args['x'].softmax(-1)"), RUN),
    # Then its text comes back.
    "called_as_well": ("vocabulary", DESCRIBE, body("told = _describe((1,), copy, {'n': 1, 'x': x})", ALLOCATE, LAUNCH, "return y")),
    "by_another_name": (
        "vocabulary", DESCRIBE + "tell = _describe\n", body("told = tell((1,), copy, {'n': 1, 'x': x})", ALLOCATE, LAUNCH, "return y"),
    ),
    "decorated": ("launch_feature", "import functools\n" + DESCRIBE.replace("def ", "@functools.cache\ndef "), RUN),
    "bound_again": ("launch_feature", DESCRIBE + "_describe = None\n", RUN),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_host_code_otherwise(name: str) -> None:
    guard, describe, run = REFUSED[name]
    rejection = screen(source(describe, run))[1]
    assert rejection is not None and rejection.guard == guard, rejection


def test_it_stays_what_the_text_says(tmp_path: Path) -> None:
    for written in (source(), COPY + RUN):
        told = answer(written.replace(LAUNCH, f"setattr(copy, 'launch_metadata', print)\n    {LAUNCH}"), tmp_path)
        assert told["rejection"]["guard"] == "state" and "launch_metadata" in told["rejection"]["reason"], told

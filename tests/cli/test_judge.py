"""`kmint judge`: documents and exit codes for kernels that pass, that do not, and that are no
kernels for the operation.
"""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest

from kmint_tui.cli.judge import show_verdict
from kmint_tui.cli.streams import Output
from referee.verdict import CellResult, Verdict
from tests.cli.runner import kmint
from tests.save.test_host_code import GOOD

pytestmark = pytest.mark.usefixtures("warm")

REFERENCE = '''
import torch


def double(x):
    """Twice x."""
    return 2 * x


def get_inputs():
    return [torch.randn(7, 33)]
'''

DOUBLE = """
@triton.jit
def _kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, 2 * tl.load(x_ptr + at, mask=at < n), mask=at < n)


def run(x):
    y = torch.empty_like(x)
    _kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y
"""


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    path = tmp_path / "kernel.py"
    path.write_text(GOOD, encoding="utf-8")
    return path


def test_a_good_kernel_is_exit_0_with_a_verdict_document(kernel: Path) -> None:
    done = kmint("judge", str(kernel), "--op", "softmax", "--json")
    document = done.document
    assert (done.code, document["schema"], document["op"]) == (0, "kmint.verdict/1", "softmax")
    assert {
        "verdict",
        "stage",
        "reason",
        "mode",
        "checks",
        "cells",
        "timing",
        "environment",
    } <= set(document)
    assert document["verdict"] in ("win", "tie", "loss", "unsure", "correct")
    assert {check["status"] for check in document["checks"]} <= {"pass", "skipped"}


def test_a_kernel_from_stdin_with_a_byte_order_mark() -> None:
    done = kmint(
        "judge", "-", "--op", "softmax", "--level", "screen", stdin=b"\xef\xbb\xbf" + GOOD.encode()
    )
    assert done.code == 0
    assert "screen" in done.out


@pytest.mark.parametrize("level", ["screen", "compile"])
@pytest.mark.parametrize(
    ("source", "code", "outcome"),
    [(GOOD.replace("x / tl.sum", "1 / tl.sum"), 0, "unsure"), ("def run(x):\n", 1, "rejected")],
)
def test_a_lower_level_is_exit_0_and_claims_nothing(
    tmp_path: Path, level: str, source: str, code: int, outcome: str
) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(source, encoding="utf-8")
    done = kmint("judge", str(path), "--op", "softmax", "--level", level, "--json")
    assert (done.code, done.document["verdict"], done.document["cells"]) == (code, outcome, [])
    assert done.document["stage"] in ("screen", level)


@pytest.mark.parametrize(
    ("source", "op", "words"),
    [
        (GOOD, "rmsnorm", ["rejected", "argument"]),
        (GOOD.replace("x / tl.sum(x, axis=0)", "x"), "softmax", ["rejected", "wrong_answer"]),
        ("def run(x):\n    return torch.softmax(x, -1)\n", "softmax", ["rejected", "screen"]),
        ("def run(x:\n", "softmax", ["rejected", "parse"]),
    ],
    ids=["signature", "wrong", "cheat", "syntax"],
)
def test_what_does_not_pass_is_exit_1_with_the_reason(
    tmp_path: Path, source: str, op: str, words: list[str]
) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(source, encoding="utf-8")
    done = kmint("judge", str(path), "--op", op)
    waits = "still "  # what a slow machine adds
    assert (done.code, [line for line in done.err.splitlines() if not line.startswith(waits)]) == (
        1,
        [],
    )
    assert all(word in done.out for word in words)


def test_a_reference_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "reference.py").write_text(REFERENCE, encoding="utf-8")
    (tmp_path / "kernel.py").write_text(DOUBLE, encoding="utf-8")
    done = kmint(
        "judge",
        str(tmp_path / "kernel.py"),
        "--reference",
        str(tmp_path / "reference.py:double"),
        "--json",
    )
    assert (done.code, done.document["verdict"] != "rejected") == (0, True), done.out
    assert (
        kmint(
            "judge",
            str(tmp_path / "kernel.py"),
            "--reference",
            str(tmp_path / "reference.py:treble"),
        ).code
        == 2
    )


def test_what_a_reference_prints_stays_out_of_the_document(tmp_path: Path) -> None:
    reference, kernel = tmp_path / "reference.py", tmp_path / "kernel.py"
    reference.write_text(
        REFERENCE.replace("    return 2 * x", "    print('chatter')\n    return 2 * x")
    )
    kernel.write_text("def run(x): ...")
    done = kmint("judge", str(kernel), "--reference", str(reference), "--json")
    assert (done.code, done.document["verdict"]) == (1, "rejected")
    assert "chatter" in done.err


def test_an_unknown_target_is_told(kernel: Path) -> None:
    done = kmint("judge", str(kernel), "--op", "softmax", "--target", "sm_1")
    assert done.code == 2
    assert "sm_90" in done.err


def test_a_capability_that_is_missing_is_no_failure_in_the_table() -> None:
    """`correct` beside a line that says `fail` would leave its reader in doubt."""
    cells = (
        CellResult("f32-3x7-normal-x1", "required", "pass"),
        CellResult("f32-3x7-padded-x1", "capability", "fail", detail="wrong"),
    )
    verdict = Verdict(
        "softmax", "correct", "done", "agrees", None, "interpret", (), cells, None, {}, 1, {}
    )
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        show_verdict(Output(), verdict)
    assert "f32-3x7-padded-x1  capability  no      wrong" in shown.getvalue()

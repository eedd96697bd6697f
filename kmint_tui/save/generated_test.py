"""The test that is saved beside a kernel."""

from __future__ import annotations

from referee.ops import Op

_TEMPLATE = '''"""Checks {stem}.py: the file is the one that was judged, and the referee of kmint still passes it."""

import hashlib
import json
from pathlib import Path

import pytest

KERNEL = Path(__file__).with_name("{stem}.py")
RECEIPT = Path(__file__).with_name("{stem}.receipt.json")


def test_the_file_is_the_one_that_was_judged():
    receipt = json.loads(RECEIPT.read_text(encoding="utf-8"))
    digest = hashlib.sha256(KERNEL.read_bytes()).hexdigest()
    assert digest == receipt["files"][KERNEL.name], "edited since it was judged"
'''

_JUDGED = """

def test_the_referee_passes_it():
    judge = pytest.importorskip("referee.judge", reason="kmint is not installed")
    verdict = judge.judge(KERNEL.read_text(encoding="utf-8"), "{op}", level="correct")
    assert verdict.passed, verdict.reason
"""


def render_test(op: Op, stem: str) -> str:
    """The text of `test_<stem>.py`. A kernel with a reference of the user's own is only compared with its receipt."""
    text = _TEMPLATE.format(stem=stem)
    if op.origin == "user":
        return text.replace("import pytest\n\n", "")
    return text + _JUDGED.format(op=op.name)

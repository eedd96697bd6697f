"""`kmint history rm` asks before verdicts and sources are lost."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from kmint_tui import paths
from kmint_tui.history.store import History
from tests.cli.runner import kmint
from tests.history.test_transfer import fill

pytestmark = pytest.mark.usefixtures("warm")


def answered(answer: bytes) -> subprocess.CompletedProcess[bytes]:
    """The command on a terminal where this is typed."""
    outside, inside = pty.openpty()
    try:
        os.write(outside, answer)
        return subprocess.run(
            [sys.executable, "-m", "kmint_tui", "history", "rm", "1", "2.1"],
            stdin=inside,
            capture_output=True,
        )
    finally:
        os.close(inside)
        os.close(outside)


def left() -> list[str]:
    with History(paths.history_file()) as history:
        return [
            draft.id for number in history.session_numbers() for draft in history.drafts(number)
        ]


@pytest.fixture(autouse=True)
def filled() -> None:
    fill(paths.history_file(), 2)


def test_a_no_on_the_terminal_keeps_everything() -> None:
    done = answered(b"n\n")
    assert done.returncode == 130 and b"remove 1, 2.1 from the history" in done.stderr
    assert left() == ["1.0", "1.1", "2.0", "2.1"]


def test_a_yes_on_the_terminal_removes() -> None:
    assert answered(b"y\n").returncode == 0
    assert left() == ["2.0"]


def test_without_a_terminal_it_needs_yes() -> None:
    refused = kmint("history", "rm", "1")
    assert refused.code == 2 and "--yes" in refused.err
    assert left() == ["1.0", "1.1", "2.0", "2.1"]
    assert kmint("history", "rm", "1", "--yes").code == 0
    assert left() == ["2.0", "2.1"]

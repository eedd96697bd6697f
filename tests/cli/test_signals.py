"""SIGTERM ends a command as Ctrl-C does: with its own exit code, no child left, nothing half-written."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.processes import living, processes_below


def until(process: subprocess.Popen[str], words: str) -> None:
    """Read stderr up to a line that holds `words`."""
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return
    pytest.fail(f"it ended before it said {words!r}")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_mint_that_is_told_to_end_leaves_no_child(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "kmint_tui", "mint", "softmax", "--drafts", "16"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until(process, "smith: ")
    below = processes_below(process.pid)
    process.send_signal(number)
    if number == signal.SIGINT:
        process.send_signal(number)
    out, err = process.communicate()
    assert (process.returncode, "Traceback" in err) == (128 + number, False)
    assert below and not below & living()
    assert "kept: kmint history show 1" in err or number == signal.SIGINT


def test_nohup_is_honoured() -> None:
    """A signal that whoever started kmint had it ignore stays ignored."""
    code = (
        "import signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "from kmint_tui.cli.termination import orderly\n"
        "with orderly(): signal.raise_signal(signal.SIGHUP); print('alive')"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "alive\n"

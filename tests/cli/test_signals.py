"""SIGTERM ends a command as Ctrl-C does: with its own exit code, no child left, nothing
half-written.
"""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.processes import processes_below, still_living


def until(process: subprocess.Popen[str], words: str) -> None:
    """Read stderr up to a line that holds `words`."""
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return
    pytest.fail(f"it ended before it said {words!r}")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_mint_that_is_told_to_end_leaves_no_child(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "kmint_tui", "--debug", "mint", "softmax", "--drafts", "16"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until(process, "smith: ")
    below = processes_below(process.pid)
    process.send_signal(number)
    if number == signal.SIGINT:
        process.send_signal(number)
    out, err = process.communicate()
    assert (process.returncode, "Traceback" in err) == (128 + number, False)
    assert below and not still_living(below)
    assert "kept: kmint history show 1" in err or number == signal.SIGINT


def test_threads_left_behind_do_not_abort_the_command() -> None:
    """Python's own shutdown would kill a daemon thread inside torch, which sometimes aborts the
    process.
    """
    code = (
        "import os, threading\n"
        "from kmint_tui.cli.termination import leave\n"
        "at_once = os._exit\n"
        "os._exit = lambda code: (os.write(1, b'without a shutdown'), at_once(code))\n"
        "began = threading.Event()\n"
        "threading.Thread(target=lambda: (began.set(), threading.Event().wait()), daemon=True).start()\n"
        "began.wait()\n"
        "print('said')\n"
        "leave(130)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (130, "said\nwithout a shutdown")


def test_nohup_is_honoured() -> None:
    """A signal that whoever started kmint had it ignore stays ignored."""
    code = (
        "import signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "from kmint_tui.cli.termination import orderly\n"
        "with orderly(): signal.raise_signal(signal.SIGHUP); print('alive')"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
        == "alive\n"
    )

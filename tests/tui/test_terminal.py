"""The program on a real terminal (a pseudo-terminal): it is always given back as it was, and no
process is left behind.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.processes import processes_below, still_living

ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"
SHOW_CURSOR = b"\x1b[?25h"
# Below pytest's own limit, so that a failure shows the screen.
SECONDS = 600.0
# Makes standard input the terminal of a session of its own, as a terminal emulator does, and
# becomes the command that follows.
TAKE_TERMINAL = """\
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


class Terminal:
    """`kmint` on a terminal of 80x24; `seen` is everything that it wrote."""

    def __init__(self, *arguments: str) -> None:
        self._file, inside = pty.openpty()
        fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        command = [
            sys.executable,
            "-c",
            TAKE_TERMINAL,
            sys.executable,
            "-m",
            "kmint_tui",
            *arguments,
        ]
        environment = {**os.environ, "TERM": "xterm-256color"}
        self._process = subprocess.Popen(
            command, stdin=inside, stdout=inside, stderr=inside, env=environment
        )
        os.close(inside)
        self.pid = self._process.pid
        self.seen = b""

    def press(self, keys: str) -> None:
        self.send(keys.encode())

    def send(self, content: bytes) -> None:
        os.write(self._file, content)

    def wait_for(self, *signs: bytes) -> None:
        """Read until all of these were written."""
        while not all(sign in self.seen for sign in signs):
            assert self._read(), f"it ended, and no {signs} in {self.seen[-300:]!r}"

    def wait_for_end(self) -> int:
        """Read until the program has ended; returns its exit code, or minus the signal that killed
        it.
        """
        while self._read():
            pass
        return self._process.wait()

    def vanish(self) -> int:
        """Close the terminal under the program, as a lost connection does; returns how the program
        ended.
        """
        os.close(self._file)
        self._file = -1
        return self._process.wait(SECONDS)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._file >= 0:
            os.close(self._file)

    def _read(self) -> bool:
        """Take what was written; False when everybody who could write has gone."""
        assert select.select([self._file], [], [], SECONDS)[0], (
            f"silent for {SECONDS:.0f} s after {self.seen[-300:]!r}"
        )
        try:
            text = os.read(self._file, 1 << 16)
        except OSError:
            return False
        self.seen += text
        return bool(text)


@contextmanager
def kmint() -> Iterator[Terminal]:
    terminal = Terminal()
    try:
        terminal.wait_for(b"Doctor", b"Palette")
        yield terminal
    finally:
        terminal.close()


def quits(terminal: Terminal) -> None:
    terminal.press("\x11")


def terminates(terminal: Terminal) -> None:
    os.kill(terminal.pid, signal.SIGTERM)


def hangs_up(terminal: Terminal) -> None:
    os.kill(terminal.pid, signal.SIGHUP)


@pytest.mark.parametrize(
    ("end", "code"),
    [(quits, 0), (terminates, 128 + signal.SIGTERM), (hangs_up, 128 + signal.SIGHUP)],
)
def test_the_terminal_is_given_back(end: Callable[[Terminal], None], code: int) -> None:
    with kmint() as terminal:
        end(terminal)
        assert terminal.wait_for_end() == code
        assert terminal.seen.count(ENTER) == terminal.seen.count(LEAVE) == 1
        assert terminal.seen.rindex(LEAVE) > terminal.seen.rindex(ENTER)
        assert SHOW_CURSOR in terminal.seen[terminal.seen.rindex(LEAVE) :]
        assert b"Traceback" not in terminal.seen


def test_garbage_from_the_terminal_ends_nothing() -> None:
    """A pasted binary file, and keys of a terminal that does not speak UTF-8."""
    garbage = bytes(byte for byte in range(128, 256)) * 8
    with kmint() as terminal:
        terminal.send(b"\x1b[200~" + garbage + b"\x1b[201~" + garbage)
        terminal.press("\x11")
        assert terminal.wait_for_end() == 0
        assert b"Traceback" not in terminal.seen


@pytest.mark.parametrize("name", [signal.SIGHUP, signal.SIGTERM])
def test_without_its_terminal_the_program_ends(name: signal.Signals) -> None:
    with kmint() as terminal:
        if name != signal.SIGHUP:
            os.kill(terminal.pid, name)
        # The terminal that goes sends SIGHUP, and which of two signals at once is seen first is
        # nobody's promise.
        assert terminal.vanish() in (128 + name, 128 + signal.SIGHUP)


def test_a_session_that_is_terminated_leaves_no_process() -> None:
    with kmint() as terminal:
        terminal.press(
            "\x1b[15~"
        )  # F5: mint the first operation of the form with the embedded smith
        terminal.wait_for(b"smith at work")
        children = processes_below(terminal.pid)
        assert children
        os.kill(terminal.pid, signal.SIGTERM)
        assert terminal.wait_for_end() == 128 + signal.SIGTERM
        assert not still_living(children)

"""The program on a real terminal (a pseudo-terminal): it is always given back as it was, and no process is left behind."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"
SHOW_CURSOR = b"\x1b[?25h"
SECONDS = 60.0


class Terminal:
    """`kmint` on a terminal of 80x24; `seen` is everything that it wrote."""

    def __init__(self, *arguments: str) -> None:
        self.pid, self._file = pty.fork()
        if self.pid == 0:
            environment = {**os.environ, "TERM": "xterm-256color"}
            os.execve(sys.executable, [sys.executable, "-m", "kmint_tui", *arguments], environment)
        fcntl.ioctl(self._file, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.modes = termios.tcgetattr(self._file)
        self.seen = b""
        self.status: int | None = None

    def press(self, keys: str) -> None:
        self.send(keys.encode())

    def send(self, content: bytes) -> None:
        os.write(self._file, content)

    def wait_for(self, *signs: bytes) -> None:
        """Read until all of these were written."""
        while not all(sign in self.seen for sign in signs):
            assert self._read(), f"no {signs} in {self.seen[-300:]!r}"

    def wait_for_end(self) -> int:
        """Read until the program has ended; returns its exit code, or minus the signal that killed it."""
        while self._read():
            pass
        self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.status

    def vanish(self) -> int:
        """Close the terminal under the program, as a lost connection does; returns how the program ended."""
        watched = os.pidfd_open(self.pid)
        os.close(self._file)
        self._file = -1
        ended, _, _ = select.select([watched], [], [], SECONDS)
        os.close(watched)
        assert ended, "the program lives on without a terminal"
        self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.status

    def close(self) -> None:
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        if self._file >= 0:
            os.close(self._file)

    def _read(self) -> bool:
        if not select.select([self._file], [], [], SECONDS)[0]:
            return False
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


@pytest.mark.parametrize(("end", "code"), [(quits, 0), (terminates, 128 + signal.SIGTERM), (hangs_up, 128 + signal.SIGHUP)])
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
        # The terminal that goes sends SIGHUP, and which of two signals at once is seen first is nobody's promise.
        assert terminal.vanish() in (128 + name, 128 + signal.SIGHUP)


def test_a_session_that_is_terminated_leaves_no_process() -> None:
    with kmint() as terminal:
        terminal.press("\x1b[15~")  # F5: mint the first operation of the form with the embedded smith
        terminal.wait_for(b"smith at work")
        lists = [(task / "children").read_text() for task in Path(f"/proc/{terminal.pid}/task").iterdir()]
        children = {int(child) for one in lists for child in one.split()}
        assert children
        os.kill(terminal.pid, signal.SIGTERM)
        assert terminal.wait_for_end() == 128 + signal.SIGTERM
        assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]

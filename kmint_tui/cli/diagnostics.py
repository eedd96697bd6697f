"""The only writer to stderr, and the exit codes.

Errors come as one short block: what went wrong, and the fix when one is known. A traceback is shown only with `--debug`;
otherwise it goes to a log file, whose path is shown.
"""

from __future__ import annotations

import sys
import time
import traceback
from enum import IntEnum
from typing import Self

from kmint_tui import __version__, paths
from kmint_tui.cli.streams import drop
from kmint_tui.cli.style import paint
from kmint_tui.errors import EnvironmentUnfit, KmintError, ModelError, StorageError, TimedOut, UsageError


class ExitCode(IntEnum):
    """What kmint's exit status means; the meanings are shown in `--help` and in the README."""

    meaning: str

    DONE = 0, "a kernel passed, or the work is done"
    NOTHING_PASSED = 1, "it ran, and nothing passed"
    USAGE = 2, "wrong request or wrong configuration"
    ENVIRONMENT = 3, "this machine or installation cannot do it"
    MODEL = 4, "model missing, corrupt, or refused because offline"
    TIMEOUT = 5, "a part did not answer in time"
    STORAGE = 6, "no space, or cannot write"
    INTERNAL = 70, "a fault in kmint itself"
    INTERRUPTED = 130, "stopped with Ctrl-C"

    def __new__(cls, value: int, meaning: str) -> Self:
        member = int.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member


_CODES: tuple[tuple[type[KmintError], ExitCode], ...] = (
    (UsageError, ExitCode.USAGE),
    (EnvironmentUnfit, ExitCode.ENVIRONMENT),
    (ModelError, ExitCode.MODEL),
    (TimedOut, ExitCode.TIMEOUT),
    (StorageError, ExitCode.STORAGE),
)


def exit_code(error: KmintError) -> ExitCode:
    """The exit code an error ends with."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), ExitCode.INTERNAL)


class Diagnostics:
    """Writes errors, notes, hints and progress. `quiet` drops everything but errors."""

    def __init__(self, *, colour: bool = False, quiet: bool = False, live: bool = False) -> None:
        self.colour = colour
        self.quiet = quiet
        self.live = live
        self._block = 0

    def error(self, error: KmintError) -> None:
        """What went wrong and what to do about it."""
        self.clear()
        lines = f"{paint('error:', 'red', enabled=self.colour)} {error.title}: {error.message}\n"
        if error.fix:
            lines += f"{paint('  fix:', 'cyan', enabled=self.colour)} {error.fix}\n"
        self._write(lines)

    def note(self, text: str) -> None:
        """One line worth knowing."""
        if not self.quiet:
            self.clear()
            self._write(text + "\n")

    def hint(self, text: str) -> None:
        """What to do next."""
        if not self.quiet:
            self.clear()
            self._write(paint(text, "dim", enabled=self.colour) + "\n")

    def block(self, lines: list[str]) -> None:
        """Replace the live block on a terminal by `lines`; does nothing where stderr is not a terminal."""
        if self.quiet or not self.live:
            return
        back = f"\x1b[{self._block}A" if self._block else ""
        self._write(back + "".join(f"\r\x1b[2K{line}\n" for line in lines) + "\x1b[J")
        self._block = len(lines)

    def clear(self) -> None:
        """Remove the live block, so that what follows stands alone."""
        if self._block:
            self._write(f"\x1b[{self._block}A\x1b[J")
            self._block = 0

    def internal(self, error: BaseException, *, debug: bool) -> None:
        """A fault in kmint itself: one line and where the details are."""
        self.clear()
        details = "".join(traceback.format_exception(error))
        if debug:
            self._write(details)
        else:
            where = _write_log(details)
            what = f"internal fault: {type(error).__name__}: {_one_line(error)}"
            self._write(f"{paint('error:', 'red', enabled=self.colour)} {what}{where}\n")

    @staticmethod
    def _write(text: str) -> None:
        # Nobody reading what is said on the way is no reason to give up the work.
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except OSError:
            drop(sys.stderr)


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 200 else text[:197] + "..."


def _write_log(details: str) -> str:
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    try:
        path = paths.private_dir(paths.log_dir()) / f"fault-{stamp}.log"
        path.write_text(f"kmint {__version__}, Python {sys.version.split()[0]}\n{' '.join(sys.argv)}\n\n{details}", encoding="utf-8")
    except (OSError, StorageError):
        return " (run again with --debug for the details)"
    return f"\n  log: {path}"

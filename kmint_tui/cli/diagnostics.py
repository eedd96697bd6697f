"""The only writer to stderr.

An error is one short block: the problem, and the fix where there is one. A traceback goes to a log
file, whose path is shown; with `--debug` it goes to the terminal. No text steers the terminal
(`escapes.py`).
"""

from __future__ import annotations

import sys
import time
import traceback

from kmint_tui import __version__, paths
from kmint_tui.cli.streams import drop
from kmint_tui.cli.style import paint
from kmint_tui.errors import KmintError, StorageError
from kmint_tui.escapes import visible, visible_line


class Diagnostics:
    """Writes errors, notes, hints and progress. `quiet` drops everything but errors."""

    def __init__(self, *, colour: bool = False, quiet: bool = False, live: bool = False) -> None:
        self.colour = colour
        self.quiet = quiet
        self.live = live
        self._block = 0

    def error(self, error: KmintError) -> None:
        """Write an error and its fix."""
        self.clear()
        what = visible(f"{error.title}: {error.message}")
        lines = f"{paint('error:', 'red', enabled=self.colour)} {what}\n"
        if error.fix:
            lines += f"{paint('  fix:', 'cyan', enabled=self.colour)} {visible(error.fix)}\n"
        self._write(lines)

    def note(self, text: str) -> None:
        """Write one line."""
        if not self.quiet:
            self.clear()
            self._write(visible(text) + "\n")

    def hint(self, text: str) -> None:
        """Write a proposal for the next step."""
        if not self.quiet:
            self.clear()
            self._write(paint(visible(text), "dim", enabled=self.colour) + "\n")

    def block(self, lines: list[str]) -> None:
        """Replace the live block on a terminal by `lines`; does nothing where stderr is not a
        terminal.
        """
        if self.quiet or not self.live:
            return
        back = f"\x1b[{self._block}A" if self._block else ""
        self._write(back + "".join(f"\r\x1b[2K{visible_line(line)}\n" for line in lines) + "\x1b[J")
        self._block = len(lines)

    def clear(self) -> None:
        """Remove the live block, so that the next text stands alone."""
        if self._block:
            self._write(f"\x1b[{self._block}A\x1b[J")
            self._block = 0

    def internal(self, error: BaseException, *, debug: bool) -> None:
        """Write a fault in kmint itself: one line, and the place of the details."""
        self.clear()
        details = visible("".join(traceback.format_exception(error)))
        if debug:
            self._write(details)
        else:
            where = _write_log(details)
            what = f"internal fault: {type(error).__name__}: {visible(_one_line(error))}"
            self._write(f"{paint('error:', 'red', enabled=self.colour)} {what}{where}\n")

    @staticmethod
    def _write(text: str) -> None:
        # The work goes on even if the reader of its messages has gone away.
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
        head = (
            f"kmint {__version__}, Python {sys.version.split()[0]}\n{visible(' '.join(sys.argv))}"
        )
        path.write_text(f"{head}\n\n{details}", encoding="utf-8")
    except (OSError, StorageError):
        return " (run again with --debug for the details)"
    return f"\n  log: {path}"

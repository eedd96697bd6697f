"""Asking before something is lost: a yes on the terminal, or `--yes` where there is none."""

from __future__ import annotations

import sys

import click

from kmint_tui.errors import UsageError
from kmint_tui.escapes import visible_line


def ask(question: str, *, yes: bool) -> None:
    """Return after a yes, or at once where `yes` was given on the command line.

    Raises click.Abort after a no, and UsageError where there is no terminal to ask on.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("this needs a yes, and there is no terminal to ask on", fix="give --yes")
    click.confirm(visible_line(question), abort=True, err=True)

"""`--session`: verdicts from the session that runs instead of from a referee of this command."""

from __future__ import annotations

import click

session_option = click.option(
    "--session",
    "by_session",
    is_flag=True,
    help="Let the session of `kmint serve` judge; without one, judge in this process.",
)

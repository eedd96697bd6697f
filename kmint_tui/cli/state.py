"""What every command is told besides its own options: colour, debug, quiet, offline."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from typing import IO

from kmint_tui.cli.diagnostics import Diagnostics
from kmint_tui.cli.output import Output
from kmint_tui.cli.style import ColourChoice, colour_wanted

OFFLINE_VARIABLES = ("KMINT_OFFLINE", "HF_HUB_OFFLINE")


def offline_variable() -> str | None:
    """The environment variable that keeps kmint offline, or None."""
    return next((name for name in OFFLINE_VARIABLES if os.environ.get(name, "").lower() not in ("", "0", "false", "no", "off")), None)


@dataclass
class State:
    """Filled while the command line is read; commands read it through `click.pass_obj`."""

    stdout: IO[str] = field(default_factory=lambda: sys.stdout)
    colour: ColourChoice = "auto"
    debug: bool = False
    quiet: bool = False
    offline: bool = False

    @property
    def out(self) -> Output:
        """The writer to stdout."""
        return Output(colour=colour_wanted(self.colour, self.stdout, os.environ), stream=self.stdout)

    @property
    def err(self) -> Diagnostics:
        """A writer to stderr. Keep one per command: it remembers its live block."""
        live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        return Diagnostics(colour=colour_wanted(self.colour, sys.stderr, os.environ), quiet=self.quiet, live=live)

    @property
    def is_offline(self) -> bool:
        """True when the flag or the environment forbids the network."""
        return self.offline or offline_variable() is not None

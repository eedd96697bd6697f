"""The global options of every command: colour, debug, quiet, offline, sandbox."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING

from kmint_tui.cli.streams import ColourChoice, Diagnostics, Output, colour_wanted
from kmint_tui.core.offline import offline_variable

if TYPE_CHECKING:
    from referee.sandbox.demand import Demand


@dataclass
class State:
    """The global options; commands get it through `click.pass_obj`."""

    stdout: IO[str] = field(default_factory=lambda: sys.stdout)
    colour: ColourChoice = "auto"
    debug: bool = False
    quiet: bool = False
    offline: bool = False
    require_sandbox: bool = False
    allow_weak_sandbox: bool = False

    @property
    def out(self) -> Output:
        """The writer to stdout."""
        return Output(
            colour=colour_wanted(self.colour, self.stdout, os.environ), stream=self.stdout
        )

    @property
    def err(self) -> Diagnostics:
        """A writer to stderr. Keep one for each command: it remembers its live block."""
        live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        return Diagnostics(
            colour=colour_wanted(self.colour, sys.stderr, os.environ), quiet=self.quiet, live=live
        )

    @property
    def is_offline(self) -> bool:
        """True when the flag or the environment forbids the network."""
        return self.offline or offline_variable() is not None

    def demand(self) -> Demand:
        """The layers of the sandbox that this command requires. Raises UsageError, ConfigError."""
        from kmint_tui.core.referee import demand

        return demand(require=self.require_sandbox, allow_weak=self.allow_weak_sandbox)

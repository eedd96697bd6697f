"""`kmint mcp` and `kmint skill`: the doors for coding agents."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from types import FrameType

import click

from kmint_tui.cli.framework import RunsCandidates
from kmint_tui.cli.state import State
from kmint_tui.cli.termination import Terminated

_READER = "AnyIO"
"""How the threads are called that `mcp` reads with."""


@click.command(cls=RunsCandidates)
@click.option(
    "--folder",
    "folders",
    metavar="DIR",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Read and write files below this folder only; may be repeated.",
)
@click.option(
    "--allow-references",
    "references",
    is_flag=True,
    help="Let the agent judge by PyTorch files below the folders. They run as you, outside the sandbox.",
)
@click.pass_obj
def mcp(state: State, folders: tuple[Path, ...], references: bool) -> None:
    """Serve kmint's tools to a coding agent, as an MCP server over standard input and output.

    \b
      kmint mcp --folder ~/kernels

    An MCP client starts this command; `docs/agents.md` shows how. The tools list and show
    operations, judge and explain kernels, look into the history, save, tune and mint. Resources
    hold pages of the documentation, and receipts below the folders. Without --folder no file is
    read or written. It needs `pip install 'kmint[mcp]'`.
    """
    from kmint_tui.agent.folders import Folders
    from kmint_tui.agent.resources import Library
    from kmint_tui.agent.server import check_installed, serve
    from kmint_tui.agent.tools import Toolbox
    from kmint_tui.core.referee import judge_threads, open_referee

    check_installed()
    named = Folders.of(folders)
    # asyncio would take the usual handler's place, and then wait for a thread that reads standard
    # input.
    signal.signal(signal.SIGINT, _interrupt)
    try:
        with open_referee(state.demand(), state.err.note) as referee:
            toolbox = Toolbox(referee, named, references=references)
            serve(toolbox, Library(named), state.stdout, threads=judge_threads())
    except (KeyboardInterrupt, Terminated) as stopped:
        # A thread waits for the next line of standard input, and no signal ends that. The others
        # are waited for.
        for thread in threading.enumerate():
            if (
                thread is not threading.current_thread()
                and not thread.daemon
                and not thread.name.startswith(_READER)
            ):
                thread.join()
        os._exit(130 if isinstance(stopped, KeyboardInterrupt) else 128 + stopped.number)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt

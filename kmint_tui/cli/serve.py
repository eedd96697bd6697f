"""`kmint serve`: a warm referee for the other commands of this user."""

from __future__ import annotations

from dataclasses import asdict

import click

from kmint_tui.cli.framework import Amount, RunsCandidates
from kmint_tui.cli.state import State
from kmint_tui.errors import UsageError

IDLE_SECONDS = 1800.0


@click.command(cls=RunsCandidates)
@click.option(
    "--idle",
    metavar="SECONDS",
    type=Amount(0, min_open=True),
    default=IDLE_SECONDS,
    show_default=True,
    help="End after this long without a request.",
)
@click.option("--status", "show", is_flag=True, help="Show the session that runs.")
@click.option("--stop", is_flag=True, help="End the session that runs.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="With --status: one JSON document (kmint.service-status/1).",
)
@click.pass_obj
def serve(state: State, idle: float, show: bool, stop: bool, as_json: bool) -> None:
    """Keep a referee warm for `judge`, `mint` and `verify` with `--session`.

    \b
      kmint serve &
      kmint judge softmax.py --session
      kmint serve --stop

    The session listens at a Unix socket that only you can open, and at no network address. It
    judges for several commands in turn, and ends after --idle seconds without a request. Exit code
    2 means that a session runs already, 3 that --status or --stop found none.
    """
    if show and stop:
        raise UsageError("--status and --stop exclude each other", fix="leave one of them out")
    if show or stop:
        _ask(state, stop=stop, as_json=as_json)
    elif as_json:
        raise UsageError("--json is for --status", fix="`kmint serve --status --json`")
    else:
        _serve(state, idle)


def _ask(state: State, *, stop: bool, as_json: bool) -> None:
    from kmint_tui.service.client import session
    from kmint_tui.service.place import socket_file

    with session() as opened:
        status, hello = opened.status(stop=stop), opened.hello
    if stop:
        state.err.note(f"the session of process {status.pid} ends")
        return
    content = {
        "socket": str(socket_file()),
        "demand": hello.demand,
        "mode": hello.mode,
        **asdict(status),
    }
    if as_json:
        state.out.document("kmint.service-status/1", content)
    else:
        state.out.pairs([(name.replace("_", " "), str(value)) for name, value in content.items()])


def _serve(state: State, idle: float) -> None:
    from kmint_tui.core.referee import judge_threads, open_referee
    from kmint_tui.service.place import listening, socket_file
    from kmint_tui.service.server import Server

    wanted = state.demand()
    with listening() as listener, open_referee(wanted, state.err.note) as referee:
        server = Server(
            referee,
            threads=judge_threads(),
            idle=idle,
            demand=wanted,
            mode=referee.mode,
            no_gpu=referee.no_gpu,
        )
        state.err.note(
            f"the session listens at {socket_file()}; Ctrl-C or `kmint serve --stop` ends it"
        )
        server.run(listener)
    state.err.note("the session has ended")

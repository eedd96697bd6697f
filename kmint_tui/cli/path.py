"""`kmint path`: where kmint keeps things."""

from __future__ import annotations

import click

from kmint_tui import paths
from kmint_tui.cli.framework import Command
from kmint_tui.cli.state import State


@click.command(cls=Command)
@click.argument("what", metavar="[WHAT]", required=False, type=click.Choice(list(paths.PLACES)))
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.path/1).")
@click.pass_obj
def path(state: State, what: str | None, as_json: bool) -> None:
    """Show where kmint keeps things; nothing is created by asking.

    WHAT is one of config, config-file, data, models, history, cache and logs; without it all are shown.

    KMINT_HOME moves everything below one folder, KMINT_MODELS_DIR the models alone.
    """
    wanted = [what] if what else list(paths.PLACES)
    places = {name: str(paths.PLACES[name]()) for name in wanted}
    if as_json:
        state.out.document("kmint.path/1", {"paths": places})
    elif what:
        state.out.text(places[what])
    else:
        state.out.pairs(list(places.items()))

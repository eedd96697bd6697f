"""`kmint path`: where kmint keeps things."""

from __future__ import annotations

import click

from kmint_tui import paths
from kmint_tui.cli.framework import Command
from kmint_tui.cli.state import State


@click.command(cls=Command)
@click.argument(
    "place",
    metavar="[PLACE]",
    required=False,
    type=click.Choice(list(paths.PLACES)),
    help="One place, of config, config-file, data, models, history, cache and logs; by default all.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.path/1).")
@click.pass_obj
def path(state: State, place: str | None, as_json: bool) -> None:
    """Show where kmint keeps things; nothing is created by asking.

    PLACE is one of config, config-file, data, models, history, cache and logs; without it all are
    shown.

    KMINT_HOME moves everything below one folder, KMINT_MODELS_DIR the models alone.
    """
    wanted = [place] if place else list(paths.PLACES)
    places = {name: str(paths.PLACES[name]()) for name in wanted}
    if as_json:
        state.out.document("kmint.path/1", {"paths": places})
    elif place:
        state.out.text(places[place])
    else:
        state.out.pairs(list(places.items()))

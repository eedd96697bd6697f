"""`kmint models prompt`, and `kmint models show ID --prompt`: the prompt that a model's card gives."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kmint_tui import paths
from kmint_tui.cli.framework import Command
from kmint_tui.cli.model_ids import complete_model
from kmint_tui.cli.state import State
from kmint_tui.errors import ModelError

if TYPE_CHECKING:
    from kmint_tui.models.cards import Card
    from kmint_tui.models.registry import ModelEntry


@click.command("prompt", cls=Command)
@click.argument(
    "model",
    metavar="ID",
    shell_complete=complete_model,
    help="A model; `kmint models ls` lists them.",
)
@click.option(
    "--card",
    "source",
    metavar="FILE",
    required=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The README.md of the adapter's repository.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.prompt/1).")
@click.pass_obj
def set_prompt(state: State, model: str, source: Path, as_json: bool) -> None:
    """Take a model's prompt from its card, a file that was fetched by other means.

    \b
      kmint models prompt minicpm5-1b --card README.md
    """
    from kmint_tui.models import cards, registry

    entry = registry.load(paths.user_models_file()).get(model)
    _show(state, entry, cards.keep(entry, source), as_json=as_json)


def show_prompt(state: State, entry: ModelEntry, *, as_json: bool) -> None:
    """Print the prompt of a model's stored card. Raises ModelError when there is none."""
    from kmint_tui.models import cards

    card = cards.stored_card(entry.id)
    if card is None:
        way = "`kmint models pull` fetches it, or " if entry.card else ""
        raise ModelError(
            f"no card of {entry.id} is in the store, so kmint's own words are used",
            fix=f"{way}give it with `kmint models prompt {entry.id} --card FILE`",
        )
    _show(state, entry, card, as_json=as_json)


def _show(state: State, entry: ModelEntry, card: Card, *, as_json: bool) -> None:
    prompt = card.prompt
    shape = prompt.build("OPERATION", "run(ARGUMENTS) -> RESULT", "DESCRIPTION")
    if as_json:
        content = {
            "id": entry.id,
            "path": str(card.path),
            "sha256": prompt.sha256,
            "source": card.source,
            "system": prompt.system,
            "user": shape.user,
            "example_op": prompt.example_op,
            "example": prompt.example,
        }
        state.out.document("kmint.prompt/1", content)
        return
    pairs = [("card", str(card.path)), ("source", card.source), ("sha256", prompt.sha256)]
    state.out.pairs([*pairs, ("example kernel", prompt.example_op or "without a name")])
    for heading, text in (("system", prompt.system), ("user", shape.user)):
        state.out.text("")
        state.out.heading(heading)
        state.out.text(text)

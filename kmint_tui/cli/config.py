"""`kmint config show` and `kmint config validate`: the settings, and where each comes from."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

import click

from kmint_tui import paths
from kmint_tui.cli.framework import LazyGroup
from kmint_tui.cli.state import State
from kmint_tui.cli.streams import Table
from kmint_tui.config import Config, dotted, load
from kmint_tui.errors import ConfigError, UsageError


@click.group(cls=LazyGroup, invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.config/1).")
@click.pass_context
def config(context: click.Context, as_json: bool) -> None:
    """Show or check the settings; alone it shows them."""
    if context.invoked_subcommand is None:
        context.invoke(show, as_json=as_json)


@config.command("show")
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.config/1).")
@click.pass_obj
def show(state: State, as_json: bool) -> None:
    """Show every setting, its value and where it comes from."""
    path = paths.config_file()
    loaded = load(path)
    values = {dotted(name): value for name, value in asdict(loaded.config).items()}
    if as_json:
        settings = {
            name: {"value": value, "origin": loaded.origins[name]} for name, value in values.items()
        }
        state.out.document("kmint.config/1", {"file": str(path), "settings": settings})
        return
    helps = {dotted(item.name): item.metadata["help"] for item in fields(Config)}
    rows = [
        (name, _shown(value), loaded.origins[name], helps[name]) for name, value in values.items()
    ]
    state.out.table(Table(("setting", "value", "origin", "meaning"), rows))


@config.command("validate")
@click.pass_obj
def validate(state: State) -> None:
    """Check the settings file; say what is wrong and exit 2 if something is."""
    path = paths.config_file()
    target = load(path).config.mint_target
    if target is not None:
        from kmint_tui.core.referee import check_target

        try:
            check_target(target)
        except UsageError as error:
            raise ConfigError(f"{path}: mint.target: {error.message}") from error
    state.out.text(
        f"{path}: ok" if path.exists() else f"{path}: absent, built-in settings are used"
    )


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return str(value).lower() if isinstance(value, bool) else str(value)

"""Ids of models for shell completion."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kmint_tui import paths

if TYPE_CHECKING:
    import click
    from click.shell_completion import CompletionItem


def complete_model(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completions for a model's id."""
    from click.shell_completion import CompletionItem

    from kmint_tui.models import registry

    entries = registry.load(paths.user_models_file()).entries
    return [
        CompletionItem(entry.id, help=entry.title)
        for entry in entries
        if entry.id.startswith(incomplete)
    ]


def complete_stored(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completions for a model's id, and for a checkpoint that a conversion fetched."""
    from click.shell_completion import CompletionItem

    from kmint_tui.models.checkpoints import fetched

    items = [
        CompletionItem(item.repo, help="fetched for kmint convert")
        for item in fetched()
        if item.repo.startswith(incomplete)
    ]
    return complete_model(context, parameter, incomplete) + items

"""Operation names on the command line: looked up, completed, and refused with the nearest known names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from click.shell_completion import CompletionItem

from kmint_tui.errors import UsageError

if TYPE_CHECKING:
    import click

    from referee.ops import Op


def operation(name: str) -> Op:
    """The op of that name. Raises UsageError naming the nearest ones."""
    from referee.ops import UnknownOp, get

    try:
        return get(name)
    except UnknownOp as unknown:
        nearest = ", ".join(unknown.nearest)
        fix = f"did you mean {nearest}?" if nearest else "`kmint ops` lists them all"
        raise UsageError(f"no operation is called {name!r}", fix=fix, title="unknown operation") from None


def complete_operation(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Completions for an operation's name."""
    from referee.ops import catalogue

    return [CompletionItem(op.name, help=op.title) for op in catalogue() if op.name.startswith(incomplete)]

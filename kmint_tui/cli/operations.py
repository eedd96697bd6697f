"""Operations on the command line: resolved by name or by words, completed, refused with the
nearest known names."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from kmint_tui.cli.state import State
from kmint_tui.core.task import operation


class Operation(click.ParamType[str]):
    """An operation, by its name or by words such as "rmsnorm residual silu"; its value is the
    operation's name.

    A note on stderr says which operation the words were taken for.
    """

    name = "operation"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        op = operation(value)
        if op.name != value and ctx is not None and not ctx.resilient_parsing:
            ctx.ensure_object(State).err.note(f"{value!r} is taken for {op.name}: {op.title}")
        return op.name


OPERATION = Operation()


def complete_operation(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completions for an operation's name."""
    from referee.ops import listed

    return [
        CompletionItem(op.name, help=op.title) for op in listed() if op.name.startswith(incomplete)
    ]

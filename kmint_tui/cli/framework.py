"""The shape every command shares: common options, commands loaded on demand, "did you mean".

A `LazyGroup` knows the one-line help of its commands without importing them, so that `kmint --help` stays fast.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from kmint_tui.cli.state import State
from kmint_tui.cli.streams import data_only


@dataclass(frozen=True)
class Lazy:
    """Where a command lives (`module:attribute`) and its one-line help."""

    target: str
    help: str


def _common(names: list[str], attribute: str, text: str, **kwargs: Any) -> click.Option:
    def store(context: click.Context, _: click.Parameter, value: Any) -> None:
        if value not in (None, False):
            setattr(context.ensure_object(State), attribute, value)

    return click.Option(names, expose_value=False, is_eager=True, callback=store, help=text, **kwargs)


def common_options() -> list[click.Parameter]:
    """The options that every command takes, wherever they stand on the line."""
    colours = click.Choice(["auto", "always", "never"])
    return [
        _common(["--color", "--colour"], "colour", "When to use colour.", type=colours),
        _common(["--quiet", "-q"], "quiet", "Only errors on stderr.", is_flag=True),
        _common(["--debug"], "debug", "Show tracebacks.", is_flag=True),
        _common(["--offline"], "offline", "Open no network connection.  [env: KMINT_OFFLINE]", is_flag=True),
    ]


class Amount(click.FloatRange):
    """A number within bounds. NaN, which click lets through every bound, is refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if number != number:
            self.fail(f"{value} is not a number.", param, ctx)
        return number


class Command(click.Command):
    """A command with the common options."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs["params"] = [*(kwargs.get("params") or []), *common_options()]
        super().__init__(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Run it. Raises RuntimeError when a user's reference or a library calls `exit`: its 0 must not stand for a pass."""
        try:
            with data_only():
                return super().invoke(ctx)
        except SystemExit as left:
            raise RuntimeError(f"something that kmint called ended the process with {left.code!r}") from left


class LazyGroup(click.Group):
    """A group whose commands are imported only when they are called or asked for help."""

    command_class = Command

    def __init__(self, *args: Any, lazy: Mapping[str, Lazy] | None = None, **kwargs: Any) -> None:
        kwargs["params"] = [*(kwargs.get("params") or []), *common_options()]
        super().__init__(*args, **kwargs)
        self.lazy = dict(lazy or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), *self.lazy]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        lazy = self.lazy.get(cmd_name)
        if lazy is None:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = lazy.target.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and name not in self.list_commands(ctx):
            near = difflib.get_close_matches(name, self.list_commands(ctx), n=2)
            hint = f" Did you mean {' or '.join(repr(n) for n in near)}?" if near else ""
            ctx.fail(f"no such command {name!r}.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own = [(name, super(LazyGroup, self).get_command(ctx, name)) for name in super().list_commands(ctx)]
        rows = [(name, command.get_short_help_str(80)) for name, command in own if command is not None and not command.hidden]
        rows += [(name, lazy.help) for name, lazy in self.lazy.items()]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

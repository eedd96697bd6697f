"""The shape every command shares: common options, commands loaded on demand, "did you mean".

A `LazyGroup` knows the one-line help of its commands without importing them, so that `kmint --help`
stays fast.
"""

from __future__ import annotations

import difflib
import importlib
import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from kmint_tui.cli.state import State
from kmint_tui.cli.streams import data_only

_DRAFT = re.compile(r"\d{1,9}(?:\.\d{1,9})?")
"""Ids that only the history's commands take: a session such as 12, or a draft such as 12.3."""


@dataclass(frozen=True)
class Lazy:
    """The place of a command (`module:attribute`) and its one-line help."""

    target: str
    help: str


def _common(names: list[str], attribute: str, text: str, **kwargs: Any) -> click.Option:
    def store(context: click.Context, _: click.Parameter, value: Any) -> None:
        if value not in (None, False):
            setattr(context.ensure_object(State), attribute, value)

    return click.Option(
        names, expose_value=False, is_eager=True, callback=store, help=text, **kwargs
    )


def common_options() -> list[click.Parameter]:
    """The options that every command takes, wherever they stand on the line."""
    colours = click.Choice(["auto", "always", "never"])
    return [
        _common(["--color", "--colour"], "colour", "When to use colour.", type=colours),
        _common(["--quiet", "-q"], "quiet", "Only errors on stderr.", is_flag=True),
        _common(["--debug"], "debug", "Show tracebacks.", is_flag=True),
        _common(
            ["--offline"],
            "offline",
            "Open no network connection.  [env: KMINT_OFFLINE]",
            is_flag=True,
        ),
    ]


def sandbox_options() -> list[click.Parameter]:
    """The options of every command that runs candidates."""
    return [
        _common(
            ["--require-sandbox"],
            "require_sandbox",
            "Refuse where a layer of the sandbox is missing.  [env: KMINT_REQUIRE_SANDBOX]",
            is_flag=True,
        ),
        _common(
            ["--allow-weak-sandbox"],
            "allow_weak_sandbox",
            "Run kernels also where nothing keeps them from your files.  [env: KMINT_ALLOW_WEAK_SANDBOX]",
            is_flag=True,
        ),
    ]


class Amount(click.FloatRange):
    """A number within bounds. It refuses NaN, which click lets through every bound."""

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

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does. Raises BadOptionUsage where another option stands in the place of an
        option's value.
        """
        self._check_values(ctx, args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise

    def _check_values(self, ctx: click.Context, args: list[str]) -> None:
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        names = {name for option in options for name in (*option.opts, *option.secondary_opts)}
        valued = {name for option in options if not option.is_flag for name in option.opts}
        for option, value in itertools.pairwise(itertools.takewhile(lambda arg: arg != "--", args)):
            if option in valued and value in names:
                raise click.BadOptionUsage(
                    option, f"option {option!r} requires an argument.", ctx=ctx
                )

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, after a sweep of the files that killed runs left.

        Raises RuntimeError when a user's reference or a library calls `exit`: its 0 must not stand
        for a pass.
        """
        from kmint_tui import leftovers

        leftovers.begin()
        try:
            with data_only():
                return super().invoke(ctx)
        except SystemExit as left:
            raise RuntimeError(
                f"something that kmint called ended the process with {left.code!r}"
            ) from left


class RunsCandidates(Command):
    """A command that runs candidates; its options say which layers of the sandbox must be active."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs["params"] = [*(kwargs.get("params") or []), *sandbox_options()]
        super().__init__(*args, **kwargs)


class LazyGroup(click.Group):
    """A group that imports a command only when the user calls it or requests its help."""

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

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and name not in self.list_commands(ctx):
            groups = self._groups_with(ctx, name)
            drafts = [one for one in args[1:] if _DRAFT.fullmatch(one)]
            if groups[:1] == ["history"] and drafts and name != "export":
                groups, name = ["history"], " ".join((name, *drafts))
            below = [f"`{ctx.command_path} {group} {name}`" for group in groups]
            near = below or [
                repr(near) for near in difflib.get_close_matches(name, self.list_commands(ctx), n=2)
            ]
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            ctx.fail(f"no such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)

    def _groups_with(self, ctx: click.Context, name: str) -> list[str]:
        """The groups that have a command of that name; the history first, which holds everything
        that was minted.
        """
        groups = {group: self.get_command(ctx, group) for group in self.list_commands(ctx)}
        found = [
            group
            for group, one in groups.items()
            if isinstance(one, click.Group) and name in one.list_commands(ctx)
        ]
        return sorted(found, key=lambda group: group != "history")

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own = [
            (name, super(LazyGroup, self).get_command(ctx, name))
            for name in super().list_commands(ctx)
        ]
        rows = [
            (name, command.get_short_help_str(80))
            for name, command in own
            if command is not None and not command.hidden
        ]
        rows += [(name, lazy.help) for name, lazy in self.lazy.items()]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

"""docs/cli.md: every command, argument and option, read from the commands themselves."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

from kmint_tui.cli.framework import LazyGroup, common_options
from kmint_tui.cli.main import COMMANDS, kmint

_HEAD = """# Commands

This page is generated from the code by `python -m docs.generate`. `kmint COMMAND --help` prints the
same.
[Places and exit codes](places-and-exit-codes.md) has a page of its own.

"""


def walk(group: click.Command = kmint, path: str = "kmint") -> Iterator[tuple[str, click.Command]]:
    """Every command with the words that call it, groups before what is in them."""
    yield path, group
    if isinstance(group, LazyGroup):
        context = click.Context(group, info_name=path)
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None
            yield from walk(command, f"{path} {name}")


def command_page() -> str:
    """The whole page."""
    common = "\n".join(
        _option(click.Context(kmint), option)
        for option in common_options()
        if isinstance(option, click.Option)
    )
    sections = [_section(path, command) for path, command in walk() if path != "kmint"]
    return (
        f"{_HEAD}{command_table()}\nEvery command takes these options too:\n\n{common}\n\n"
        + "\n".join(sections)
    )


def command_table() -> str:
    """A table of the commands with one line each."""
    rows = [
        f"| [`kmint {name}`](cli.md#kmint-{name}) | {lazy.help} |"
        for name, lazy in COMMANDS.items()
    ]
    return "\n".join(("| command | does |", "|---|---|", *rows)) + "\n"


def _section(path: str, command: click.Command) -> str:
    context = click.Context(command, info_name=path)
    depth = "#" * (1 + path.count(" "))
    usage = f"{path} {' '.join(command.collect_usage_pieces(context))}"
    arguments = [param for param in command.params if isinstance(param, click.Argument)]
    shared = {name for option in common_options() for name in option.opts}
    options = [
        param
        for param in command.params
        if isinstance(param, click.Option) and not shared & set(param.opts)
    ]
    lines = [f"{depth} {path}", "", "```text", usage, "```", "", _described(command)]
    if arguments:
        lines += [
            "",
            *(f"- `{argument.make_metavar(context)}`: {argument.help}" for argument in arguments),
        ]
    if options:
        lines += ["", *(_option(context, option) for option in options)]
    return "\n".join(lines) + "\n"


def _described(command: click.Command) -> str:
    """The help as Markdown: paragraphs, and what click keeps line by line as a block of its own."""
    parts = re.split(r"\n\s*\n", inspect.cleandoc(command.help or ""))
    return "\n\n".join(
        _block(part) if part.startswith("\b") else " ".join(part.split()) for part in parts
    )


def _block(part: str) -> str:
    lines = [line.removeprefix("  ") for line in part.splitlines()[1:]]
    return "\n".join(("```text", *lines, "```"))


def _option(context: click.Context, option: click.Option) -> str:
    record = option.get_help_record(context)
    assert record is not None
    names, text = record
    return f"- `{names}`: {' '.join(text.split())}"

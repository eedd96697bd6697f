"""`kmint completion SHELL`: the script that makes the shell complete commands, operations and ids."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from kmint_tui.cli.framework import Command
from kmint_tui.cli.state import State
from kmint_tui.errors import EnvironmentUnfit


@click.command(cls=Command)
@click.argument(
    "shell",
    metavar="bash|zsh|fish",
    type=click.Choice(["bash", "zsh", "fish"]),
    help="The shell to complete for.",
)
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    \b
      kmint completion bash > ~/.local/share/bash-completion/completions/kmint
      kmint completion zsh > ~/.zfunc/_kmint             with ~/.zfunc in fpath before compinit
      kmint completion fish > ~/.config/fish/completions/kmint.fish
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise EnvironmentUnfit(f"the installed click cannot complete for {shell}")
    script = kind(context.find_root().command, {}, "kmint", "_KMINT_COMPLETE").source()
    context.ensure_object(State).out.text(script)

"""`kmint skill`: a file that tells a coding agent how to use kmint."""

from __future__ import annotations

from pathlib import Path

import click

from kmint_tui import paths
from kmint_tui.cli.framework import Command
from kmint_tui.cli.state import State
from kmint_tui.errors import UsageError, storage_error

NAME = "SKILL.md"
_MOST_BYTES = 1 << 20


@click.command(cls=Command)
@click.option(
    "--install",
    "folder",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Write SKILL.md into DIR.  [default: print it]",
)
@click.option(
    "--force", is_flag=True, help="Overwrite a SKILL.md that is not kmint's, or that was edited."
)
@click.pass_obj
def skill(state: State, folder: Path | None, force: bool) -> None:
    """Show or install the skill file for coding agents: the loop judge, explain, repair, save.

    \b
      kmint skill --install .claude/skills/kmint
    """
    text = skill_text()
    if folder is None:
        if force:
            raise UsageError("--force is for --install", fix="kmint skill --install DIR --force")
        state.out.content(text)
        return
    state.out.text(str(_installed(paths.expanded(folder) / NAME, text, force)))


def skill_text() -> str:
    """The skill file of this version of kmint."""
    from importlib import resources

    return resources.files("kmint_tui.agent").joinpath(NAME).read_text(encoding="utf-8")


def _installed(path: Path, text: str, force: bool) -> Path:
    """Write the file, unless that would lose another one. Raises UsageError or StorageError."""
    from convert import files

    try:
        if path.parent.exists() and not path.parent.is_dir():
            raise UsageError(f"{path.parent} is not a folder", fix="name a folder")
        if (
            not force
            and path.exists()
            and files.read_plain(path, most_bytes=_MOST_BYTES).decode("utf-8", "replace") != text
        ):
            raise UsageError(
                f"{path} holds another text",
                fix="compare it with `kmint skill`, then use --force to overwrite it",
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_text(path, text)
    except files.NoPlainFile as error:
        raise UsageError(
            f"{path} cannot be replaced: {error}", fix="remove it, or name another folder"
        ) from error
    except OSError as error:
        raise storage_error(path, error) from error
    return path

"""The `kmint` command that does what the interface is about to do, so that it can be copied into a script."""

from __future__ import annotations

import shlex
from pathlib import Path

from kmint_tui.cli.planning import Wishes


def mint(wishes: Wishes) -> str:
    """The command of a session; an unset seed stays unset, as kmint then draws one."""
    words = ["mint"]
    if wishes.op:
        words.append(wishes.op)
    options = {
        "--reference": wishes.reference,
        "--model": wishes.model,
        "--drafts": wishes.drafts,
        "--seed": wishes.seed,
        "--until": wishes.until if wishes.until != "best" else None,
        "--repair": wishes.repair or None,
        "--target": wishes.target,
    }
    for name, value in options.items():
        if value is not None:
            words += [name, str(value)]
    if wishes.tune:
        words.append("--tune")
    return command(*words)


def save(draft: str, folder: Path | str, reference: str | None = None) -> str:
    """The command that saves a draft; `reference` is the own one it was minted by."""
    return command("save", draft, "--to", str(folder), *(["--reference", reference] if reference else []))


def command(*words: str) -> str:
    """A `kmint` command of these words, quoted for a shell."""
    return shlex.join(["kmint", *words])

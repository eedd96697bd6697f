"""The `kmint` command that does the same as a screen of the application, for use in a script."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from kmint_tui.book.records import Entry
from kmint_tui.core.planning import MintOptions
from referee.reference.asked import Asked


def mint(options: MintOptions) -> str:
    """The command of a session; an unset seed stays unset, as kmint then draws one."""
    words = ["mint"]
    if options.op:
        words.append(options.op)
    if options.reference:
        words += options.reference.words()
    for shape in options.shapes:
        words += ["--shape", shape]
    values = {
        "--dtype": options.dtype,
        "--model": options.model,
        "--drafts": options.drafts,
        "--seed": options.seed,
        "--until": options.until if options.until != "best" else None,
        "--repair": options.repair or None,
        "--target": options.target,
    }
    for name, value in values.items():
        if value is not None:
            words += [name, str(value)]
    if options.tune:
        words.append("--tune")
    if not options.template:
        words.append("--no-template")
    return command(*words)


def save(draft: str, folder: Path | str, reference: Asked | None = None) -> str:
    """The command that saves a draft; `reference` is the own one it was minted by."""
    return command("save", draft, "--to", str(folder), *(reference.words() if reference else []))


def book(verb: str, entries: Sequence[Entry], *rest: str, device: str | None = None) -> str:
    """The command `kmint book VERB` for entries of one operation; at its shape for one alone."""
    words = ["book", verb, entries[0].op]
    if len(entries) == 1:
        words += ["--shape", f"{entries[0].shape}:{entries[0].dtype}"]
    return command(*words, *rest, *(["--device", device] if device is not None else []))


def command(*words: str) -> str:
    """A `kmint` command of these words, quoted for a shell."""
    return shlex.join(["kmint", *words])

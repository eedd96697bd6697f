"""Brings a GGUF or a bundle into the store, and removes a model again.

A file's header and digest identify it, never its path, its name or the text of a bundle. It is
linked by default and copied on request; a copy gets its name only when it is complete. Files that
kmint did not put into the store are never deleted.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from convert import files
from kmint_tui import paths
from kmint_tui.errors import ModelError, StorageError, UsageError, storage_error
from kmint_tui.models import bundle, cards, own
from kmint_tui.models.check import ModelFile, check, check_template
from kmint_tui.models.digest import record, remember, sha256
from kmint_tui.models.own import Settings
from kmint_tui.models.part import check_space, notes_of, take_out
from kmint_tui.models.registry import ModelEntry, Registry

Way = Literal["link", "copy", "move"]

_OURS = (".gguf", ".gguf.part", ".gguf.part.json")


@dataclass(frozen=True)
class Imported:
    """The place and id of an imported file; `reason` explains the id."""

    entry: ModelEntry
    file: ModelFile
    sha256: str
    linked: bool
    reason: str


class UnknownModel(ModelError):
    """Neither the header nor the digest of a file matches a model of the registry."""


def identify(registry: Registry, file: ModelFile, digest: str) -> tuple[ModelEntry, str]:
    """The registry entry of a file. Raises UnknownModel when header and digest match none."""
    for entry in registry.entries:
        if digest in entry.sha256.values():
            return entry, "its sha256 is the one in models.toml"
    fitting = [
        entry for entry in registry.entries if entry.kind != "package" and _same_shape(entry, file)
    ]
    named = [
        entry
        for entry in fitting
        if ("kernelsmith" in file.name.lower()) == ("kernelsmith" in entry.title.lower())
    ]
    if len(named) == 1:
        return named[0], f"its shape is {named[0].base}'s and its name is {file.name!r}"
    size = f"{file.layers} layers, {file.parameters:,} parameters"
    what = f"{file.architecture}, {size}, named {file.name!r}"
    near = (
        f"could be {' or '.join(entry.id for entry in fitting)}"
        if fitting
        else "no known model has this shape"
    )
    raise UnknownModel(
        f"cannot tell which model {file.path.name} is ({what}): {near}",
        fix="say it with --as ID, or give it another name with --as NAME",
    )


def _named(
    registry: Registry, name: str, file: ModelFile, digest: str, settings: Settings
) -> tuple[ModelEntry, str]:
    """The entry of a given name: a new one for a new name.

    Raises UsageError for a file that is not the known model of that name.
    """
    entry = registry.find(name)
    if entry is None:
        return own.new_entry(name, file, settings), f"a new entry in {paths.user_models_file()}"
    if settings.given:
        raise UsageError(
            f"{name} is in models.toml already, with its own dialect and sampling",
            fix=f"change them in {paths.user_models_file()}, or give another name with --as",
        )
    if entry.kind == "package" or entry.layers is None or digest in entry.sha256.values():
        return entry, "named with --as"
    if not _same_shape(entry, file):
        raise UsageError(
            f"{file.path.name} is not {name}: it has {file.layers} layers of {file.kv_heads} "
            f"key-value heads, {name} has {entry.layers} of {entry.kv_heads}",
            fix="give the file another name with --as NAME",
        )
    return entry, "named with --as"


def _same_shape(entry: ModelEntry, file: ModelFile) -> bool:
    return (
        entry.layers == file.layers
        and entry.kv_heads == file.kv_heads
        and entry.head_dim == file.key_length
    )


def import_any(
    registry: Registry,
    source: Path,
    *,
    as_id: str | None = None,
    copy: bool = False,
    settings: Settings = Settings(),  # noqa: B008  # frozen
) -> Imported:
    """Bring a GGUF, or a bundle of one, into the store; `settings` are for a new name.

    Raises ModelError, UsageError, StorageError.
    """
    if not bundle.is_bundle(source):
        way: Way = "copy" if copy else "link"
        return import_file(registry, source, as_id=as_id, way=way, settings=settings)
    try:
        with files.temporary_folder(paths.private_dir(paths.models_dir())) as folder:
            manifest, model = bundle.unpack(source, folder)
            try:
                done = import_file(registry, model, as_id=as_id, way="move")
                if (folder / bundle.CARD).is_file():
                    cards.keep(done.entry, folder / bundle.CARD)
                return done
            except UnknownModel as error:
                claimed = registry.find(manifest.model_id)
                hint = f"; the bundle says {claimed.id}" if claimed else ""
                raise ModelError(error.message + hint, fix=error.fix) from None
    except OSError as error:
        raise storage_error(paths.models_dir(), error) from error


def import_file(
    registry: Registry,
    source: Path,
    *,
    as_id: str | None = None,
    way: Way = "link",
    settings: Settings = Settings(),  # noqa: B008  # frozen
) -> Imported:
    """Link, copy or move `source` into the store. Raises ModelError, UsageError, StorageError."""
    file = check(source)
    check_template(source)
    digest = sha256(source)
    entry, reason = (
        _named(registry, as_id, file, digest, settings)
        if as_id
        else identify(registry, file, digest)
    )
    if entry.kind == "package":
        raise UsageError(
            f"{entry.id} ships inside kmint and cannot be replaced",
            fix="import it under another id",
        )
    folder = paths.private_dir(paths.models_dir() / entry.id)
    target = folder / source.name
    try:
        if target.exists() or target.is_symlink():
            if target.exists() and sha256(target) == digest:
                return Imported(
                    entry, check(target), digest, target.is_symlink(), "it is in the store already"
                )
            raise StorageError(
                f"{target} exists and is another file",
                fix=f"`kmint models rm {entry.id}` first, or rename yours",
            )
        if way == "copy":
            check_space(folder, source.stat().st_size)
            with source.open("rb") as reader, files.replacing(target) as writer:
                shutil.copyfileobj(reader, writer, 1 << 20)
        elif way == "move":
            files.move(source, target)
        else:
            target.symlink_to(source.resolve())
        record(target, digest)
        remember(target, digest)
        if registry.find(entry.id) is None:
            own.write_entry(paths.user_models_file(), entry)
    except OSError as error:
        raise storage_error(target, error) from error
    return Imported(entry, check(target), digest, way == "link", reason)


def stored(entry: ModelEntry) -> tuple[Path, ...]:
    """A model's files and unfinished parts in the store.

    Raises UsageError or ModelError when there is nothing to remove.
    """
    if entry.kind == "package":
        raise UsageError(f"{entry.id} ships inside kmint", fix="uninstall kmint to remove it")
    folder = paths.models_dir() / entry.id
    found = (
        sorted(path for path in folder.glob("*") if path.name.endswith(_OURS))
        if folder.is_dir()
        else []
    )
    if not found:
        raise ModelError(f"{entry.id} is not in the store", fix="`kmint models ls` lists the store")
    return tuple(found)


def remove(entry: ModelEntry) -> tuple[Path, ...]:
    """Remove a model's files and unfinished parts from the store; links are removed as links.

    Returns the removed files. Raises StorageError, also while another process pulls it.
    """
    removed = stored(entry)
    folder = paths.models_dir() / entry.id
    notes = [note for model in folder.glob("*.gguf") for note in notes_of(model)]
    take_out(
        entry.id,
        [*removed, *notes, *cards.stored_files(entry.id)],
        sorted(folder.glob(".*.gguf.lock")),
    )
    return removed

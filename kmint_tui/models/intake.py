"""Brings a GGUF from anywhere into the store, and takes one out again.

A file is known by its header and digest, never by its path or name. It is linked by default, copied on request; a copy
gets its name only when it is complete. Nothing that kmint did not put into the store is ever deleted.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from kmint_tui import paths
from kmint_tui.errors import ModelError, StorageError, UsageError, storage_error
from kmint_tui.models.check import ModelFile, check, check_template
from kmint_tui.models.digest import RECORD, record, sha256
from kmint_tui.models.registry import ModelEntry, Registry
from kmint_tui.models.removal import take_out

_OURS = (".gguf", ".gguf.part", ".gguf.part.json", ".gguf.partial")


@dataclass(frozen=True)
class Imported:
    """Where a file went and as what; `reason` says how its id was found."""

    entry: ModelEntry
    file: ModelFile
    sha256: str
    linked: bool
    reason: str


def identify(registry: Registry, file: ModelFile, digest: str) -> tuple[ModelEntry, str]:
    """The registry entry a file belongs to. Raises ModelError when header and digest name none."""
    for entry in registry.entries:
        if digest in entry.sha256.values():
            return entry, "its sha256 is the one in models.toml"
    fitting = [entry for entry in registry.entries if entry.kind != "package" and _same_shape(entry, file)]
    named = [entry for entry in fitting if ("kernelsmith" in file.name.lower()) == ("kernelsmith" in entry.title.lower())]
    if len(named) == 1:
        return named[0], f"its shape is {named[0].base}'s and its name is {file.name!r}"
    what = f"{file.architecture}, {file.layers} layers, {file.parameters:,} parameters, named {file.name!r}"
    near = f"could be {' or '.join(entry.id for entry in fitting)}" if fitting else "no known model has this shape"
    raise ModelError(f"cannot tell which model {file.path.name} is ({what}): {near}", fix="say it with --as ID")


def _same_shape(entry: ModelEntry, file: ModelFile) -> bool:
    return entry.layers == file.layers and entry.kv_heads == file.kv_heads and entry.head_dim == file.key_length


def import_file(registry: Registry, source: Path, *, as_id: str | None = None, copy: bool = False) -> Imported:
    """Link or copy `source` into the store. Raises ModelError, UsageError, StorageError."""
    file = check(source)
    check_template(source)
    digest = sha256(source)
    entry, reason = (registry.get(as_id), "named with --as") if as_id else identify(registry, file, digest)
    if entry.kind == "package":
        raise UsageError(f"{entry.id} ships inside kmint and cannot be replaced", fix="import it under another id")
    folder = paths.private_dir(paths.models_dir() / entry.id)
    target = folder / source.name
    try:
        if target.exists() or target.is_symlink():
            if target.exists() and sha256(target) == digest:
                return Imported(entry, check(target), digest, target.is_symlink(), "it is in the store already")
            raise StorageError(f"{target} exists and is another file", fix=f"`kmint models rm {entry.id}` first, or rename yours")
        if copy:
            _copy(source, target)
        else:
            target.symlink_to(source.resolve())
        record(target, digest)
    except OSError as error:
        raise storage_error(target, error) from error
    return Imported(entry, check(target), digest, not copy, reason)


def _copy(source: Path, target: Path) -> None:
    free, need = shutil.disk_usage(target.parent).free, source.stat().st_size
    if free < need:
        raise StorageError(
            f"{need / 1e9:.2f} GB are needed in {target.parent}, {free / 1e9:.2f} GB are free", fix="link it (without --copy)"
        )
    partial = target.with_name(target.name + ".partial")
    try:
        with source.open("rb") as reader, partial.open("wb") as writer:
            shutil.copyfileobj(reader, writer, 1 << 20)
            writer.flush()
            os.fsync(writer.fileno())
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def stored(entry: ModelEntry) -> tuple[Path, ...]:
    """A model's files and unfinished parts in the store. Raises UsageError or ModelError when there is nothing to remove."""
    if entry.kind == "package":
        raise UsageError(f"{entry.id} ships inside kmint", fix="uninstall kmint to remove it")
    folder = paths.models_dir() / entry.id
    found = sorted(path for path in folder.glob("*") if path.name.endswith(_OURS)) if folder.is_dir() else []
    if not found:
        raise ModelError(f"{entry.id} is not in the store", fix="`kmint models ls` shows what is")
    return tuple(found)


def remove(entry: ModelEntry) -> tuple[Path, ...]:
    """Take a model's files (links only as links) and unfinished parts out of the store; returns what was removed.

    Raises StorageError, also while another process pulls it.
    """
    removed = stored(entry)
    folder = paths.models_dir() / entry.id
    take_out(entry.id, [*removed, *folder.glob("*.gguf" + RECORD)], sorted(folder.glob(".*.gguf.lock")))
    return removed

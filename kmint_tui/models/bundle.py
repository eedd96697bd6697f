"""One archive with a model, its digest and the list of packages, for a machine without a network.

A bundle is an uncompressed tar: `bundle.json` (schema `kmint.bundle/1`), `SHA256SUMS`, `requirements.txt` and the GGUF.
Reading one extracts only the file that the manifest names, checks its sha256, and trusts no path in the archive.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path, PurePosixPath
from typing import Any

from kmint_tui import __version__
from kmint_tui.errors import ModelError, UsageError, storage_error
from kmint_tui.models.digest import sha256

SCHEMA = "kmint.bundle/1"
MANIFEST = "bundle.json"
_LARGEST_TEXT = 1 << 20


@dataclass(frozen=True)
class Manifest:
    """What a bundle holds."""

    model_id: str
    file: str
    nbytes: int
    sha256: str


def write_bundle(model_id: str, model: Path, target: Path) -> Manifest:
    """Write `target` with `model` in it, atomically. Raises UsageError when that would replace anything but a bundle, StorageError."""
    if not target.name or target.is_dir():
        raise UsageError(f"{str(target)!r} is a folder, not a file", fix=f"name a file, such as {model_id}.kmint.tar")
    if target.exists() and not is_bundle(target):
        raise UsageError(f"{target} exists and is no bundle; it is not overwritten", fix="choose another --out, or move that file away")
    manifest = Manifest(model_id, model.name, model.stat().st_size, sha256(model))
    document = {"schema": SCHEMA, "kmint_version": __version__, **vars(manifest)}
    texts = {
        MANIFEST: json.dumps(document, indent=1) + "\n",
        "SHA256SUMS": f"{manifest.sha256}  {manifest.file}\n",
        "requirements.txt": installed_packages(),
    }
    partial = target.with_name(target.name + ".partial")
    try:
        with tarfile.open(partial, "w") as archive:
            for name, text in texts.items():
                data = text.encode()
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
            archive.add(model.resolve(), arcname=manifest.file)
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(target)
    except OSError as error:
        raise storage_error(target, error) from error
    finally:
        partial.unlink(missing_ok=True)
    return manifest


def installed_packages() -> str:
    """The packages of this environment with their versions, one a line, as pip reads them: the wheels to carry along."""
    found = {(item.metadata["Name"], item.version) for item in distributions() if item.metadata["Name"]}
    return "".join(f"{name}=={version}\n" for name, version in sorted(found, key=lambda pair: pair[0].lower()))


def is_bundle(path: Path) -> bool:
    """True for a tar archive that starts with a bundle's manifest."""
    if not path.is_file():  # opening a pipe would wait for its writer
        return False
    try:
        with tarfile.open(path, "r:") as archive:
            first = archive.next()
            return first is not None and first.name == MANIFEST
    except (tarfile.TarError, OSError, EOFError, ValueError):
        return False


def unpack(path: Path, folder: Path) -> tuple[Manifest, Path]:
    """The manifest, and the model extracted into `folder`. Raises ModelError for anything that is not as promised."""
    broken = ModelError(f"{path.name} is not a whole bundle", fix="make or copy it again")
    try:
        with tarfile.open(path, "r:") as archive:
            manifest = _manifest(archive, broken)
            member = archive.getmember(manifest.file)
            source = archive.extractfile(member)
            if not member.isfile() or member.size != manifest.nbytes or source is None:
                raise broken
            target = folder / manifest.file
            digest = hashlib.sha256()
            with target.open("wb") as writer:
                while block := source.read(1 << 20):
                    digest.update(block)
                    writer.write(block)
                writer.flush()
                os.fsync(writer.fileno())
    except (tarfile.TarError, KeyError, EOFError, ValueError) as error:
        raise broken from error
    except OSError as error:
        raise storage_error(folder, error) from error
    if digest.hexdigest() != manifest.sha256:
        target.unlink(missing_ok=True)
        raise ModelError(f"{path.name}: the model in it is damaged (its sha256 differs)", fix="copy the bundle again")
    return manifest, target


def _manifest(archive: tarfile.TarFile, broken: ModelError) -> Manifest:
    member = archive.getmember(MANIFEST)
    source = archive.extractfile(member)
    if source is None or member.size > _LARGEST_TEXT:
        raise broken
    document: Any = json.loads(source.read())
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise broken
    fields = (document.get("model_id"), document.get("file"), document.get("nbytes"), document.get("sha256"))
    model_id, file, nbytes, digest = fields
    if not isinstance(model_id, str) or not isinstance(file, str) or type(nbytes) is not int or not isinstance(digest, str):
        raise broken
    if PurePosixPath(file).name != file or not file.endswith(".gguf"):
        raise broken
    return Manifest(model_id, file, nbytes, digest)

"""One archive with a model and lists of packages, for a machine without a network.

A bundle is an uncompressed tar: `bundle.json` (schema `kmint.bundle/1`), `SHA256SUMS`, the lists of
packages, the GGUF and the model's card. A reader extracts only the card and the file that the
manifest names, checks its sha256, and trusts no name or size in the archive.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from convert import files
from convert.names import BadName, accepted_name, is_sha256
from kmint_tui import __version__
from kmint_tui.documents import parse_json
from kmint_tui.errors import ModelError, UsageError, storage_error
from kmint_tui.models.digest import sha256
from kmint_tui.models.part import check_space

SCHEMA = "kmint.bundle/1"
MANIFEST = "bundle.json"
CARD = "card.md"
MOST_MEMBERS = 16
_LARGEST_TEXT = 1 << 20
_LARGEST_HEADERS = 1 << 22
_BLOCK = 1 << 20
# tarfile's errors for headers that are malformed, nested, or beyond its own bounds.
_MALFORMED = (
    tarfile.TarError,
    EOFError,
    ValueError,
    LookupError,
    ArithmeticError,
    RecursionError,
)
REQUIREMENTS, MATERIALS = "requirements.txt", "sbom.cdx.json"


@dataclass(frozen=True)
class Manifest:
    """The contents of a bundle, as its manifest states them."""

    model_id: str
    file: str
    nbytes: int
    sha256: str


def write_bundle(model_id: str, model: Path, target: Path, card: Path | None = None) -> Manifest:
    """Write `target` with `model` and its `card`, whole or not at all.

    Raises UsageError when that would replace anything but a bundle, and StorageError.
    """
    if not target.name or target.is_dir():
        raise UsageError(
            f"{str(target)!r} is a folder, not a file",
            fix=f"name a file, such as {model_id}.kmint.tar",
        )
    if target.exists() and not is_bundle(target):
        raise UsageError(
            f"{target} exists and is not a bundle; it is not overwritten",
            fix="choose another --out, or move that file away",
        )
    try:
        accepted_name(model.name)
    except BadName as error:
        raise UsageError(
            f"a model whose name {error} cannot be bundled", fix="rename the file"
        ) from None
    manifest = Manifest(model_id, model.name, model.stat().st_size, sha256(model))
    document = {"schema": SCHEMA, "kmint_version": __version__, **vars(manifest)}
    texts = {
        MANIFEST: json.dumps(document, indent=1) + "\n",
        "SHA256SUMS": f"{manifest.sha256}  {manifest.file}\n",
        **package_lists(),
    }
    try:
        with files.replacing(target) as file, tarfile.open(fileobj=file, mode="w") as archive:
            for name, text in texts.items():
                data = text.encode()
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
            if card is not None:
                archive.add(card, arcname=CARD)
            archive.add(model.resolve(), arcname=manifest.file)
    except OSError as error:
        raise storage_error(target, error) from error
    return manifest


def is_bundle(path: Path) -> bool:
    """True for a tar archive that starts with a bundle's manifest."""
    if not path.is_file():  # opening a pipe would wait for its writer
        return False
    try:
        with _opened(path) as (archive, _):
            first = archive.next()
            return first is not None and first.name == MANIFEST
    except (ModelError, OSError):
        return False


def unpack(path: Path, folder: Path) -> tuple[Manifest, Path]:
    """The manifest, and the model extracted into `folder`, with its card if the bundle has one.

    Raises ModelError for a bundle that differs from its manifest, StorageError.
    """
    broken = _broken(path)
    try:
        with _opened(path) as (archive, file):
            members = _members(archive, broken)
            file.left = math.inf
            manifest = _manifest(archive, members, broken)
            member = members.get(manifest.file)
            if (
                member is None
                or member.size != manifest.nbytes
                or member.offset_data + member.size > path.stat().st_size
            ):
                raise broken
            check_space(folder, manifest.nbytes)
            target = folder / manifest.file
            digest = _extract(archive, member, target, broken)
            card = members.get(CARD)
            if card is not None and card.size <= _LARGEST_TEXT:
                _extract(archive, card, folder / CARD, broken)
    except OSError as error:
        raise storage_error(folder, error) from error
    if digest != manifest.sha256:
        target.unlink(missing_ok=True)
        raise ModelError(
            f"{path.name}: the model in it is damaged (its sha256 differs)",
            fix="copy the bundle again",
        )
    return manifest, target


class _Bounded(io.FileIO):
    """The file of an archive; a caller may read only `left` bytes of it.

    A header that claims a huge size is refused instead of read into memory.
    """

    left: float = _LARGEST_HEADERS

    def read(self, size: int | None = -1) -> bytes:
        self.left -= size or 0
        if size is None or size < 0 or self.left < 0:
            raise tarfile.ReadError("the headers are too long")
        return super().read(size)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[tarfile.TarFile, _Bounded]]:
    """The archive and its file. Raises ModelError for every error of tarfile."""
    with _Bounded(path) as file:
        try:
            with tarfile.open(fileobj=file, mode="r:") as archive:
                yield archive, file
        except _MALFORMED as error:
            raise _broken(path) from error


def _broken(path: Path) -> ModelError:
    return ModelError(f"{path.name} is not a whole bundle", fix="make or copy it again")


def _members(archive: tarfile.TarFile, broken: ModelError) -> dict[str, tarfile.TarInfo]:
    """Every entry by name: few, plain files, without holes, no name twice."""
    members: dict[str, tarfile.TarInfo] = {}
    while (member := archive.next()) is not None:
        if (
            not member.isreg()
            or member.issparse()
            or member.name in members
            or len(members) == MOST_MEMBERS
        ):
            raise broken
        members[member.name] = member
    return members


def _extract(
    archive: tarfile.TarFile, member: tarfile.TarInfo, target: Path, broken: ModelError
) -> str:
    """Copy a member to `target`; returns its sha256."""
    digest, source = hashlib.sha256(), archive.extractfile(member)
    if source is None:
        raise broken
    with target.open("xb") as writer:
        while block := source.read(_BLOCK):
            digest.update(block)
            writer.write(block)
    files.sync(target)
    return digest.hexdigest()


def _manifest(
    archive: tarfile.TarFile, members: dict[str, tarfile.TarInfo], broken: ModelError
) -> Manifest:
    member = members.get(MANIFEST)
    source = None if member is None or member.size > _LARGEST_TEXT else archive.extractfile(member)
    if source is None:
        raise broken
    document = parse_json(source.read(), most_bytes=_LARGEST_TEXT)
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise broken
    fields = (
        document.get("model_id"),
        document.get("file"),
        document.get("nbytes"),
        document.get("sha256"),
    )
    model_id, file, nbytes, digest = fields
    if (
        not isinstance(model_id, str)
        or type(nbytes) is not int
        or not isinstance(digest, str)
        or not is_sha256(digest)
    ):
        raise broken
    try:
        name = accepted_name(file)
    except BadName:
        raise broken from None
    if not name.endswith(".gguf"):
        raise broken
    return Manifest(model_id, name, nbytes, digest)


def package_lists() -> dict[str, str]:
    """By file name: pip's hash-pinned requirements, and the CycloneDX bill of materials."""
    folder = resources.files("kmint_tui.models")
    return {
        name: folder.joinpath(name).read_text(encoding="utf-8")
        for name in (REQUIREMENTS, MATERIALS)
    }

"""Bundles from strangers: their content never decides on places, sizes or the model."""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kmint_tui.errors import ModelError, StorageError
from kmint_tui.models import bundle
from kmint_tui.models.bundle import package_lists
from tests.cli.runner import kmint
from tests.tiny_models import llama

pytestmark = pytest.mark.usefixtures("warm")

NAME = "tiny-F16.gguf"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return llama(tmp_path_factory.mktemp("model") / NAME)


@pytest.fixture(scope="module")
def sound(model: Path) -> Path:
    """A bundle as kmint writes it."""
    path = model.with_name("sound.tar")
    bundle.write_bundle("minicpm5-1b", model, path)
    return path


def add(
    archive: tarfile.TarFile,
    name: str,
    data: bytes = b"",
    *,
    kind: bytes = tarfile.REGTYPE,
    link: str = "",
) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = len(data), kind, link
    archive.addfile(info, io.BytesIO(data))


def manifest_of(sound: Path, **changes: object) -> bytes:
    with tarfile.open(sound) as archive:
        document = json.loads(archive.extractfile(bundle.MANIFEST).read())  # type: ignore[union-attr]
    return json.dumps({**document, **changes}).encode()


def a_second_manifest(sound: Path, model: Path, archive: tarfile.TarFile) -> None:
    add(archive, bundle.MANIFEST, manifest_of(sound))
    add(archive, NAME, model.read_bytes())
    add(archive, bundle.MANIFEST, manifest_of(sound, model_id="embedded"))


def a_second_model(sound: Path, model: Path, archive: tarfile.TarFile) -> None:
    add(archive, bundle.MANIFEST, manifest_of(sound))
    add(archive, NAME, model.read_bytes())
    add(archive, NAME, model.read_bytes())


def a_manifest_that_links_to_itself(sound: Path, model: Path, archive: tarfile.TarFile) -> None:
    add(archive, bundle.MANIFEST, kind=tarfile.SYMTYPE, link=bundle.MANIFEST)


def a_model_that_links_to_itself(sound: Path, model: Path, archive: tarfile.TarFile) -> None:
    add(archive, bundle.MANIFEST, manifest_of(sound))
    add(archive, NAME, kind=tarfile.SYMTYPE, link=NAME)


def a_model_that_is_a_link(sound: Path, model: Path, archive: tarfile.TarFile) -> None:
    add(archive, bundle.MANIFEST, manifest_of(sound))
    add(archive, NAME, kind=tarfile.SYMTYPE, link="/etc/passwd")


def a_folder_above(sound: Path, model: Path, archive: tarfile.TarFile) -> None:
    add(archive, bundle.MANIFEST, manifest_of(sound, file=f"../{NAME}"))
    add(archive, f"../{NAME}", model.read_bytes())


def a_hidden_name(sound: Path, model: Path, archive: tarfile.TarFile) -> None:
    add(archive, bundle.MANIFEST, manifest_of(sound, file=".x.gguf"))
    add(archive, ".x.gguf", model.read_bytes())


def deep_json(sound: Path, model: Path, archive: tarfile.TarFile) -> None:
    add(archive, bundle.MANIFEST, b"[" * 200_000)


def many_members(sound: Path, model: Path, archive: tarfile.TarFile) -> None:
    add(archive, bundle.MANIFEST, manifest_of(sound))
    for number in range(1000):
        add(archive, f"more{number}")
    add(archive, NAME, model.read_bytes())


def a_sparse_model(sound: Path, model: Path, archive: tarfile.TarFile) -> None:
    """Ten kilobytes that claim to be 8 GB, in GNU's old form: a single hole."""
    add(archive, bundle.MANIFEST, manifest_of(sound, nbytes=8 << 30))
    info = tarfile.TarInfo(NAME)
    info.type = tarfile.GNUTYPE_SPARSE
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[386:398], header[398:410] = b"%011o\0" % (8 << 30), b"%011o\0" % 0
    header[483:495] = b"\x80" + (8 << 30).to_bytes(11, "big")
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    assert archive.fileobj is not None
    archive.fileobj.write(bytes(header))
    archive.offset += len(header)


def a_header_longer_than_memory(sound: Path, model: Path, archive: tarfile.TarFile) -> None:
    """An extended header that claims to be 60 GB long; the rest of the file is a hole."""
    add(archive, bundle.MANIFEST, manifest_of(sound))
    info = tarfile.TarInfo("pax")
    info.type, info.size = tarfile.XHDTYPE, 60 << 30
    assert archive.fileobj is not None
    archive.fileobj.write(info.tobuf(tarfile.GNU_FORMAT))
    archive.offset += 512
    os.truncate(str(archive.name), 64 << 30)


def headers_within_headers(sound: Path, model: Path, archive: tarfile.TarFile) -> None:
    """A long name that is itself the name of a long name, 2,000 deep: Python's reader recurses."""
    for _ in range(2000):
        add(archive, "././@LongLink", b"x\0", kind=tarfile.GNUTYPE_LONGNAME)
    add(archive, bundle.MANIFEST, manifest_of(sound))


def a_size_beyond_a_file(sound: Path, model: Path, archive: tarfile.TarFile) -> None:
    """An extended header with a size beyond any position in a file."""
    add(archive, bundle.MANIFEST, manifest_of(sound))
    info = tarfile.TarInfo(NAME)
    info.pax_headers = {"size": "9" * 30}
    archive.addfile(info)


HOSTILE = [
    headers_within_headers, a_size_beyond_a_file,
    a_second_manifest, a_second_model, a_manifest_that_links_to_itself, a_model_that_links_to_itself, a_model_that_is_a_link,
    a_folder_above, a_hidden_name, deep_json, many_members, a_sparse_model, a_header_longer_than_memory,
]  # fmt: skip


@pytest.mark.parametrize("make", HOSTILE, ids=lambda make: make.__name__)
def test_a_hostile_bundle_is_refused(
    make: Callable[..., None], sound: Path, model: Path, tmp_path: Path
) -> None:
    """One line of refusal, with nothing extracted."""
    path, folder = tmp_path / "b.tar", tmp_path / "out"
    folder.mkdir()
    with tarfile.open(path, "w") as archive:
        make(sound, model, archive)
    with pytest.raises(ModelError, match="is not a whole bundle"):
        bundle.unpack(path, folder)
    assert list(folder.iterdir()) == [] and sorted(entry.name for entry in tmp_path.iterdir()) == [
        "b.tar",
        "out",
    ]


def test_what_does_not_fit_is_refused_before_it_is_read(sound: Path, tmp_path: Path) -> None:
    """An archive with a hole may be larger than the disk: its size counts against the free space."""
    path, claimed = tmp_path / "b.tar", shutil.disk_usage(tmp_path).free + (1 << 30)
    with tarfile.open(path, "w") as archive:
        add(archive, bundle.MANIFEST, manifest_of(sound, nbytes=claimed))
        info = tarfile.TarInfo(NAME)
        info.size = claimed
        assert archive.fileobj is not None
        archive.fileobj.write(info.tobuf(tarfile.GNU_FORMAT))
    os.truncate(path, claimed + (1 << 20))
    (tmp_path / "out").mkdir()
    with pytest.raises(StorageError, match="GB are needed"):
        bundle.unpack(path, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_the_manifest_does_not_choose_the_model(sound: Path, kmint_home: Path) -> None:
    """Only the user's word names a file whose header and digest are unknown."""
    refused = kmint("models", "import", str(sound))
    assert (
        refused.code == 4
        and "the bundle says minicpm5-1b" in refused.err
        and "--as NAME" in refused.err
    ), refused.err
    assert [path for path in (kmint_home / "data" / "models").iterdir()] == []
    done = kmint("models", "import", str(sound), "--as", "tiny")
    assert done.code == 0 and "a new entry in" in done.err, done.err
    default = kmint("models", "ls", "--json").document["default"]
    assert ("from now on `kmint mint` uses it" in done.err) == (default == "tiny"), done.err


def test_an_import_takes_the_room_of_one_copy(sound: Path, kmint_home: Path) -> None:
    """The unpacked file is moved into its place, and nothing else stays."""
    done = kmint("models", "import", str(sound), "--as", "tiny", "--json")
    assert done.code == 0 and not done.document["linked"], done.err
    folder = kmint_home / "data" / "models"
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*")) == [
        "tiny", f"tiny/{NAME}", f"tiny/{NAME}.sha256"
    ]  # fmt: skip


@pytest.mark.parametrize("planted", ["link", "file", "dangling"])
def test_a_planted_name_is_neither_followed_nor_deleted(
    model: Path, tmp_path: Path, planted: str
) -> None:
    """An earlier version wrote through OUT.partial and removed it."""
    out, name, victim = tmp_path / "out.tar", tmp_path / "out.tar.partial", tmp_path / "victim"
    victim.write_text("mine")
    if planted == "file":
        name.write_text("mine, too")
    else:
        name.symlink_to(victim if planted == "link" else tmp_path / "nowhere")
    bundle.write_bundle("minicpm5-1b", model, out)
    assert bundle.is_bundle(out) and victim.read_text() == "mine"
    assert name.is_symlink() if planted != "file" else name.read_text() == "mine, too"
    assert not (tmp_path / "nowhere").exists()


def test_an_out_that_is_a_link_is_replaced_and_not_followed(
    model: Path, sound: Path, tmp_path: Path
) -> None:
    """Only a link to a bundle, or to nothing, is replaced at all."""
    other = tmp_path / "other.tar"
    shutil.copy(sound, other)
    before = other.read_bytes()
    for target in (other, tmp_path / "nowhere"):
        out = tmp_path / "out.tar"
        out.unlink(missing_ok=True)
        out.symlink_to(target)
        bundle.write_bundle("minicpm5-1b", model, out)
        assert not out.is_symlink() and bundle.is_bundle(out)
    assert other.read_bytes() == before and not (tmp_path / "nowhere").exists()


def test_a_bundle_carries_the_lists_of_packages(sound: Path) -> None:
    """The hash-pinned requirements and the bill of materials, word for word."""
    with tarfile.open(sound) as archive:
        for name, text in package_lists().items():
            assert archive.extractfile(name).read().decode() == text  # type: ignore[union-attr]


def test_the_mode_of_a_bundle_is_the_users(model: Path, tmp_path: Path) -> None:
    """The mode follows the user's umask, not that of a private temporary file."""
    umask = os.umask(0o027)
    try:
        bundle.write_bundle("minicpm5-1b", model, tmp_path / "out.tar")
    finally:
        os.umask(umask)
    assert (tmp_path / "out.tar").stat().st_mode & 0o777 == 0o640

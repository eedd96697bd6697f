"""Files that conversions fetched from the hub: listed with sizes, and removed without others."""

from __future__ import annotations

from pathlib import Path

import pytest

from kmint_tui.models import checkpoints, download
from kmint_tui.models.part import locked
from kmint_tui.models.remote import Remote
from tests.cli.runner import kmint
from tests.models.hub_server import COMMIT, Hub

pytestmark = pytest.mark.usefixtures("warm")

REPO = "someone/tiny--base.v1"
WEIGHTS = bytes(range(256)) * 1000


@pytest.fixture
def folder(kmint_home: Path) -> Path:
    """A checkpoint with an adapter's folder in it, one file of which is incomplete."""
    folder = kmint_home / "data" / "models" / "hub" / "someone--tiny--base.v1" / COMMIT
    (folder / "lora").mkdir(parents=True)
    with Hub(
        REPO, {"config.json": b"{}", "model.safetensors": WEIGHTS, "adapter.safetensors": WEIGHTS}
    ) as hub:
        for name, place in (
            ("config.json", folder),
            ("model.safetensors", folder),
            ("adapter.safetensors", folder / "lora"),
        ):
            remote = Remote(
                repo=REPO,
                revision=COMMIT,
                name=name,
                nbytes=len(hub.files[name]),
                sha256=None,
                licence=None,
                url=f"{hub.endpoint}/blob/{name}",
            )
            download.fetch(remote, place)
    (folder / "lora" / "adapter.safetensors").rename(folder / "lora" / "adapter.safetensors.part")
    (folder / "lora" / "adapter.safetensors.part.json").write_text("{}")
    return folder


def test_it_is_listed_with_its_size_and_removed_by_its_name(folder: Path, kmint_home: Path) -> None:
    listed = kmint("models", "ls", "--json").document["checkpoints"]
    assert [(item["repo"], item["path"]) for item in listed] == [(REPO, str(folder.parent))]
    assert (
        listed[0]["bytes"]
        == sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())
        > 2 * len(WEIGHTS)
    )
    said = kmint("models", "ls").err
    assert (
        f"{REPO} 501 KiB" in said
        and "kmint models rm OWNER/NAME" in said
        and str(folder.parents[1]) in said
    )

    refused = kmint("models", "rm", REPO)
    assert (refused.code, "give --yes" in refused.err) == (2, True), refused.err
    done = kmint("models", "rm", REPO, "--yes", "--json")
    assert done.code == 0, done.err
    names = ("config.json", "model.safetensors", "lora/adapter.safetensors.part")
    assert sorted(done.document["removed"]) == sorted(str(folder / name) for name in names)
    assert not folder.parent.exists() and checkpoints.home().is_dir()
    assert kmint("models", "ls", "--json").document["checkpoints"] == []
    assert "hub" not in kmint("models", "ls").err
    again = kmint("models", "rm", REPO, "--yes")
    assert (again.code, REPO in again.err) == (4, True), again.err


def test_what_is_not_kmints_stays(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    (folder / "notes.txt").write_text("mine")
    (folder / "data.sha256").write_text("mine")
    (folder / "link").symlink_to(other)
    assert kmint("models", "rm", REPO, "--yes").code == 0
    assert sorted(path.name for path in folder.iterdir()) == ["data.sha256", "link", "notes.txt"]
    assert (other / "notes.txt").read_text() == "mine"
    refused = kmint("models", "rm", REPO, "--yes")
    assert (refused.code, "by hand" in refused.err) == (4, True), refused.err


def test_what_is_being_fetched_is_not_removed(folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    with locked(folder / ".model.safetensors.lock"):
        refused = kmint("models", "rm", REPO, "--yes")
    assert (refused.code, "is being fetched by another process" in refused.err) == (6, True), (
        refused.err
    )
    assert sorted(folder.rglob("*")) == before


def test_a_name_of_nothing_is_refused_and_makes_nothing(kmint_home: Path) -> None:
    assert checkpoints.fetched() == () and checkpoints.find("a/b") is None
    for name in ("a/b", "../..", "hub", "someone--tiny"):
        refused = kmint("models", "rm", name, "--yes")
        assert (refused.code, name in refused.err) == (4, True), refused.err
    assert not (kmint_home / "data").exists()

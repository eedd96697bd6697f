"""A lying hub or mirror: its names become paths only if harmless, and a pinned commit stays."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kmint_tui import paths
from kmint_tui.errors import ModelError
from kmint_tui.models import digest, download, registry
from kmint_tui.models.remote import Remote, origin_commit
from tests.cli.runner import Done, kmint
from tests.models.hub_server import COMMIT, Hub
from tests.tiny_models import llama

REPO = "evil/x"
PLANTED = b"echo owned\n"
ENTRY = """\
[[model]]
id = "tiny"
title = "Tiny"
kind = "hub"
rank = 50
licence = "MIT"
context = 2048
dialect = "card"
temperature = 0.7
top_p = 0.97
max_tokens = 64
repo = "evil/x"
quants = ["F16"]
"""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    index = json.dumps({"weight_map": {"a": "model.safetensors"}}).encode()
    files = {
        "config.json": PLANTED,
        "model.safetensors.index.json": index,
        "model.safetensors": b"weights",
    }
    with Hub(REPO, files) as server:
        from huggingface_hub import constants

        monkeypatch.setattr(constants, "ENDPOINT", server.endpoint)
        monkeypatch.setattr(
            constants,
            "HUGGINGFACE_CO_URL_TEMPLATE",
            server.endpoint + "/{repo_id}/resolve/{revision}/{filename}",
        )
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        yield server


def snapshot(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }


def convert(tmp_path: Path) -> Done:
    """`kmint convert --base evil/x`, with a home two folders below a file of the user's."""
    home = tmp_path / "user" / "kmint"
    home.mkdir(parents=True, exist_ok=True)
    return kmint("convert", "--base", REPO, "--out", str(tmp_path / "m.gguf"), KMINT_HOME=str(home))


@pytest.mark.parametrize("commit", ["../../../../..", "main", None, 7])
def test_a_commit_that_is_none_is_refused(hub: Hub, tmp_path: Path, commit: object) -> None:
    """The first of them once led the files of a repository into the user's home."""
    hub.commit = commit
    (tmp_path / "user").mkdir()
    (tmp_path / "user" / "config.json").write_bytes(b"mine")
    done = convert(tmp_path)
    assert (done.code, "error: model not usable" in done.err) == (4, True), done.err
    assert (tmp_path / "user" / "config.json").read_bytes() == b"mine"
    assert PLANTED not in snapshot(tmp_path).values()


@pytest.mark.parametrize("name", ["../evil", "a\x1b]52;c;x\x07", 3])
def test_a_listed_name_that_is_none_is_refused(hub: Hub, tmp_path: Path, name: object) -> None:
    """The error shows the name without its control characters."""
    hub.listed = [name]
    done = convert(tmp_path)
    assert done.code == 4 and "\x1b" not in done.err, done.err
    assert (
        "is not a plain relative path" in done.err or "does not answer as the hub does" in done.err
    )
    assert PLANTED not in snapshot(tmp_path).values()


@pytest.mark.parametrize("shard", ["../../../.bashrc", ".bashrc", "model.bin"])
def test_a_shard_of_the_index_that_is_none_is_refused(hub: Hub, tmp_path: Path, shard: str) -> None:
    """The server may even list the file."""
    hub.files["model.safetensors.index.json"] = json.dumps({"weight_map": {"a": shard}}).encode()
    if not shard.startswith(".."):
        hub.files[shard] = b"weights"
    done = convert(tmp_path)
    assert done.code == 4 and "model.safetensors.index.json cannot be used" in done.err, done.err
    assert b"weights" not in snapshot(tmp_path).values()


def test_an_index_that_is_no_json_is_refused(hub: Hub, tmp_path: Path) -> None:
    """Deep enough for Python's parser to run out of stack."""
    hub.files["model.safetensors.index.json"] = b"[" * 200_000
    done = convert(tmp_path)
    assert done.code == 4 and "cannot be used" in done.err, done.err


@pytest.mark.parametrize("field", ["nbytes", "sha256"])
def test_a_size_or_a_digest_that_is_none_is_refused(field: str) -> None:
    """Both are checked before any comparison."""
    wrong = {"nbytes": -1, "sha256": "../x"}[field]
    values = {"nbytes": 5, "sha256": "0" * 64, field: wrong}
    with pytest.raises(ModelError, match="does not use it"):
        Remote(repo=REPO, revision=COMMIT, name="a.gguf", licence=None, url="http://x", **values)  # type: ignore[arg-type]


def test_html_instead_of_the_hubs_json_is_named(tmp_path: Path) -> None:
    """A captive portal answers everything with its login page."""
    with Hub("portal", {}) as server:
        server.pages = b"<html>log in</html>"
        done = kmint(
            "convert",
            "--base",
            REPO,
            "--out",
            str(tmp_path / "m.gguf"),
            HF_ENDPOINT=server.endpoint,
        )
    assert done.code == 4 and "does not answer as the hub does" in done.err, done.err


def test_an_answer_of_the_hub_that_never_ends_is_ended(hub: Hub, tmp_path: Path) -> None:
    """The hub's own client would read until memory is full."""
    hub.endless = True
    done = convert(tmp_path)
    assert done.code == 4 and "does not answer as the hub does" in done.err, done.err


def test_a_packed_answer_is_not_unpacked(hub: Hub, tmp_path: Path) -> None:
    """kmint asks for plain answers; a packed one could unpack to any size."""
    hub.packed = True
    done = convert(tmp_path)
    assert done.code == 4 and "does not answer as the hub does" in done.err, done.err


@pytest.fixture
def tiny(hub: Hub, tmp_path: Path) -> Path:
    """The registry's `tiny`, whose repository holds one model file."""
    paths.private_dir(paths.config_dir())
    paths.user_models_file().write_text(ENTRY, encoding="utf-8")
    path: Path = llama(tmp_path / "tiny-F16.gguf")
    hub.files = {"tiny-F16.gguf": path.read_bytes()}
    return path


def pin(text: str) -> None:
    paths.user_models_file().write_text(ENTRY + text + "\n", encoding="utf-8")


def test_without_a_pin_the_first_pulls_commit_is_kept(hub: Hub, tiny: Path) -> None:
    """The repository moves, and kmint reports it instead of following."""
    done = kmint("models", "pull", "tiny")
    assert done.code == 0 and f"pins no commit of {REPO}: {COMMIT} is taken" in done.err, done.err
    folder = paths.models_dir() / "tiny"
    assert origin_commit(folder, REPO) == COMMIT and origin_commit(folder, "other/x") is None
    hub.commit, hub.files["tiny-F16.gguf"] = "d" * 40, b"other" * 100
    again = kmint("models", "pull", "tiny")
    assert again.code == 4 and "d" * 40 in again.err and COMMIT in again.err, again.err
    assert (folder / "tiny-F16.gguf").read_bytes() == tiny.read_bytes()
    assert kmint("models", "rm", "tiny", "--yes").code == 0
    assert list(folder.iterdir()) == []


def test_a_pinned_commit_is_asked_for_and_compared(hub: Hub, tiny: Path) -> None:
    """kmint does not believe a hub that answers with another commit."""
    pin(f'revision = "{COMMIT}"')
    done = kmint("models", "url", "tiny", "--json")
    assert (done.code, done.document["revision"]) == (0, COMMIT), done.err
    pin('revision = "' + "e" * 40 + '"')
    done = kmint("models", "pull", "tiny")
    assert done.code == 4 and f"commit {COMMIT}, kmint wants commit {'e' * 40}" in done.err, (
        done.err
    )


@pytest.mark.parametrize(
    "text", ['revision = "main"', 'revision = "cccccccc"', 'sha256 = { "a.gguf" = "00" }']
)
def test_a_pin_that_can_move_is_refused(hub: Hub, tiny: Path, text: str) -> None:
    """A branch, a tag or a shortened commit is not a pin."""
    pin(text)
    done = kmint("models", "ls")
    assert done.code == 2 and "hexadecimal" in done.err, done.err


def test_a_changed_smith_is_refused_before_it_is_used(hub: Hub, tiny: Path) -> None:
    """`mint` compares the digest of the import; an unchanged file is not read again."""
    assert kmint("models", "pull", "tiny").code == 0
    path = paths.models_dir() / "tiny" / "tiny-F16.gguf"
    mint = ("mint", "softmax", "--model", "tiny", "--dry-run")
    assert kmint(*mint).code == 0
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    done = kmint(*mint)
    assert done.code == 4 and "has changed since it came into the store" in done.err, done.err
    assert "kmint models rm" in done.err


def test_a_smith_is_compared_with_its_pinned_digest(hub: Hub, tiny: Path) -> None:
    """The comparison comes before any use, whatever the store recorded."""
    assert kmint("models", "pull", "tiny").code == 0
    pin('sha256 = { "tiny-F16.gguf" = "' + "0" * 64 + '" }')
    done = kmint("mint", "softmax", "--model", "tiny", "--dry-run")
    assert done.code == 4 and "is not the file that models.toml names" in done.err, done.err


def test_the_embedded_smith_is_the_pinned_one() -> None:
    """The digest of the file in the package, under the name in models.toml."""
    entry = registry.load(Path("none")).get("embedded")
    ((name, pinned),) = entry.sha256.items()
    path = Path(download.__file__).parents[1] / "smith" / "embedded" / name
    assert hashlib.sha256(path.read_bytes()).hexdigest() == pinned == digest.verified(path, pinned)


def test_a_digest_is_read_again_only_for_a_changed_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Size, time of change and inode decide."""
    path, read = tmp_path / "m.gguf", list[str]()
    real = hashlib.file_digest

    def counted(file: Any, kind: str) -> Any:
        read.append(kind)
        return real(file, kind)

    monkeypatch.setattr(hashlib, "file_digest", counted)
    path.write_bytes(random.Random(1).randbytes(1000))
    first = digest.verified(path, None)
    assert digest.verified(path, first) == first and len(read) == 1
    path.write_bytes(random.Random(2).randbytes(1000))
    with pytest.raises(ModelError, match="models.toml names"):
        digest.verified(path, first)
    assert len(read) == 2

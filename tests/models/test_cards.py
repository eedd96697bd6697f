"""Cards in the store: pulled with the model, given by hand, shown, used, bundled and removed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kmint_tui import paths
from kmint_tui.errors import ModelError
from kmint_tui.models import cards, registry
from tests.cli.runner import kmint
from tests.models.hub_server import COMMIT, Hub
from tests.smith.test_card import FENCED
from tests.tiny_models import llama

REPO = "someone/tiny"
ENTRY = f"""
schema = 1
[[model]]
id = "tiny"
title = "Tiny"
kind = "hub"
rank = 50
repo = "{REPO}"
card = "{REPO}"
quants = ["F16"]
licence = "MIT"
context = 512
dialect = "trained"
temperature = 0.7
top_p = 0.9
max_tokens = 64
"""


@pytest.fixture
def hub(tmp_path: Path, kmint_home: Path) -> Iterator[Hub]:
    path = paths.user_models_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(ENTRY)
    model = llama(tmp_path / "tiny-F16.gguf")
    with Hub(REPO, {model.name: model.read_bytes(), "README.md": FENCED.encode()}) as server:
        yield server


def pull(hub: Hub, *more: str) -> str:
    done = kmint("models", "pull", "tiny", *more, HF_ENDPOINT=hub.endpoint, HF_HUB_OFFLINE="0")
    assert done.code == 0, done.err
    return done.err


def test_a_pull_brings_the_card(hub: Hub) -> None:
    assert f"the prompt is that of the card of {REPO}" in pull(hub)
    shown = kmint("models", "show", "tiny", "--prompt", "--json").document
    assert shown["system"] == "Write kernels. Only code." and shown["example_op"] == "scale"
    assert shown["source"] == f"{REPO} at {COMMIT[:12]}"
    text = kmint("models", "show", "tiny", "--prompt").out
    assert "Op `OPERATION`: DESCRIPTION" in text and shown["sha256"] in text
    plan = kmint("mint", "gelu", "--model", "tiny", "--dry-run", "--json").document
    assert plan["prompt"]["system"] == "Write kernels. Only code."
    assert plan["wording"] == f"the words of the card with sha256 {shown['sha256']}"


def test_a_card_that_cannot_be_read_is_said(hub: Hub) -> None:
    hub.files["README.md"] = b"# A smith\n\nNo code here.\n"
    said = pull(hub)
    assert "no Python code" in said and "kmint's own words are used" in said
    assert cards.stored_card("tiny") is None
    plan = kmint("mint", "gelu", "--model", "tiny", "--dry-run", "--json").document
    assert plan["wording"] == "kmint's own words"
    done = kmint("models", "show", "tiny", "--prompt")
    assert done.code == 4 and "--card FILE" in done.err


def test_a_card_given_by_hand_travels_in_a_bundle(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del hub.files["README.md"]
    assert "has no README.md" in pull(hub)
    card, archive = tmp_path / "card.md", tmp_path / "tiny.tar"
    card.write_text(FENCED)
    done = kmint("models", "prompt", "tiny", "--card", str(card), "--json")
    assert done.code == 0 and done.document["source"] == "a file given by hand", done.err
    assert kmint("models", "bundle", "tiny", "--out", str(archive)).code == 0
    assert kmint("models", "rm", "tiny", "--yes").code == 0
    assert not any((paths.models_dir() / "tiny").iterdir())
    done = kmint("models", "import", str(archive), "--as", "tiny")
    assert done.code == 0, done.err
    kept = cards.stored_card("tiny")
    assert kept is not None and kept.prompt.own_op == "relu"


def test_a_card_that_was_changed_is_refused(hub: Hub, tmp_path: Path) -> None:
    source = tmp_path / "card.md"
    source.write_text(FENCED)
    entry = registry.load(paths.user_models_file()).get("tiny")
    stored = cards.keep(entry, source)
    stored.path.write_text(FENCED.replace("Only code", "Lies"))
    with pytest.raises(ModelError, match="was changed since it was stored"):
        cards.stored_card("tiny")
    assert cards.keep(entry, source).prompt.system == "Write kernels. Only code."


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"# no code\n"])
def test_a_file_that_is_no_card_is_refused(content: bytes, hub: Hub, tmp_path: Path) -> None:
    source = tmp_path / "card.md"
    source.write_bytes(content)
    done = kmint("models", "prompt", "tiny", "--card", str(source))
    assert done.code == 4 and "error: " in done.err and cards.stored_card("tiny") is None

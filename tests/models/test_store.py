"""The choice of the model with its reason, and the refusals with their words."""

from __future__ import annotations

from pathlib import Path

import pytest

from kmint_tui import paths
from kmint_tui.errors import ConfigError, ModelError
from kmint_tui.memory import AvailableMemory
from kmint_tui.models import digest, fit, registry, store
from kmint_tui.models.check import check
from kmint_tui.models.fit import reserve_on_cpu
from tests import tiny_models


@pytest.fixture
def known() -> registry.Registry:
    return registry.load(paths.user_models_file())


def put(model_id: str, name: str = "tiny-Q8_0.gguf") -> Path:
    path: Path = paths.models_dir() / model_id / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return tiny_models.llama(path, quant="Q8_0")


def test_the_registry_lists_the_five_smiths(known: registry.Registry) -> None:
    assert {entry.id for entry in known.entries} == {
        "embedded",
        "minicpm5-1b",
        "minicpm5-1b-base",
        "qwen3.6-27b",
        "kwen2.5-1.5b",
    }
    assert known.entries[0].id == "qwen3.6-27b"


def test_the_best_smith_in_the_store_is_chosen(
    known: registry.Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "free_memory", lambda: AvailableMemory(64 << 30))
    put("minicpm5-1b-base")
    put("minicpm5-1b")
    choice = store.choose(known, drafts=8)
    assert choice.id == "minicpm5-1b"
    assert choice.reason == "the best smith in the store that fits"


def test_a_smith_that_does_not_fit_is_skipped_with_the_reason(
    known: registry.Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("qwen3.6-27b")
    small = put("minicpm5-1b")
    needed = fit.estimate(check(small), drafts=8, max_tokens=768).total + reserve_on_cpu().total
    monkeypatch.setattr(store, "free_memory", lambda: AvailableMemory(needed))
    choice = store.choose(known, drafts=8)
    assert choice.id == "minicpm5-1b"
    assert "qwen3.6-27b fits if the smith is unloaded while judging" in choice.reason
    monkeypatch.setattr(store, "free_memory", lambda: AvailableMemory(None))
    assert "unknown" in store.choose(known, drafts=8).reason
    monkeypatch.setattr(store, "free_memory", lambda: AvailableMemory(needed // 100))
    last = store.choose(known, drafts=8)
    assert last.id == "embedded"
    assert "minicpm5-1b does not fit" in last.reason


def test_a_corrupt_smith_is_skipped_by_choice_refused_by_name(known: registry.Registry) -> None:
    put("minicpm5-1b")
    broken = put("qwen3.6-27b")
    broken.write_bytes(broken.read_bytes()[:-100])
    assert "truncated" in store.choose(known, drafts=8).reason
    with pytest.raises(ModelError, match="truncated"):
        store.resolve(known, "qwen3.6-27b")


def test_the_preferred_quant_is_taken(known: registry.Registry) -> None:
    put("minicpm5-1b", "kernelsmith-Q4_K_M.gguf")
    best = put("minicpm5-1b", "kernelsmith-q5_k_m.gguf")
    assert store.resolve(known, "minicpm5-1b").file.path == best


@pytest.mark.parametrize("wanted", ["minicpm5-1", "nowhere.gguf", "./nowhere", "minicpm5-1b"])
def test_what_is_not_here_is_refused_with_a_fix(known: registry.Registry, wanted: str) -> None:
    with pytest.raises(ModelError) as refused:
        store.resolve(known, wanted)
    assert refused.value.fix


def test_a_file_without_a_chat_template_is_refused(tmp_path: Path) -> None:
    path = tiny_models.llama(tmp_path / "bare.gguf", template=None)
    with pytest.raises(ModelError, match="no chat template"):
        check(path)


def test_the_user_file_is_merged_by_id_and_remembered() -> None:
    file = paths.user_models_file()
    file.parent.mkdir(parents=True)
    file.write_text('[[model]]\nid = "minicpm5-1b"\ntemperature = 0.4\n', encoding="utf-8")
    known = registry.load(file)
    assert known.get("minicpm5-1b").temperature == 0.4
    assert known.get("minicpm5-1b").layers == 24
    assert known.origins["minicpm5-1b"]["temperature"] == str(file)
    assert known.origins["minicpm5-1b"]["layers"] == registry.PACKAGED


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[model]]\nid = "mine"\n', "lacks"),
        ('[[model]]\nid = "embedded"\ntemprature = 1\n', "unknown key"),
        ('[[model]]\nid = "embedded"\nrank = "high"\n', "wrong type"),
        ('[[model]]\nid = "embedded"\ndialect = "klingon"\n', "must be one of"),
        ("[[model]\n", "not TOML"),
        ("schema = 99\n", "schema 99"),
    ],
)
def test_a_wrong_user_file_is_refused(text: str, message: str) -> None:
    file = paths.user_models_file()
    file.parent.mkdir(parents=True)
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        registry.load(file)


def test_a_digest_follows_the_file(tmp_path: Path) -> None:
    import hashlib

    path = tmp_path / "file"
    for content in (b"one", b"twos"):
        path.write_bytes(content)
        assert digest.sha256(path) == digest.sha256(path) == hashlib.sha256(content).hexdigest()

"""A user's own model: an entry of any name, but never another file under a known model's name."""

from __future__ import annotations

from pathlib import Path

import pytest

from kmint_tui import paths
from kmint_tui.errors import StorageError, UsageError
from kmint_tui.models import registry, store
from kmint_tui.models.intake import import_file
from kmint_tui.models.own import Settings
from tests.tiny_models import llama


@pytest.fixture
def model(tmp_path: Path, kmint_home: Path) -> Path:
    return llama(tmp_path / "mine.gguf")


def known() -> registry.Registry:
    return registry.load(paths.user_models_file())


def test_a_new_name_makes_an_entry(model: Path) -> None:
    settings = Settings(dialect="request", context=256, temperature=0.2, max_tokens=99)
    done = import_file(known(), model, as_id="my-smith.2", settings=settings)
    entry = known().get("my-smith.2")
    assert done.entry == entry and done.linked
    assert (entry.dialect, entry.context, entry.temperature, entry.max_tokens) == (
        "request",
        256,
        0.2,
        99,
    )
    assert (entry.top_p, entry.rank) == (0.95, 5)
    assert store.resolve(known(), "my-smith.2").file.path.resolve() == model
    again = import_file(known(), model, as_id="my-smith.2")
    assert again.reason == "it is in the store already"


def test_what_is_not_asked_for_is_taken_from_the_file(model: Path) -> None:
    entry = import_file(known(), model, as_id="plain").entry
    assert (entry.dialect, entry.context, entry.max_tokens) == ("card", 2048, 1024)


def test_the_users_file_keeps_what_it_had(model: Path) -> None:
    path = paths.user_models_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('# mine\nschema = 1\n\n[[model]]\nid = "minicpm5-1b"\ntemperature = 0.1\n')
    import_file(known(), model, as_id="second")
    assert path.read_text().startswith("# mine\n")
    assert known().get("minicpm5-1b").temperature == 0.1
    assert known().get("second").id == "second"


def test_a_foreign_file_is_no_known_model(model: Path) -> None:
    for name in ("minicpm5-1b", "qwen3.6-27b", "kwen2.5-1.5b"):
        with pytest.raises(UsageError, match=f"is not {name}: it has 2 layers"):
            import_file(known(), model, as_id=name)
        assert store.installed(known().get(name)) is None


@pytest.mark.parametrize("name", ["Mine", "a/b", "../x", "-x", "a b", "x" * 64])
def test_names_that_are_none(name: str, model: Path) -> None:
    with pytest.raises(UsageError, match="is not a valid model name"):
        import_file(known(), model, as_id=name)
    assert not paths.user_models_file().exists()


def test_an_import_that_fails_leaves_no_entry(model: Path) -> None:
    folder = paths.private_dir(paths.models_dir() / "mine")
    (folder / model.name).write_bytes(b"another file")
    with pytest.raises(StorageError, match="exists and is another file"):
        import_file(known(), model, as_id="mine")
    assert known().find("mine") is None


def test_settings_are_for_new_names(model: Path) -> None:
    import_file(known(), model, as_id="mine")
    with pytest.raises(UsageError, match="is in models.toml already"):
        import_file(known(), model, as_id="mine", settings=Settings(dialect="graph"))
    with pytest.raises(UsageError, match="made for a context of 2048"):
        import_file(known(), model, as_id="other", settings=Settings(context=4096))

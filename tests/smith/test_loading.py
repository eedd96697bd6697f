"""Loading: remembered measurements, the pinned library, the machine, the test of equal rows."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path

import pytest

from kmint_tui.memory import available_memory
from kmint_tui.smith import Event, ModelLoaded, Note, loading, machine, start_cache, tuning
from kmint_tui.smith.native import Log, Model, NativeError, library
from kmint_tui.smith.order import Order
from tests.smith.conftest import MakeSmith

TUNED = tuning.Tuned(threads=1, step=0.01, sampling="turn", plain="", quiet=True, reason="by hand")


ENTRY: dict[str, object] = asdict(TUNED)


def test_entries_are_kept_by_key(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "tuning.json"
    assert start_cache.read(path) == {}
    start_cache.store(path, "a", ENTRY)
    start_cache.store(path, "b", ENTRY)
    assert tuning.recall(start_cache.read(path), "a") == TUNED
    assert tuning.recall(start_cache.read(path), "c") is None
    assert [entry.name for entry in path.parent.iterdir()] == ["tuning.json"]


def test_only_the_newest_entries_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "tuning.json"
    for number in range(70):
        start_cache.store(path, str(number), ENTRY)
    assert len(json.loads(path.read_text())) == 64
    assert "0" not in start_cache.read(path) and start_cache.read(path)["69"] == ENTRY


@pytest.mark.parametrize(
    "content", ["", "[]", "{", '{"a": 3}', '{"a": {"threads": 1}}', '{"a": {"other": 1}}']
)
def test_a_file_that_is_not_ours_counts_as_empty(tmp_path: Path, content: str) -> None:
    path = tmp_path / "tuning.json"
    path.write_text(content)
    assert tuning.recall(start_cache.read(path), "a") is None
    start_cache.store(path, "a", ENTRY)
    assert tuning.recall(start_cache.read(path), "a") == TUNED


@pytest.mark.parametrize(
    "odd",
    [
        {"threads": "1"},
        {"threads": 0},
        {"threads": 10**9},
        {"lanes": 99},
        {"sampling": "rm"},
        {"quiet": 1},
        {"step": None},
    ],
    ids=str,
)
def test_what_was_never_measured_is_not_taken_up(odd: dict[str, object]) -> None:
    assert tuning.recall({"a": ENTRY}, "a") == TUNED
    assert tuning.recall({"a": ENTRY | odd}, "a") is None


def test_a_place_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    start_cache.store(blocker / "tuning.json", "a", ENTRY)
    assert start_cache.read(blocker / "tuning.json") == {}


def test_what_is_remembered_is_not_measured_again(
    make_smith: MakeSmith, model_files: dict[str, Path], tmp_path: Path
) -> None:
    path = tmp_path / "tuning.json"
    key = tuning.key(machine.machine_key(), machine.file_key(model_files["llama"]))
    remembered = tuning.Tuned(
        threads=1,
        step=0.01,
        sampling="turn",
        plain="a reason from before",
        quiet=True,
        reason="by hand",
    )
    start_cache.store(path, key, asdict(remembered))
    *_, loaded = make_smith("llama", tuning=path).load()
    assert isinstance(loaded, ModelLoaded)
    choices = {choice.name: choice for choice in loaded.choices}
    assert choices["threads"].reason == "remembered from an earlier start: by hand"
    assert choices["weights"].reason == "a reason from before"


def test_the_file_key_follows_the_content(tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.write_bytes(b"a" * 10)
    first = machine.file_key(path)
    assert machine.file_key(path) == first
    path.write_bytes(b"b" * 10)
    assert machine.file_key(path) != first


def test_the_machine_answers() -> None:
    cores = machine.cores()
    assert cores.count >= 1 and "core" in cores.reason
    memory = available_memory()
    assert memory is None or memory > 1 << 20
    assert len(machine.machine_key()) == 16 and machine.machine_key() == machine.machine_key()
    assert 0 < machine.copy_bandwidth() < math.inf
    assert machine.OtherWork().cores() >= 0


def test_another_version_of_the_library_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kmint_tui.smith.native.llama_version", lambda: "0.3.99")
    with pytest.raises(NativeError, match="0.3.99 is installed and kmint needs 0.3.36") as caught:
        library()
    assert caught.value.code == "environment"


@pytest.mark.parametrize("model", ["llama", "hybrid"])
def test_equal_rows_agree_with_plain_weights(model_files: dict[str, Path], model: str) -> None:
    lib = library()
    log = Log(lib, lambda level, line: None)
    loaded = Model(
        lib,
        model_files[model],
        gpu_layers=0,
        memory_map=False,
        plain_weights=True,
        progress=lambda fraction: True,
    )
    times = tuning.measure_threads(loaded, (1,), on_gpu=False)
    assert times[1] > 0
    assert set(tuning.measure_sampling(loaded, 2)) == {"turn", "pool", "device"}
    loaded.close()
    del log


def test_rows_that_differ_are_reported(
    model_files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    lib = library()
    log = Log(lib, lambda level, line: None)
    loaded = Model(
        lib,
        model_files["llama"],
        gpu_layers=0,
        memory_map=False,
        plain_weights=True,
        progress=lambda fraction: True,
    )
    monkeypatch.setattr(tuning, "_ROUNDING", -1.0)
    with pytest.raises(tuning.WrongResults, match="equal rows of a batch differ by"):
        tuning.measure_threads(loaded, (1,), on_gpu=False)
    loaded.close()
    del log


def test_steps_far_slower_than_memory_are_told(
    model_files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file larger than memory is mapped; here any speed counts as slow and any size as large."""
    for name in ("_MEMORY_SHARE", "_BIG", "_SLOW_FACTOR"):
        monkeypatch.setattr(loading, name, 0)
    events: list[Event] = []
    ready = loading.load(Order(model_files["llama"]), events.append, lambda line: None)
    assert {choice.name: choice.value for choice in ready.loaded.choices}["memory"] == "mapped"
    assert any(
        isinstance(event, Note) and event.text.startswith("memory is short: a step takes")
        for event in events
    )
    ready.decoder.close()
    ready.model.close()

"""The number of contexts: measured, remembered, requested, and one after a crash."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from kmint_tui.smith import (
    Choice,
    Event,
    Failed,
    ModelLoaded,
    Prompt,
    RunDone,
    Smith,
    loading,
    machine,
    start_cache,
    tuning,
)
from kmint_tui.smith.events import Measured
from kmint_tui.smith.native import Model, free_on_gpu, library
from kmint_tui.smith.order import Order
from tests.smith.conftest import MakeSmith, memory_for

PROMPT = Prompt("system", "tl.store(y_ptr, x) " * 40)


@pytest.mark.parametrize(
    ("times", "best"),
    [
        ({}, 1),
        ({1: 1.0}, 1),
        ({1: 6.94, 2: 5.76, 4: 4.65}, 4),
        ({1: 1.0, 2: 0.85, 4: 0.8}, 2),
        ({1: 1.0, 2: 0.95, 4: 0.8}, 4),
        ({1: 1.0, 2: 1.9, 4: 3.6}, 1),
    ],
)
def test_more_lanes_must_be_a_good_deal_faster(times: dict[int, float], best: int) -> None:
    assert tuning.best_context_count(times) == best


def test_lanes_are_measured_as_long_as_there_is_room(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    times, why = tuning.measure_contexts(model, 1, lambda: "")
    assert list(times) == [1, 2, 4] and min(times.values()) > 0 and why == ""
    times, why = tuning.measure_contexts(model, 1, lambda: "crowded")
    assert list(times) == [1] and why == "crowded"
    memory_for(2, monkeypatch)
    times, why = tuning.measure_contexts(model, 2, lambda: "")
    assert list(times) == [1, 2] and why == "no memory"


def test_the_free_memory_of_a_gpu_is_known_where_there_is_one() -> None:
    lib = library()
    assert (free_on_gpu(lib) > 0) == bool(lib.llama_supports_gpu_offload())


@pytest.mark.parametrize(
    ("offloaded", "recurrent", "way", "free", "words"),
    [
        (3, False, "turn", 16 << 30, ""),
        (3, False, "pool", 16 << 30, ""),
        (0, False, "turn", 16 << 30, "the CPU"),
        (2, False, "turn", 16 << 30, "the CPU"),
        (3, True, "turn", 16 << 30, "recurrent"),
        (3, False, "device", 16 << 30, "the GPU chooses"),
        (3, False, "turn", 15 << 30, "15.0 GiB of GPU memory are free"),
    ],
)
def test_what_speaks_for_a_single_lane(
    monkeypatch: pytest.MonkeyPatch,
    offloaded: int,
    recurrent: bool,
    way: str,
    free: int,
    words: str,
) -> None:
    monkeypatch.setattr(loading, "free_on_gpu", lambda lib: free)
    model = SimpleNamespace(layers=2, recurrent=recurrent, lib=None)
    reason = loading._single(model, offloaded, way)  # type: ignore[arg-type]
    assert words in reason and bool(words) == bool(reason)


def lanes_chosen(order: Order, kept: dict[str, object]) -> Choice:
    """The choice; measurements go into `kept`, which the next call may get as known."""

    def take(event: Event) -> None:
        if isinstance(event, Measured):
            kept[event.key] = event.entry

    ready = loading.load(order, take, lambda line: None)
    ready.decoder.close()
    ready.model.close()
    return next(choice for choice in ready.loaded.choices if choice.name == "lanes")


def test_the_number_of_lanes_is_measured_once_and_remembered(
    model_files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    known: dict[str, object] = {}
    order = Order(model_files["llama"], gpu_layers=0, known=known)
    assert lanes_chosen(order, known) == Choice(
        "lanes", "1", "the CPU computes all or some of the layers"
    )
    monkeypatch.setattr(loading, "_single", lambda model, offloaded, way: "")
    # No other process works, so that the measurement counts.
    monkeypatch.setattr(machine.OtherWork, "cores", lambda self: 0.0)
    answers = [({1: 0.004}, "crowded"), ({1: 0.004, 2: 0.003, 4: 0.002}, "")]
    monkeypatch.setattr(tuning, "measure_contexts", lambda model, workers, short: answers.pop(0))
    times = "a step of many rows takes, by number of contexts, 1: 4.00 ms"
    assert lanes_chosen(order, known) == Choice(
        "lanes", "1", f"measured now: {times}; no more of them: crowded"
    )
    # A measurement that ended early is repeated, and so is one that an older kmint lacks.
    [(key, entry)] = known.items()
    assert isinstance(entry, dict) and key == tuning.key(
        machine.machine_key(), machine.file_key(order.path)
    )
    assert entry.pop("lanes") == 0 and entry.pop("lanes_reason") == ""
    known[key] = {**entry, "reason": "by hand"}
    assert lanes_chosen(order, known) == Choice(
        "lanes", "4", f"measured now: {times}, 2: 3.00 ms, 4: 2.00 ms"
    )
    remembered = tuning.recall(known, key)
    assert remembered is not None and (remembered.lanes, remembered.reason) == (4, "by hand")
    assert lanes_chosen(order, known) == Choice(
        "lanes", "4", f"remembered from an earlier start: {times}, 2: 3.00 ms, 4: 2.00 ms"
    )
    assert lanes_chosen(replace(order, lanes=2), known) == Choice("lanes", "2", "requested")
    assert lanes_chosen(replace(order, single_reason="it crashed"), known) == Choice(
        "lanes", "1", "it crashed"
    )


def chosen(smith: Smith) -> Choice:
    assert smith.loaded is not None
    return next(choice for choice in smith.loaded.choices if choice.name == "lanes")


def test_the_number_asked_for_reaches_the_engine(make_smith: MakeSmith) -> None:
    smith = make_smith("llama", lanes=3, gpu_layers=0)
    list(smith.load())
    assert chosen(smith) == Choice(
        "lanes", "1", "3 requested; the CPU computes all or some of the layers"
    )


@pytest.mark.parametrize(
    ("drafts", "name"), [(24, signal.SIGSEGV), (8, signal.SIGSEGV), (24, signal.SIGKILL)]
)
def test_after_a_crash_in_several_lanes_there_is_one(
    make_smith: MakeSmith, tmp_path: Path, drafts: int, name: signal.Signals
) -> None:
    remembered = tmp_path / "new" / "tuning.json"
    smith = make_smith("llama", gpu_layers=0, tuning=remembered)
    *_, loaded = smith.load()
    assert isinstance(loaded, ModelLoaded) and smith.pid is not None
    smith.loaded = replace(loaded, choices=(Choice("lanes", "4", "as on a GPU"),))
    run = smith.draft(PROMPT, drafts, max_tokens=300)
    next(run)
    os.kill(smith.pid, name)
    *_, event = run
    assert isinstance(event, Failed)
    *_, event = smith.draft(PROMPT, drafts, max_tokens=2)
    assert isinstance(event, RunDone) and event.drafts == drafts
    blamed = drafts == 24 and name == signal.SIGSEGV
    words = (
        "llama.cpp crashed (SIGSEGV) in a run with 3 contexts"
        if blamed
        else "the CPU computes all or some of the layers"
    )
    assert chosen(smith) == Choice("lanes", "1", words)
    smith.close()
    later = make_smith("llama", gpu_layers=0, tuning=remembered)
    list(later.load())
    assert chosen(later) == Choice(
        "lanes", "1", f"{words} at an earlier start" if blamed else words
    )


def test_a_crash_is_remembered_per_model_and_library_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, model, other = (
        tmp_path / "cache" / "tuning.json",
        tmp_path / "a.gguf",
        tmp_path / "b.gguf",
    )
    assert (
        start_cache.remembered_crash(file, model) == start_cache.remembered_crash(None, model) == ""
    )
    start_cache.remember_crash(None, model, "it crashed")
    start_cache.remember_crash(file, model, "it crashed")
    start_cache.remember_crash(file, other, "so did this")
    assert start_cache.remembered_crash(file, model) == "it crashed at an earlier start"
    assert (
        start_cache.remembered_crash(file, tmp_path / "cache" / ".." / "b.gguf")
        == "so did this at an earlier start"
    )
    monkeypatch.setattr(start_cache, "llama_version", lambda: "9.9.9")
    assert start_cache.remembered_crash(file, model) == ""


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"%s": 3}', '{"%s": {"library": "0.3.36", "reason": 7}}']
)
def test_a_file_of_crashes_that_is_not_ours_says_nothing(tmp_path: Path, text: str) -> None:
    file, model = tmp_path / "tuning.json", tmp_path / "a.gguf"
    (tmp_path / "crashes.json").write_text(text.replace("%s", str(model)))
    assert start_cache.remembered_crash(file, model) == ""
    start_cache.remember_crash(file, model, "it crashed")
    assert start_cache.remembered_crash(file, model) == "it crashed at an earlier start"


def test_an_unwritable_folder_costs_only_the_memory_of_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    start_cache.remember_crash(tmp_path / "file" / "tuning.json", tmp_path / "a.gguf", "it crashed")
    assert (
        start_cache.remembered_crash(tmp_path / "file" / "tuning.json", tmp_path / "a.gguf") == ""
    )

"""What a build of a book does before its first contest: baselines, and the start of the referee."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kmint_tui.core.book.baselines import LEAST_BYTES, BaselineBuilders
from kmint_tui.core.book.building import Build
from kmint_tui.core.book.planning import Timed, places_of
from kmint_tui.core.farm.farm import Farm
from kmint_tui.core.judges import Opened
from kmint_tui.history.store import History
from referee.ops import Cell
from referee.problem import TaskName
from referee.verdict import Verdict
from tests.core.book_doubles import Referee, Smith
from tests.core.test_book_build import build, history, work

__all__ = ["history"]


def test_baselines_are_built_before_anything_is_timed(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The builders end when the drafts of two operations are stored; no contest began until then."""
    stored, steps = threading.Semaphore(0), list[str]()
    begin, submit = history.begin, Build._submit

    def begun(session: Any) -> int:
        stored.release()
        return begin(session)

    def submitted(self: Build, *arguments: Any) -> None:
        steps.append("contest")
        submit(self, *arguments)

    class Builders:
        def build(self, wanted: Iterable[Timed]) -> None:
            steps.extend(timed.place.op for timed in wanted)
            stored.acquire()
            stored.acquire()
            steps.append("built")

        def stop(self) -> None:
            return

    monkeypatch.setattr(history, "begin", begun)
    monkeypatch.setattr(Build, "_submit", submitted)
    referee = Referee({"a": {"": 10.0}})
    build(history, referee, [work("silu"), work("relu2")], builders=Builders())
    assert steps == ["silu", "relu2", "built", "contest", "contest"]


def test_every_device_starts_its_referee_at_once(history: History) -> None:
    """With drafts of an earlier build too: the builders end when three devices have begun."""
    begun, warmed = threading.Semaphore(0), list[bool]()

    class Devices(Referee):
        def judge(self, source: str, op: str | TaskName, **options: Any) -> Verdict:
            if options.get("level") != "compile":
                return super().judge(source, op, **options)
            begun.release()
            return Verdict("silu", "unsure", "compile", "", None, "replay")

        def opened(self) -> Opened:
            farm = cast(Farm, SimpleNamespace(devices=3))
            return replace(super().opened(), farm=farm)

    class Builders:
        def build(self, wanted: Iterable[Timed]) -> None:
            warmed.extend(begun.acquire(timeout=60) for _ in range(3))

        def stop(self) -> None:
            return

    smith = Smith()
    build(history, Referee({"a": {"": 10.0}}), [work("silu")], smith=smith)
    build(history, Devices({"a": {"": 10.0}}), [work("silu")], smith=smith, builders=Builders())
    assert (warmed, smith.runs) == ([True] * 3, 1)
    assert not begun.acquire(blocking=False)


def test_builders_share_the_memory_of_the_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small cases are built side by side; one that needs the whole card is built alone."""
    warmed: list[str] = []
    at_once: list[int] = []
    both = threading.Barrier(2)
    lock = threading.Lock()
    inside = 0

    class Replayer:
        def __init__(self, **options: Any) -> None:
            return

        def warm(self, task: TaskName, case: Cell) -> dict[str, str]:
            nonlocal inside
            with lock:
                inside += 1
                at_once.append(inside)
            if task.op != "gelu":
                both.wait(30)
            with lock:
                inside -= 1
                warmed.append(task.op)
            return {}

        def close(self) -> None:
            return

    monkeypatch.setattr("kmint_tui.core.book.baselines.Replayer", Replayer)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: range(4))
    builders = BaselineBuilders(tmp_path, 2 * LEAST_BYTES, "a GPU, torch 2.13")
    large = work("gelu", "131072x8192:float32")
    builders.build(places_of([work("silu"), work("relu2"), large]))
    assert sorted(warmed[:2]) == ["relu2", "silu"] and warmed[2] == "gelu"
    assert at_once == [1, 2, 1]
    builders.build(places_of([work("silu"), large]))
    assert len(warmed) == 3
    BaselineBuilders(tmp_path, LEAST_BYTES, "a GPU, torch 2.14").build(places_of([large]))
    assert warmed[3:] == ["gelu"]

"""The build of a book with a scripted smith and referee: order, contests, budget and second runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kmint_tui.book import store
from kmint_tui.book.records import Book
from kmint_tui.core.book.building import Build
from kmint_tui.core.book.contest import Contender, Contest
from kmint_tui.core.book.entries import versions_here
from kmint_tui.core.book.planning import Work, plan, timed_places
from kmint_tui.core.book.progress import BuildEvent, Built, Done
from kmint_tui.core.book.rejudging import Rejudged, rejudge
from kmint_tui.errors import UsageError
from kmint_tui.graph.operations import catalogue_program
from kmint_tui.history.store import History
from referee.ops import get
from referee.problem import TaskName
from referee.verdict import Verdict
from tests.book.examples import book, entry
from tests.core.book_doubles import DEVICE, Referee, Smith
from tests.mint.doubles import kernel

WIDE, NARROW = "8192x4096:bfloat16", "64x4096:bfloat16"
EMPTY = Book(device=DEVICE, entries=(), sources={})


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with History(tmp_path / "history.db") as opened:
        yield opened


def work(name: str, *shapes: str) -> Work:
    return Work(op=get(name), shapes=shapes or (WIDE,))


def build(
    history: History,
    referee: Referee,
    pieces: Sequence[Work],
    *,
    smith: Smith | None = None,
    **options: Any,
) -> tuple[Built, list[BuildEvent]]:
    events: list[BuildEvent] = []
    made = Build(
        opened=referee.opened(),
        smith=smith or Smith(),
        history=history,
        device=DEVICE,
        work=pieces,
        drafts=2,
        rivals=options.pop("rivals", EMPTY),
        tell=options.pop("tell", events.append),
        **options,
    )
    return made.run(), events


def contender(word: str) -> Contender:
    return Contender(source=kernel(word), author="smith", smith="embedded", smith_sha256="")


def contest(referee: Referee, pieces: Work, *words: str) -> dict[str, str]:
    """The word of the best kernel by shape."""
    places = timed_places(pieces)
    outcome = Contest(referee.opened(), pieces, places, [contender(word) for word in words]).run()
    return {
        timed.place.shape: outcome.contenders[number].source.split("'")[1]
        for timed, (number, _) in outcome.best.items()
    }


def test_the_most_used_operations_come_first() -> None:
    found = plan(("reglu", "softmax", "rmsnorm"), (), None, EMPTY, versions=versions_here())
    assert [one.op.name for one in found.work] == ["rmsnorm", "softmax", "reglu"]
    assert all(":bfloat16" in shape for one in found.work for shape in one.shapes)


def test_only_what_a_book_lacks_is_planned() -> None:
    torch, triton = versions_here()
    mine = {"torch": str(torch), "triton": str(triton)}
    held = book(entry(versions=mine), entry(shape="64x4096"))
    shapes = ("8192x4096", "64x4096")
    found = plan(("silu",), shapes, None, held, versions=(torch, triton))
    assert ([one.shapes for one in found.work], found.known) == ([(NARROW,)], 1)
    again = plan(("silu",), shapes, None, held, versions=(torch, triton), again=True)
    assert ([one.shapes for one in again.work], again.known) == ([(WIDE, NARROW)], 0)


def test_an_operation_without_a_dtype_is_named_or_refused() -> None:
    usual = plan(("dequant_int8",), ("64x4096",), None, EMPTY, versions=versions_here())
    assert usual.work[0].shapes == ("64x4096:float16",)
    everything = plan(None, ("64x4096",), "bf16", EMPTY, versions=versions_here())
    assert any("dequant_int8 is left out" in note for note in everything.notes)
    with pytest.raises(UsageError, match="gives float16 alone"):
        plan(("dequant_int8",), ("64x4096",), "bf16", EMPTY, versions=versions_here())


def test_each_shape_gets_its_own_best_kernel() -> None:
    times = {"a": {"8192x": 10.0, "64x": 9.0}, "b": {"8192x": 12.0, "64x": 5.0}}
    assert contest(Referee(times), work("silu", WIDE, NARROW), "a", "b") == {
        "8192x4096": "a",
        "64x4096": "b",
    }


def test_only_winners_get_a_whole_verdict() -> None:
    referee = Referee({"a": {"": 10.0}, "b": {"": 12.0}, "c": {"": 14.0}})
    assert contest(referee, work("silu"), "c", "b", "a") == {"8192x4096": "a"}
    assert [source for _, source in referee.judged] == [kernel("a")]


def test_a_kernel_within_the_noise_serves_every_shape() -> None:
    times = {"a": {"8192x": 10.0, "64x": 5.02}, "b": {"8192x": 12.0, "64x": 5.0}}
    referee = Referee(times)
    assert set(contest(referee, work("silu", WIDE, NARROW), "a", "b").values()) == {"a"}
    assert [source for _, source in referee.judged] == [kernel("a")]


def test_the_template_writes_for_each_shape_of_a_contest() -> None:
    pieces = work("softmax", "32768x1024:bfloat16", "512x131072:bfloat16")
    referee = Referee({"a": {"": 10.0}, "template": {"": 5.0}})
    program = catalogue_program("softmax")
    places = timed_places(pieces)
    outcome = Contest(referee.opened(), pieces, places, [contender("a")], program).run()
    tall, wide = (outcome.contenders[number] for number, _ in outcome.best.values())
    assert (tall.author, wide.author, outcome.given) == ("template", "template", 1)
    assert tall.changes == "tile of 2048 elements" and wide.changes.startswith("loop over blocks")
    assert {len(raced) > 1 for raced in referee.raced} == {True}


def test_a_rejected_winner_gives_way_to_the_next() -> None:
    """It passes the race, which looks at the timed case alone."""

    class Strict(Referee):
        def judge(self, source: str, op: str | TaskName, **options: Any) -> Verdict:
            found = super().judge(source, op, **options)
            wrong = "'a'" in source
            return Verdict("silu", "rejected", "correct", "", None, "replay") if wrong else found

    referee = Strict({"a": {"": 5.0}, "b": {"": 12.0}})
    assert contest(referee, work("silu"), "a", "b") == {"8192x4096": "b"}
    assert [source for _, source in referee.judged] == [kernel("a"), kernel("b")]


def test_a_race_goes_on_without_a_wrong_first_kernel() -> None:
    referee = Referee({"a": {"": 10.0}, "b": {"": 8.0}})
    assert contest(referee, work("silu"), "wrong", "a", "b") == {"8192x4096": "b"}
    assert contest(referee, work("silu"), "wrong", "also wrong") == {}


def test_a_second_run_makes_nothing_again(history: History) -> None:
    smith, referee = Smith(), Referee({"a": {"": 10.0}, "b": {"": 12.0}})
    pieces = [work("silu"), work("relu2")]
    result, _ = build(history, referee, pieces[:1], smith=smith)
    assert [one.place.op for one in result.entries] == ["silu"] and smith.runs == 1
    held = store.read("own", DEVICE)
    names, shapes = ("silu", "relu2"), ("8192x4096",)
    left = plan(names, shapes, None, held, versions=versions_here()).work
    assert [one.op.name for one in left] == ["relu2"]
    # Without the book, the history still has the drafts.
    result, _ = build(history, referee, pieces, smith=smith)
    assert len(result.entries) == 2 and smith.runs == 2
    assert history.session(1).state == "done"
    assert [draft.outcome for draft in history.drafts(1)][:2] == ["win", None]


def test_a_contest_that_begins_again_stores_its_kernels_once(history: History) -> None:
    class OfLoops(Referee):
        def _us(self, source: str, cell: str) -> float | None:
            return 4.0 if "for start" in source else super()._us(source, cell)

    for _ in range(2):
        build(history, OfLoops({"a": {"": 10.0}, "b": {"": 12.0}}), [work("softmax", NARROW)])
    rows = history.drafts(1)
    assert any(row.changes for row in rows)
    assert len({row.source for row in rows}) == len(rows)


def test_drafts_of_another_model_are_made_again(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    smith, referee = Smith(), Referee({"a": {"": 10.0}})
    build(history, referee, [work("silu")], smith=smith)
    monkeypatch.setattr("kmint_tui.core.planning._checked_digest", lambda choice: "cd" * 32)
    build(history, referee, [work("silu")], smith=smith)
    assert smith.runs == 2


def test_a_stopped_build_keeps_what_was_under_way(history: History) -> None:
    referee = Referee({"a": {"": 10.0}}, gate=threading.Event())
    pieces = [work(name) for name in ("silu", "relu2", "gelu")]
    made: list[Build] = []
    asked = threading.Event()

    class Waiting(Referee):
        def judge(self, source: str, op: str | TaskName, **options: Any) -> Verdict:
            asked.set()
            return super().judge(source, op, **options)

    waiting = Waiting(referee.times, gate=referee.gate)

    def stop() -> None:
        asked.wait()
        made[0].stop()
        assert waiting.gate is not None
        waiting.gate.set()

    made.append(
        Build(
            opened=waiting.opened(),
            smith=Smith(),
            history=history,
            device=DEVICE,
            work=pieces,
            drafts=2,
            rivals=EMPTY,
            tell=lambda event: None,
            at_once=1,
        )
    )
    thread = threading.Thread(target=stop)
    thread.start()
    result = made[0].run()
    thread.join()
    assert [one.place.op for one in result.entries] == ["silu"]
    assert result.left == ("relu2", "gelu")
    assert len(store.read("own", DEVICE).entries) == 1


def test_an_interrupt_keeps_the_finished_operations(history: History) -> None:
    def tell(event: BuildEvent) -> None:
        if isinstance(event, Done):
            raise KeyboardInterrupt

    referee = Referee({"a": {"": 10.0}})
    pieces = [work("silu"), work("relu2")]
    with pytest.raises(KeyboardInterrupt):
        build(history, referee, pieces, tell=tell, at_once=1)
    held = store.read("own", DEVICE)
    assert [one.op for one in held.entries] == ["silu"]
    assert {one.state for one in history.summaries()} <= {"done", "stopped"}
    left = plan(("silu", "relu2"), ("8192x4096",), None, held, versions=versions_here()).work
    result, _ = build(history, referee, left)
    assert [one.op for one in result.entries] == ["relu2"]


def test_no_operation_begins_after_the_budget(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr("kmint_tui.core.book.building.time.monotonic", lambda: clock[0])

    def tell(event: BuildEvent) -> None:
        if isinstance(event, Done):
            clock[0] += 40.0

    referee = Referee({"a": {"": 10.0}})
    pieces = [work(name) for name in ("silu", "relu2", "gelu")]
    result, _ = build(history, referee, pieces, tell=tell, budget=60.0, at_once=1)
    assert len(result.entries) == 2 and result.left == ("gelu",)


def test_a_failing_operation_stops_no_other(history: History) -> None:
    referee = Referee({"a": {"": 10.0}}, failing=frozenset({"silu"}))
    result, events = build(history, referee, [work("silu"), work("relu2")])
    assert result.failures == ("silu: the worker was lost",)
    assert [one.place.op for one in result.entries] == ["relu2"]
    assert sorted(one.number for one in events if isinstance(one, Done)) == [1, 2]


def test_a_foreign_kernel_competes_with_its_makers_name(history: History) -> None:
    source = kernel("c")
    rivals = book(entry(source, smith="another", ratio=99.0), sources=(source,))
    referee = Referee({"a": {"": 10.0}, "c": {"": 7.0}})
    result, _ = build(history, referee, [work("silu")], rivals=rivals)
    (best,) = result.entries
    assert (best.maker, best.figures.us) == ("another", 7.0)
    slower = Referee({"a": {"": 5.0}, "c": {"": 7.0}})
    result, _ = build(history, slower, [work("silu")], rivals=rivals)
    assert (result.entries[0].maker, result.entries[0].figures.us) == ("embedded", 5.0)


def test_every_entry_is_judged_again_or_says_why_not() -> None:
    """A kernel with two entries is judged once; one that is wrong here and one without a case are
    named.
    """
    sources = (kernel("a"), kernel("wrong"))
    held = book(
        entry(sources[0], ratio=1.5),
        entry(sources[0], shape="64x4096", ratio=3.0),
        entry(sources[1], op="relu2"),
        entry(sources[0], op="made_up"),
        sources=sources,
    )
    referee = Referee({"a": {"": 10.0}})
    seen: list[Rejudged] = []
    found = rejudge(referee.opened(), held, None, seen.append)
    assert sorted(map(str, seen)) == sorted(map(str, found))
    assert [(one.entry.op, one.ratio, one.difference, one.reason) for one in found] == [
        ("made_up", None, None, "this kmint has no operation made_up"),
        ("relu2", None, None, "12 of 64 elements wrong"),
        ("silu", 1.5, -0.5, ""),
        ("silu", 1.5, 0.0, ""),
    ]
    assert sorted(name for name, _ in referee.judged) == ["relu2", "silu"]
    with pytest.raises(UsageError, match="has no kernel of gelu"):
        rejudge(referee.opened(), held, ["gelu"], seen.append)

"""`kmint tune`: what it races, judges, remembers and saves, by the races of a stand-in referee."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kmint_tui import paths
from kmint_tui.core import save as saving
from kmint_tui.core.judges import Opened
from kmint_tui.core.save import SaveAsked, save_by_shape, save_tuned
from kmint_tui.core.tune import TuneAsked, Tuned, TuneStart, start_of, tune
from kmint_tui.errors import EnvironmentUnfit, UsageError
from kmint_tui.history.records import NewDraft, NewSession
from kmint_tui.history.tuned import TunedSessions
from kmint_tui.save.receipt import load
from referee.asked_shape import AskedShape
from referee.ops import cells, get
from referee.problem import TaskName
from referee.variant_timing import VariantsNotTimed, VariantTime
from referee.verdict import CellResult, Verdict
from tests.save.conftest import source

TALL, WIDE = "32768x1024:bfloat16", "8192x4096:bfloat16"
HERE = {"device": "NVIDIA H200", "torch": "2.11", "triton": "3.6"}
WHERE = "NVIDIA H200, torch 2.11, triton 3.6"
ROWS, LOOP = source("rows_softmax"), source("online_softmax")


def microseconds(text: str, shape: str) -> float:
    """Few rows a program suit tall inputs; a loop with more warps suits wide ones."""
    rows = "ROWS" in text
    time = {(True, TALL): 10.0, (False, TALL): 20.0, (True, WIDE): 30.0, (False, WIDE): 20.0}
    faster = ("num_warps=16" in text) if shape == WIDE else ("num_warps=4" in text and rows)
    return time[rows, shape] * (0.5 if faster else 1.0)


class StandIn:
    """In place of a GPU: times by `microseconds`, and verdicts with them."""

    def __init__(self) -> None:
        self.races: list[tuple[str, int]] = []
        self.judged: list[tuple[str, str]] = []
        self.fails_at = 10**9

    def time_variants(
        self, sources: Sequence[str], op: Any, *, seed: int | None = None
    ) -> Sequence[VariantTime]:
        (shape,) = op.shapes
        self.races.append((shape, len(sources)))
        if len(self.races) > self.fails_at:
            raise VariantsNotTimed("the GPU is gone")
        base = microseconds(sources[0], shape)
        times = [microseconds(one, shape) for one in sources]
        return [VariantTime(one, base / one) for one in times]

    def judge(self, text: str, op: Any, *, level: str = "full", **rest: Any) -> Verdict:
        self.judged.append((text, level))
        results = [
            CellResult(one.name, one.role, "pass") for one in cells(get("softmax"), profile="cpu")
        ]
        timing: dict[str, Any] | None = None
        if level == "full":
            shapes = [_timing(text, str(shape)) for shape in op.shapes]
            timing = {**shapes[0], "shapes": shapes, "geometric_mean": 1.5}
        return Verdict(
            "softmax", "win" if timing else "correct", "done", "fast", None, "replay",
            cells=tuple(results), timing=timing, environment=dict(HERE),
        )  # fmt: skip


def _timing(text: str, shape: str) -> dict[str, Any]:
    found, time = AskedShape.parse(shape), microseconds(text, shape)
    return {
        "cell": f"bf16-{found.rows}x{found.columns}-asked-x1",
        "bar": "compile",
        "decision": "win",
        "ratio": {"ratio": 24.0 / time, "low": 23.0 / time, "high": 25.0 / time},
        "device": {"candidate": {"median": time}},
    }


@pytest.fixture
def history() -> Iterator[TunedSessions]:
    """A history with one session: two right kernels, a copy of one, and a wrong one."""
    with TunedSessions(paths.history_file()) as opened:
        number = opened.begin(
            NewSession(
                op="softmax", model="smith", model_file="m.gguf", model_sha256="ab" * 32,
                system="s", user="u", seed=7, wanted=4, settings={}, environment={"torch": "2.11"},
            )
        )  # fmt: skip
        for at, text in enumerate((LOOP, ROWS, LOOP, LOOP.replace("total", "total * 2", 1))):
            opened.add_draft(
                number,
                NewDraft(
                    number=at, source=text, seed=at, temperature=0.7, tokens=9, seconds=1.0,
                    finish="stop", duplicate_of=0 if at == 2 else None,
                ),
            )  # fmt: skip
        for at, outcome in ((0, "correct"), (1, "correct"), (3, "rejected")):
            names = [
                CellResult(one.name, one.role, "pass")
                for one in cells(get("softmax"), profile="cpu")
            ]
            given = Verdict("softmax", outcome, "done", "", None, "replay", cells=tuple(names))  # type: ignore[arg-type]
            opened.set_verdict(number, at, given.to_json(), ratio=None)
        opened.finish(number, "done")
        yield opened


def test_a_tuned_kernel_of_the_template_is_not_the_smiths(history: TunedSessions) -> None:
    values: dict[str, Any] = {"seed": 0, "temperature": 0.0, "tokens": 0, "seconds": 0.0}
    written = NewDraft(number=4, source=ROWS, finish="stop", author="template", **values)
    swept = replace(written, number=5, parent=4, author="tuner", changes="num_warps=16")
    for one in (written, swept):
        history.add_draft(1, one)
    session = history.open(history.session(1), {"tuned": "1"}, {})
    copy = history.keep_copy(session, history.draft(1, 5))
    assert (copy.author, copy.changes) == ("template", "num_warps=16")


def tuned(
    history: TunedSessions,
    referee: StandIn,
    wanted: str = "1.0",
    minutes: float = 9.0,
    clock: Any = None,
    template: bool = False,
) -> Tuned:
    asked = TuneAsked(wanted=wanted, shapes=(TALL, WIDE), minutes=minutes, template=template)
    lines: list[str] = []
    return tune(
        history,
        start_of(history, asked),
        asked,
        Opened(referee, None, True, referee),  # type: ignore[arg-type]
        where=WHERE,
        cache=paths.cache_dir(),
        tell=lines.append,
        **({"clock": clock} if clock else {}),
    )


def test_each_shape_gets_its_own_winner(history: TunedSessions) -> None:
    found = tuned(history, StandIn())
    assert [(row.name, row.microseconds) for row in found.rows] == [(TALL, 5.0), (WIDE, 10.0)]
    tall, wide = (history.draft(found.session, int(one.partition(".")[2])) for one in found.ids)
    assert (tall.author, wide.author) == ("tuner", "tuner")
    assert "num_warps 8 -> 4" in tall.changes and "num_warps 4 -> 16" in wide.changes
    assert wide.maker("smith") == (
        f"the tuner ({wide.changes}), from draft {found.session}.0 of smith"
    )
    assert tall.parent == 1 and found.complete
    document = found.to_json()
    assert (document["session"], len(document["shapes"])) == ("2", 2)
    # The session that was tuned stays as it is.
    assert len(history.drafts(1)) == 4 and history.draft(1, 0).outcome == "correct"


def test_the_template_competes_at_each_shape(history: TunedSessions) -> None:
    class Tiles(StandIn):
        def time_variants(
            self, sources: Sequence[str], op: Any, *, seed: int | None = None
        ) -> Sequence[VariantTime]:
            self.races.append((op.shapes[0], len(sources)))
            times = [1.0 if "tl.num_programs" in one else 10.0 for one in sources]
            return [VariantTime(one, times[0] / one) for one in times]

    referee = Tiles()
    won = tuned(history, referee, template=True)
    assert {one.structure for one in won.sweeps} == {"512 persistent programs"}
    kernels = [one for one in won.drafts if one.author == "template"]
    assert kernels[0].maker("smith") == "kmint's template (512 persistent programs)"
    assert "tl.num_programs" in kernels[0].source
    refused = {one.changes: one.refused for one in won.sweeps[0].trials if one.us is None}
    assert refused["split"] == "not raced: more than 64 rows keep a card busy in one launch"
    # Two drafts and the template's kernels race together, once at each shape.
    assert referee.races[0][1] > 8


def test_nothing_is_raced_or_judged_twice(history: TunedSessions) -> None:
    first, again = StandIn(), StandIn()
    before = tuned(history, first)
    assert first.races and first.judged
    after = tuned(history, again)
    assert (again.races, again.judged) == ([], [])
    assert after.session == before.session and after.rows == before.rows
    other = start_of(history, TuneAsked(wanted="1.0", shapes=("64x4096:bf16",)))
    assert [str(one) for one in other.shapes] == ["64x4096:bfloat16"]


def test_an_interrupted_tune_goes_on_where_it_stopped(history: TunedSessions) -> None:
    whole, first, second = StandIn(), StandIn(), StandIn()
    first.fails_at = 3
    with pytest.raises(EnvironmentUnfit, match="the GPU is gone"):
        tuned(history, first)
    found = tuned(history, second)
    held = first.races[:3]
    assert held and second.races
    assert [row.microseconds for row in found.rows] == [5.0, 10.0]
    fresh = TunedSessions(paths.history_file())
    with fresh:
        for file in (paths.cache_dir() / "races").glob("*.json"):
            file.unlink()
        tuned(fresh, whole)
    assert whole.races == [*held, *second.races]


def test_a_damaged_cache_costs_time_only(history: TunedSessions) -> None:
    first, again = StandIn(), StandIn()
    before = tuned(history, first)
    for file in (paths.cache_dir() / "races").glob("*.json"):
        file.write_text('{"x": [1]}', encoding="utf-8")
    assert tuned(history, again).rows == before.rows
    assert again.races == first.races and again.judged == []


def test_a_budget_ends_the_races_and_not_the_verdicts(history: TunedSessions) -> None:
    steps = iter(range(10**6))
    referee = StandIn()
    found = tuned(history, referee, minutes=0.01, clock=lambda: float(next(steps)))
    assert not found.complete and {len(one.trials) for one in found.sweeps} == {1}
    assert [row.microseconds for row in found.rows] == [10.0, 20.0]
    assert all(level == "full" for _, level in referee.judged)
    # With more time the same request goes on.
    assert [row.microseconds for row in tuned(history, StandIn()).rows] == [5.0, 10.0]


def test_the_winners_are_saved_in_one_file(
    history: TunedSessions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    referee = StandIn()
    found = tuned(history, referee)
    monkeypatch.setattr(saving, "here", lambda: WHERE)
    referee.judged.clear()
    saved = save_tuned(history, referee, found.ids, tmp_path, None, tell=lambda words: None)  # type: ignore[arg-type]
    assert saved.choice is not None and saved.choice.entries == ("_run_1", "_run_2")
    assert [level for _, level in referee.judged] == ["correct", "correct"]
    receipt = load((tmp_path / "softmax.receipt.json").read_text(encoding="utf-8"))
    assert [(one["id"], one["model"][:9]) for one in receipt["entries"]] == [
        (found.ids[0], "the tuner"),
        (found.ids[1], "the tuner"),
    ]
    assert {(one["columns"], one["ratio"]) for one in receipt["shapes"]} == {
        (1024, 4.8),
        (4096, 2.4),
    }


def save(history: TunedSessions, folder: Path, *ids: str, **given: Any) -> Any:
    asked = {"shapes": (), "dtype": None, "outside": None, "no_gpu": "no CUDA device", **given}
    referee = asked.pop("referee", StandIn())
    return save_by_shape(
        history, referee, SaveAsked(ids=ids, **asked), folder, tell=lambda words: None
    )


def test_times_of_the_history_are_enough_without_a_gpu(
    history: TunedSessions, tmp_path: Path
) -> None:
    found = tuned(history, StandIn())
    referee = StandIn()
    saved, rows = save(history, tmp_path, *found.ids, referee=referee)
    assert saved.choice is not None and [row.ratio for row in rows] == [4.8, 2.4]
    assert [level for _, level in referee.judged] == ["correct", "correct"]


def test_one_kernel_keeps_its_times_in_the_receipt(history: TunedSessions, tmp_path: Path) -> None:
    found = tuned(history, StandIn())
    saved, rows = save(history, tmp_path, found.ids[0])
    assert saved.choice is None and [row.columns for row in rows] == [1024, 4096]
    receipt = load((tmp_path / "softmax.receipt.json").read_text(encoding="utf-8"))
    assert [one["ratio"] for one in receipt["shapes"]] == [4.8, 0.8]


def test_without_times_and_gpu_nothing_is_chosen(history: TunedSessions, tmp_path: Path) -> None:
    with pytest.raises(
        EnvironmentUnfit, match="draft 1.0 was not timed at 8192x4096:bfloat16"
    ) as told:
        save(history, tmp_path, "1.0", "1.1", shapes=(WIDE,))
    assert "kmint tune 1.0" in told.value.fix
    with pytest.raises(EnvironmentUnfit, match="no timed shape in common"):
        save(history, tmp_path, "1.0", "1.1")
    with pytest.raises(UsageError, match="not timed at a shape in common"):
        save(history, tmp_path, "1.0", "1.1", no_gpu=None)
    assert not list(tmp_path.iterdir())


def test_a_draft_that_is_the_fastest_nowhere_is_left_out(
    history: TunedSessions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saving, "here", lambda: WHERE)
    saved, rows = save(history, tmp_path, "1.0", "1.1", shapes=(TALL,), no_gpu=None)
    assert saved.choice is None and [row.draft for row in rows] == ["1.1"]
    text = (tmp_path / "softmax.py").read_text(encoding="utf-8")
    assert "SHAPES" not in text and "def _run(" in text
    receipt = load((tmp_path / "softmax.receipt.json").read_text(encoding="utf-8"))
    assert [(one["entry"], one["microseconds"]) for one in receipt["shapes"]] == [("_run", 10.0)]


def test_a_gain_within_the_noise_keeps_one_kernel() -> None:
    from kmint_tui.core.shape_times import fastest
    from tests.save.several import row

    one, two = AskedShape.parse("8x8:bf16"), AskedShape.parse("64x8:bf16")
    usual = {one: row("8x8:bfloat16", 1, 1.5), two: row("64x8:bfloat16", 1, 1.5)}
    other = {one: row("8x8:bfloat16", 2, 1.51), two: row("64x8:bfloat16", 2, 1.2)}
    assert [found.draft for found in fastest([usual, other], (one, two))] == ["12.1", "12.1"]
    other[one] = row("8x8:bfloat16", 2, 1.6)
    assert [found.draft for found in fastest([usual, other], (one, two))] == ["12.2", "12.1"]


def test_what_cannot_be_tuned_is_refused_first(history: TunedSessions) -> None:
    with pytest.raises(UsageError, match="1.3 is rejected"):
        start_of(history, TuneAsked(wanted="1.3"))
    with pytest.raises(UsageError, match="is no shape"):
        start_of(history, TuneAsked(wanted="1", shapes=("0x5",)))
    usual: TuneStart = start_of(history, TuneAsked(wanted="1"))
    assert [one.number for one in usual.drafts] == [0, 1]
    assert [str(one) for one in usual.shapes] == [
        "8192x4096:bfloat16",
        "32768x1024:bfloat16",
        "2048x16384:bfloat16",
    ]
    assert TaskName("softmax", shapes=(WIDE,)).shapes == (WIDE,)

"""The tuner: which constants it finds, how it changes them, what it picks, and to whom it is
attributed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kmint_tui.events import DraftFinished, Judged, MintEvent, Notice, Swept, Tuning, to_json
from kmint_tui.graph.operations import catalogue_program
from kmint_tui.history.store import History
from kmint_tui.mint import Mint
from kmint_tui.minting.knobs import describe, knobs, with_values
from kmint_tui.minting.resuming import Resumed, resumed
from kmint_tui.minting.tuning import MOST_VARIANTS, sweep
from kmint_tui.models.store import Choice
from referee.problem import TaskName
from referee.variant_timing import VariantsNotTimed, VariantTime
from referee.verdict import Verdict
from tests import tiny_models
from tests.cli.runner import kmint
from tests.mint.doubles import ScriptedReferee, ScriptedSmith, answer, verdict
from tests.mint.test_mint import history, last, model, request
from tests.referee.gpu.test_variant_timing import SLOW

pytestmark = pytest.mark.usefixtures("warm")
__all__ = ["history", "model"]

TALL, WIDE = "32768x1024:bfloat16", "8192x4096:bfloat16"
LOOP = """\
@triton.jit
def _kernel(x_ptr, y_ptr, N, BLOCK: tl.constexpr, EVEN: tl.constexpr):  # é
    pass


def run(x):
    BLOCK = 1024  # columns a step
    y = torch.empty_like(x)
    _kernel[(triton.cdiv(x.numel(), BLOCK),)](x, y, x.numel(), BLOCK=BLOCK, EVEN=1, num_warps=4)
    return y
"""
TWO = """\
@triton.jit
def _first(x_ptr, A: tl.constexpr):
    pass


@triton.jit
def _second(x_ptr, N, A: tl.constexpr, B: tl.constexpr):
    pass


def run(x):
    _first[(triton.cdiv(x.numel(), 256),)](x, A=256,)
    _second[(1,)](x, 64, 512, B=triton.next_power_of_2(7), num_warps=8 if x.numel() > 9 else 4, num_stages=2)
    return x
"""


def values(source: str) -> dict[tuple[int, str], str]:
    return {(knob.launch, knob.name): knob.written for knob in knobs(source)}


def turn(source: str, **wanted: int) -> str | None:
    return with_values(
        source, {knob: wanted[knob.name] for knob in knobs(source) if knob.name in wanted}
    )


def test_launch_constants_are_found() -> None:
    assert values(LOOP) == {(0, "BLOCK"): "1024", (0, "num_warps"): "4", (0, "num_stages"): "3"}
    # Neither what is computed, nor a number that is no block size, nor a plain argument is a
    # constant to turn.
    assert values(TWO) == {
        (0, "A"): "256",
        (0, "num_warps"): "4",
        (0, "num_stages"): "3",
        (1, "A"): "512",
        (1, "num_warps"): "8 if x.numel() > 9 else 4",
        (1, "num_stages"): "2",
    }


@pytest.mark.parametrize(
    "source",
    [
        "def run(x):\n    return x\n",
        "def run(x:\n",
        LOOP.replace("@triton.jit", "@triton.autotune(configs=[], key=[])\n@triton.jit"),
        LOOP.replace("BLOCK=BLOCK", "**{'BLOCK': BLOCK}"),
    ],
)
def test_what_has_no_constants_is_left_alone(source: str) -> None:
    assert knobs(source) == ()


def test_only_the_constants_are_rewritten() -> None:
    changed = turn(LOOP, BLOCK=2048, num_warps=8)
    assert changed == LOOP.replace("BLOCK = 1024", "BLOCK = 2048").replace(
        "num_warps=4", "num_warps=8"
    )
    added = turn(LOOP, num_stages=1)
    assert added == LOOP.replace("num_warps=4)", "num_warps=4, num_stages=1)")


def test_a_grid_that_holds_the_same_number_follows() -> None:
    (first, *_) = knobs(TWO)
    changed = with_values(TWO, {first: 128})
    assert changed == TWO.replace("x.numel(), 256),)](x, A=256,)", "x.numel(), 128),)](x, A=128,)")
    wide = with_values(
        TWO, {knob: 16 for knob in knobs(TWO) if (knob.launch, knob.name) == (0, "num_warps")}
    )
    assert wide == TWO.replace("A=256,)", "A=256, num_warps=16,)")


def test_an_assignment_that_is_not_the_only_one_is_left_alone() -> None:
    assert (0, "BLOCK") not in values(LOOP.replace("    y = ", "    BLOCK += 1\n    y = "))
    assert (0, "BLOCK") not in values(LOOP.replace("BLOCK = 1024", "BLOCK = 1000"))


def test_changes_in_words() -> None:
    block, warps, stages = knobs(LOOP)
    assert describe({block: 2048, warps: 4, stages: 1}) == "BLOCK 1024 -> 2048, num_stages 3 -> 1"


class Track:
    """Runs a race by a rule: microseconds by the variant's source. None refuses it."""

    def __init__(self, *faster: str) -> None:
        self.faster = faster
        self.races: list[list[str]] = []

    def time_variants(
        self, sources: Sequence[str], op: object = None, *, seed: int | None = None
    ) -> list[VariantTime]:
        self.races.append(list(sources))
        laps = []
        for source in sources:
            ratio = 1.0 + 0.2 * sum(word in source for word in self.faster)
            laps.append(
                VariantTime(None, None, "it does not fit")
                if "BLOCK = 4096" in source
                else VariantTime(20 / ratio, ratio)
            )
        return laps


def test_the_sweep_picks_the_fastest_and_says_what_it_tried() -> None:
    track = Track("num_warps=16", "num_stages=2", "BLOCK = 512")
    found = sweep(3, LOOP, track.time_variants)
    assert found.changes == "BLOCK 1024 -> 512, num_warps 4 -> 16, num_stages 3 -> 2"
    assert found.source == LOOP.replace("BLOCK = 1024", "BLOCK = 512").replace(
        "num_warps=4", "num_warps=16, num_stages=2"
    )
    assert len(track.races) == 2 and all(race[0] == LOOP for race in track.races)
    assert len(found.trials) == len(track.races[0]) + len(track.races[1]) - 2 <= 2 * MOST_VARIANTS
    assert "it does not fit" in {trial.refused for trial in found.trials}
    assert "1.600x" in found.reason
    assert found.to_json()["draft"] == 3 and "source" not in found.to_json()


def test_noise_is_no_gain() -> None:
    found = sweep(
        0,
        LOOP,
        lambda sources: [
            VariantTime(20, 1.0 + 0.0001 * number) for number, _ in enumerate(sources)
        ],
    )
    assert (found.source, found.changes) == (None, "")
    assert "faster by 1%" in found.reason


def tune(
    model: Choice, history: History, track: object, verdicts: dict[str, object]
) -> list[MintEvent]:
    marked = LOOP.replace("# é", "# 'slow'")
    referee = ScriptedReferee(verdicts)  # type: ignore[arg-type]
    smith = ScriptedSmith([answer(0, marked)])
    wanted = request(model, 1, tune=True)
    session = Mint(wanted, smith=smith, judge=referee, history=history, times=True, racer=track)  # type: ignore[arg-type]
    return list(session.run())


class Lenient(ScriptedReferee):
    """Gives the template's kernels, which have no word, the verdict of the smith's."""

    def judge(self, source: str, op: str | TaskName, **options: Any) -> Verdict:
        return super().judge(source if "'" in source else "'slow'", op, **options)


def test_a_structure_of_the_template_competes_in_a_sweep(model: Choice, history: History) -> None:
    """The winner is a draft of the template, and has no parent among the smith's."""
    program = catalogue_program("softmax")
    assert program is not None
    verdicts = {"slow@correct": verdict("correct"), "slow@full": verdict("win", ratio=1.2)}
    smith, referee = (
        ScriptedSmith([answer(0, LOOP.replace("# é", "# 'slow'"))]),
        Lenient(verdicts),
    )
    wanted = replace(request(model, 1, tune=True), program=program, template=True)
    session = Mint(
        wanted, smith=smith, judge=referee, history=history, times=True,
        racer=Track("tl.num_programs"),
    )  # fmt: skip
    result = last(list(session.run()))
    (swept,) = result.sweeps
    assert swept.structure == "512 persistent programs" and swept.source is not None
    won = next(one for one in result.drafts if one.source == swept.source)
    assert (won.author, won.parent, won.changes) == ("template", None, swept.words)
    assert won.index in result.verdicts
    assert all(trial.changes for trial in swept.trials)


def test_a_faster_kernel_is_a_draft_of_the_tuner(model: Choice, history: History) -> None:
    verdicts = {"slow@correct": verdict("correct"), "slow@full": verdict("win", ratio=1.2)}
    events = tune(model, history, Track("num_warps=8"), dict(verdicts))
    result = last(events)
    assert [type(event) for event in events if isinstance(event, (Tuning, Swept))] == [
        Tuning,
        Swept,
    ]
    first, tuned = result.drafts
    assert (tuned.index, tuned.author, tuned.parent, tuned.changes, tuned.tokens) == (
        1,
        "tuner",
        0,
        "num_warps 4 -> 8",
        0,
    )
    assert first.author == "smith"
    assert result.verdicts[1].verdict == "win"
    stored = history.drafts(result.session)[1]
    assert (
        stored.maker("tiny")
        == f"the tuner (num_warps 4 -> 8), from draft {result.session}.0 of tiny"
    )
    document = result.to_json()
    assert (
        document["tuning"]["draft"],
        document["tuning"]["changes"],
        document["drafts"][1]["author"],
    ) == (0, "num_warps 4 -> 8", "tuner")
    names = [to_json(event)["event"] for event in events]
    names = [name for name in names if name != "cases"]
    assert names[names.index("tuning") :] == [
        "tuning",
        "swept",
        "draft",
        "judging",
        "verdict",
        "done",
    ]


def test_when_nothing_is_faster_the_draft_stays_what_it_is(model: Choice, history: History) -> None:
    result = last(
        tune(
            model,
            history,
            Track(),
            {"slow@correct": verdict("correct"), "slow@full": verdict("win", ratio=1.2)},
        )
    )
    assert len(result.drafts) == 1
    assert result.sweeps[0].source is None


class ByShape(Track):
    """Another change is the fastest at each of two shapes."""

    def time_variants(
        self, sources: Sequence[str], op: object = None, *, seed: int | None = None
    ) -> list[VariantTime]:
        assert isinstance(op, TaskName)
        self.faster = ("num_warps=8",) if op.shapes == (TALL,) else ("BLOCK = 2048",)
        return super().time_variants(sources, op, seed=seed)


def two_shapes(model: Choice, history: History, earlier: Resumed | None = None) -> Mint:
    """A session that sweeps at two shapes."""
    won = verdict("win", ratio=1.2)
    return Mint(
        replace(request(model, 1, tune=True), task=TaskName("softmax", shapes=(TALL, WIDE))),
        smith=ScriptedSmith([answer(0, LOOP.replace("# é", "# 'slow'"))]),
        judge=ScriptedReferee({"slow@correct": verdict("correct"), "slow@full": won}),
        history=history,
        times=True,
        racer=ByShape(),
        earlier=earlier,
    )


BOTH = [("tuner", "num_warps 4 -> 8"), ("tuner", "BLOCK 1024 -> 2048")]


def test_each_asked_shape_has_a_sweep(model: Choice, history: History) -> None:
    result = last(list(two_shapes(model, history).run()))
    assert [one.shape for one in result.sweeps] == [TALL, WIDE]
    assert [(one.author, one.changes) for one in result.drafts[1:]] == BOTH
    assert [one["shape"] for one in result.to_json()["tuning"]["shapes"]] == [TALL, WIDE]


@pytest.mark.parametrize("left_at", [DraftFinished, Judged])
def test_a_session_left_at_a_tuned_kernel_goes_on_with_all(
    model: Choice, history: History, left_at: type[DraftFinished | Judged]
) -> None:
    with closing(two_shapes(model, history).run()) as events:
        for event in events:
            index = event.draft.index if isinstance(event, DraftFinished) else 0
            index = event.index if isinstance(event, Judged) else index
            if isinstance(event, left_at) and index == 1:
                break
    goes_on = two_shapes(model, history, resumed(1, history.drafts(1)))
    result = last(list(goes_on.run()))
    assert [(one.author, one.changes) for one in result.drafts[1:]] == BOTH
    assert set(result.verdicts) == {0, 1, 2} and not result.sweeps


def test_without_a_correct_kernel_nothing_is_swept(model: Choice, history: History) -> None:
    events = tune(model, history, Track(), {"slow": verdict("rejected", "correct")})
    assert not any(isinstance(event, (Tuning, Swept)) for event in events)
    assert last(events).to_json()["tuning"] is None


def test_a_race_that_cannot_be_held_costs_only_the_tuning(model: Choice, history: History) -> None:
    class Closed:
        def time_variants(
            self, sources: Sequence[str], op: object, *, seed: int | None = None
        ) -> list[VariantTime]:
            raise VariantsNotTimed("the GPU is gone")

    events = tune(
        model,
        history,
        Closed(),
        {"slow@correct": verdict("correct"), "slow@full": verdict("win", ratio=1.2)},
    )
    assert "the launch constants were not swept: the GPU is gone" in [
        event.text for event in events if isinstance(event, Notice)
    ]
    assert (last(events).state, last(events).best) == ("done", 0)


def test_timing_comes_before_tuning_and_tuned_are_judged(model: Choice, history: History) -> None:
    events = tune(
        model,
        history,
        Track("num_warps=8"),
        {"slow@correct": verdict("correct"), "slow@full": verdict("win", ratio=1.2)},
    )
    order = [
        type(event).__name__
        for event in events
        if isinstance(event, (Judged, Tuning, DraftFinished))
    ]
    assert order == ["DraftFinished", "Judged", "Judged", "Tuning", "DraftFinished", "Judged"]
    assert all(event.final for event in events if isinstance(event, Judged) and event.index == 1)


def test_without_a_gpu_tuning_is_refused_before_drafting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    done = kmint("mint", "softmax", "--tune", "--drafts", "1")
    assert done.code == 3
    assert done.out == ""
    assert "tuning needs a GPU" in done.err and "leave out --tune" in done.err
    assert kmint("history", "--json").document["sessions"] == []


@pytest.mark.gpu
def test_on_a_gpu_a_badly_launched_kernel_is_tuned(tmp_path: Path) -> None:
    path = tiny_models.scripted(tmp_path / "slow.gguf", [f"```python\n{SLOW}```".encode()])
    asked = ("mint", "relu2", "--model", str(path), "--no-template", "--json")
    done = kmint(*asked, "--drafts", "1", "--tune", "--save", str(tmp_path / "kernels"))
    assert done.code == 0, done.err
    document = done.document
    first, tuned = document["drafts"]
    assert (tuned["author"], tuned["parent"], document["best"]) == ("tuner", 0, 1)
    assert tuned["changes"] and tuned["source"] != first["source"]
    assert document["tuning"]["changes"] == tuned["changes"]
    assert all(trial["ratio"] or trial["refused"] for trial in document["tuning"]["trials"])
    gained = [draft["verdict"]["timing"]["ratio"]["ratio"] for draft in (first, tuned)]
    assert gained[1] > 1.1 * gained[0]
    assert {draft["verdict"]["environment"]["smith"] for draft in (first, tuned)} == {
        "idle: no draft is being written"
    }
    saved = (tmp_path / "kernels" / "relu2.py").read_text(encoding="utf-8")
    assert "Author:  the tuner (" in saved
    again = kmint(*asked, "--drafts", "4", "--until", "first").document
    assert all(
        draft["verdict"]["environment"]["smith"].startswith("idle")
        for draft in again["drafts"]
        if (draft["verdict"] or {}).get("timing")
    )

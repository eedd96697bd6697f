"""Which drafts go back, with which words, in which runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kmint_tui.minting.drafting import feedback, first_round, repairs
from kmint_tui.minting.drafts import MintDraft
from kmint_tui.minting.request import MintRequest
from kmint_tui.models.check import check
from kmint_tui.models.store import Choice
from kmint_tui.smith.prompts import build
from kmint_tui.smith.sampling import Sampling
from referee.ops import get
from referee.verdict import CellResult, Stage, Verdict
from tests import tiny_models
from tests.mint.doubles import verdict


@pytest.fixture(scope="module")
def request_(tmp_path_factory: pytest.TempPathFactory) -> MintRequest:
    model = Choice(
        "tiny",
        check(tiny_models.llama(tmp_path_factory.mktemp("model") / "tiny.gguf")),
        None,
        "named by path",
    )
    return MintRequest(
        get("softmax"),
        "softmax",
        model,
        "ab" * 32,
        build(get("softmax"), "card"),
        5,
        7,
        Sampling(),
        64,
    )


def draft(index: int, duplicate_of: int | None = None, *, truncated: bool = False) -> MintDraft:
    return MintDraft(
        index, "x", 10 + index, 1.0, "stop", 0, 0.7, truncated=truncated, duplicate_of=duplicate_of
    )


def rejected(
    reason: str, *, guard: str = "wrong_answer", cells: tuple[CellResult, ...] = ()
) -> Verdict:
    return replace(verdict("rejected", "correct"), reason=reason, guard=guard, cells=cells)


def test_the_first_round_is_the_request(request_: MintRequest) -> None:
    (batch,) = first_round(request_)
    assert (batch.prompt, batch.seed, batch.round, list(batch.numbers)) == (
        request_.prompt,
        7,
        0,
        [0, 1, 2, 3, 4],
    )
    assert [batch.parent(number) for number in batch.numbers] == [None] * 5


def test_rejected_drafts_go_back_each_with_what_was_said_of_it(request_: MintRequest) -> None:
    drafts = [draft(0), draft(1), draft(2), draft(3, duplicate_of=1), draft(4)]
    verdicts = {
        0: verdict("correct"),
        1: rejected("it is off"),
        2: rejected("it is late"),
        4: verdict("error"),
    }
    (batch,) = repairs(request_, 1, 5, drafts, verdicts)
    assert (batch.parents, list(batch.numbers), batch.drafts, batch.round) == (
        (1, 2, 3),
        [5, 6, 7],
        3,
        1,
    )
    assert [batch.parent(number) for number in batch.numbers] == [1, 2, 3]
    assert isinstance(batch.prompt, tuple)
    one, other, again = batch.prompt
    assert one.user == request_.prompt.user + (
        "\nYour previous attempt's harness feedback: correct: it is off\nFix it and make it faster."
    )
    assert (one.system, again) == (request_.prompt.system, one)
    assert "it is late" in other.user
    assert batch.seed != request_.seed
    assert repairs(request_, 1, 5, drafts, verdicts) == (batch,)
    assert repairs(replace(request_, seed=8), 1, 5, drafts, verdicts)[0].seed != batch.seed


def test_what_was_not_judged_or_passed_does_not_go_back(request_: MintRequest) -> None:
    drafts = [draft(0), draft(1), replace(draft(2), finish="cancelled")]
    assert (
        repairs(request_, 1, 3, drafts, {0: verdict("loss", ratio=0.5), 1: verdict("error")}) == ()
    )


def test_a_draft_that_was_cut_off_is_told_so() -> None:
    said = feedback(draft(1, truncated=True), rejected("'(' was never closed"), "full")
    assert (
        said
        == "the answer was cut off after 11 tokens, write a shorter kernel; correct: '(' was never closed"
    )


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (0.1684, "incorrect: error 0.168 at f32-5x1000-mixed-x1, 2039 elements over the tolerance"),
        (float("nan"), "incorrect: the output holds NaN at f32-5x1000-mixed-x1"),
        (None, "incorrect: the output holds NaN at f32-5x1000-mixed-x1"),
    ],
)
def test_in_brief_a_wrong_answer_is_where_and_how_far(error: float | None, words: str) -> None:
    cells = (
        CellResult("f16-1x1", "required", "pass"),
        CellResult("f32-5x1000-mixed-x1", "required", "fail", error=error, budget=1e-5),
    )
    reason = "at f32-5x1000-mixed-x1: 2039 of 5000 elements wrong, worst at row 4, column 125: got 0.1, expected 0; check the formula"
    assert feedback(draft(0), rejected(reason, cells=cells), "brief").startswith(words)


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        ("screen", "screen"),
        ("compile", "compile"),
        ("correct", "incorrect"),
        ("honest", "incorrect"),
    ],
)
def test_in_brief_anything_else_is_the_stage(stage: Stage, words: str) -> None:
    said = replace(rejected("line 5: `col` is not defined", guard="kernel_name"), stage=stage)
    assert feedback(draft(0), said, "brief") == words

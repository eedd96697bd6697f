"""The end of a session in words: the counts, the best kernel, and one line for equal drafts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kmint_tui.cli.progress import MintProgress
from kmint_tui.cli.report import show_result
from kmint_tui.cli.streams import Diagnostics, Output
from kmint_tui.core.session_state import LiveSession
from kmint_tui.events import Choices, DraftFinished, Finished, Judged, Notice
from kmint_tui.minting.drafts import MintDraft
from kmint_tui.minting.request import MintRequest
from kmint_tui.minting.result import MintResult, best, best_of, how_many, ranges, rank
from kmint_tui.models.check import check
from kmint_tui.models.store import Choice
from kmint_tui.smith.events import Choice as EngineChoice
from kmint_tui.smith.prompts import build
from kmint_tui.smith.sampling import Sampling
from referee.ops import get
from referee.verdict import CellResult, Verdict
from tests import tiny_models
from tests.mint.doubles import verdict

REASON = "2 cases agree with float64. Nothing was timed."


@pytest.fixture(scope="module")
def request_(tmp_path_factory: pytest.TempPathFactory) -> MintRequest:
    path: Path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    model = Choice("tiny", check(tiny_models.llama(path)), None, "named")
    op = get("softmax")
    return MintRequest(op, "softmax", model, "ab" * 32, build(op, "card"), 8, 7, Sampling(), 64)


def correct() -> Verdict:
    cells = tuple(
        CellResult(name, role, "pass")
        for name, role in (("a", "required"), ("b", "required"), ("c", "capability"))
    )
    return replace(verdict("correct"), reason=REASON, cells=cells)


def draft(index: int, same: int | None = None, author: str = "smith") -> MintDraft:
    tokens = 0 if author == "template" else 200 + index
    return MintDraft(
        index,
        "x" * (9 - index),
        tokens,
        1.0,
        "stop",
        1,
        0.7,
        duplicate_of=same,
        author=author,  # type: ignore[arg-type]
    )


def result(
    request_: MintRequest, drafts: list[MintDraft], verdicts: dict[int, Verdict]
) -> MintResult:
    ranking = rank(drafts, verdicts)
    chosen = best(ranking, verdicts)
    return MintResult(
        request=request_,
        session=4,
        state="done",
        drafts=tuple(drafts),
        verdicts=verdicts,
        ranking=ranking,
        best=chosen,
        seconds=1.0,
    )


def printed(capsys: pytest.CaptureFixture[str], found: MintResult) -> list[str]:
    show_result(Output(), found)
    return capsys.readouterr().out.splitlines()


def test_equal_drafts_share_a_row(
    request_: MintRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reason is short in a row; the whole one stands once below the table."""
    drafts = [draft(0), draft(1), *(draft(index, 1) for index in range(2, 8))]
    drafts.append(draft(8, 1, "template"))
    lines = printed(capsys, result(request_, drafts, {0: correct(), 1: correct()}))
    assert [line.split()[0] for line in lines[1:5]] == ["4.0", "4.1", "4.2", "4.8"]
    assert lines[1].split()[1:] == ["200", "correct", "2", "cases"]
    assert lines[3].split() == "4.2 to 4.7 202 to 207 same the same kernel as 4.1".split()
    assert lines[4].endswith("by kmint's template; the same kernel as 4.1")
    assert lines[5:] == [
        "",
        "8 of 8 drafts correct; kmint's template: the same kernel as 4.1",
        "best: 4.0, level with the next one in spills, bytes moved and registers (not timed)",
        REASON,
    ]


def test_the_template_is_no_draft_of_the_smith(request_: MintRequest) -> None:
    """A correct kernel of the template adds nothing to the smith's count, and is named if best."""
    drafts = [draft(0), draft(1, author="template")]
    found = result(request_, drafts, {0: verdict("rejected", "trace"), 1: correct()})
    assert how_many(found) == "0 of 1 drafts correct; kmint's template: correct"
    assert best_of(found) == "best: 4.1 by kmint's template, the only correct kernel (not timed)"
    fallen = result(request_, drafts, {0: correct(), 1: verdict("rejected", "trace")})
    assert how_many(fallen).endswith("; kmint's template: rejected: trace: it is rejected")


def test_the_best_timed_kernel_is_ranked_by_its_time(request_: MintRequest) -> None:
    found = result(request_, [draft(0)], {0: verdict("win", ratio=1.25)})
    assert best_of(found) == "best: 4.0, win, 1.250x the fastest baseline"
    assert best_of(result(request_, [draft(0)], {})) == "no kernel passed"


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"spills": 8}, "the fewest bytes spilled: 0 a thread"),
        (
            {"traffic": 2.0, "registers": 16},
            "the fewest bytes moved: 1.00 times inputs and outputs",
        ),
        ({"registers": 48}, "the fewest registers: 32 a thread"),
        ({}, "level with the next one in spills, bytes moved and registers"),
    ],
)
def test_without_a_time_the_leading_figure_is_named(
    request_: MintRequest, other: dict[str, float], words: str
) -> None:
    own: dict[str, float] = {"spills": 0, "traffic": 1.0, "registers": 32}
    verdicts = {0: verdict("correct", compiled=own | other), 1: verdict("correct", compiled=own)}
    found = result(request_, [draft(0), draft(1)], verdicts)
    assert best_of(found) == f"best: 4.{1 if other else 0}, {words} (not timed)"


@pytest.mark.parametrize(
    ("numbers", "words"),
    [([], ""), ([2], "#2"), ([2, 3], "#2 to #3"), ([1, 3, 4, 5, 9], "#1, #3 to #5, #9")],
)
def test_ranges_of_numbers_in_words(numbers: list[int], words: str) -> None:
    assert ranges(numbers, "#") == words


def events() -> Iterator[DraftFinished | Judged | Choices]:
    yield Choices((EngineChoice("threads", "2", "measured"),))
    yield DraftFinished(4, draft(1))
    for index in range(2, 8):
        yield DraftFinished(4, draft(index, 1))
    yield Judged(4, 1, correct(), True)
    yield DraftFinished(4, draft(8, 1, "template"))


@pytest.mark.parametrize("debug", [False, True])
def test_lines_of_progress(
    request_: MintRequest, capsys: pytest.CaptureFixture[str], debug: bool
) -> None:
    """Duplicates share a line; the settings of the engine are shown with --debug only."""
    progress = MintProgress(Diagnostics(), debug=debug)
    for event in (*events(), Finished(result(request_, [], {}))):
        progress.show(event)
    assert capsys.readouterr().err.splitlines() == [
        *(["smith: threads 2"] if debug else []),
        "#2 to #7: the same kernel as #1",
        "#1: 201 tokens, correct: 2 cases",
        "kmint's template: the same kernel as #1",
    ]


def test_duplicates_come_before_a_later_note(capsys: pytest.CaptureFixture[str]) -> None:
    progress = MintProgress(Diagnostics())
    for event in (DraftFinished(4, draft(2, 1)), DraftFinished(4, draft(3, 0)), Notice("so")):
        progress.show(event)
    assert capsys.readouterr().err.splitlines() == [
        "#2: the same kernel as #1",
        "#3: the same kernel as #0",
        "so",
    ]


def test_a_terminal_shows_equal_drafts_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    progress = MintProgress(Diagnostics(live=True))
    for event in events():
        progress.show(event)
    last = capsys.readouterr().err.split("A\r")[-1]
    assert [line.split("2K")[-1].split() for line in last.split("\n")[:-1]] == [
        "#1 201 tokens correct: 2 cases".split(),
        "#2 to #7, kmint's template the same kernel as #1".split(),
    ]


def test_the_application_counts_like_the_command_line() -> None:
    """Duplicates count, the template does not."""
    session = LiveSession()
    session.apply(events())
    assert session.passed == 7
    assert session.drafts[1].brief == "2 cases"
    assert session.drafts[1].why == REASON
    assert session.drafts[8].why == "by kmint's template; the same kernel as draft 1"

"""`kmint judge --keep NAME`: kernels of others as drafts of a session."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kmint_tui import paths
from kmint_tui.errors import UsageError
from kmint_tui.history.named import NamedSessions, session_name
from kmint_tui.history.store import History
from tests.cli.runner import kmint
from tests.cli.test_bad_input import refused
from tests.save.test_host_code import GOOD

pytestmark = pytest.mark.usefixtures("warm")

WRONG = GOOD.replace("x / tl.sum(x, axis=0)", "x")


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_drafts_of_an_agent_are_kept_ranked_and_saved(tmp_path: Path) -> None:
    wrong, good = write(tmp_path / "softmax_1.py", WRONG), write(tmp_path / "softmax_2.py", GOOD)
    first = kmint("judge", wrong, "--keep", "agent one", "--json")
    assert (first.code, first.document["draft"]) == (1, "1.0")
    assert "kept as draft 1.0; none passes yet" in first.err
    second = kmint("judge", good, "--keep", "agent one", "--json")
    assert (second.code, second.document["draft"]) == (0, "1.1")
    assert "the best so far" in second.err
    session = kmint("history", "show", "1", "--json").document
    assert (session["model"], session["op"], session["state"], session["wanted"]) == (
        "agent one",
        "softmax",
        "done",
        2,
    )
    assert [draft["outcome"] for draft in session["drafts"]] == ["rejected", "correct"]
    (listed,) = kmint("history", "--json").document["sessions"]
    assert (listed["drafted"], listed["passed"], listed["best"]) == (2, 1, "correct")
    saved = kmint("save", "1.1", "--to", str(tmp_path / "kernels"), "--json")
    assert saved.code == 0, saved.err
    assert "the model agent one" in (tmp_path / "kernels" / "softmax.py").read_text(
        encoding="utf-8"
    )
    refused(kmint("crowns", "claim", "1.1"), 2, "only a timed win")


def test_the_same_kernel_is_one_draft_per_task() -> None:
    with NamedSessions(paths.history_file()) as sessions:
        first = sessions.keep("a", "softmax", GOOD, settings={}, environment={})
        again = sessions.keep("a", "softmax", GOOD + "\n# a comment\n", settings={}, environment={})
        wrong = sessions.keep("a", "softmax", WRONG, settings={}, environment={})
        other = sessions.keep("a", "rmsnorm", GOOD, settings={}, environment={})
        inputs = sessions.keep(
            "a", "softmax", GOOD, settings={"inputs": ["x=f32[N]"]}, environment={}
        )
        assert [one.id for one in (first, again, wrong, other, inputs)] == [
            "1.0",
            "1.0",
            "1.1",
            "2.0",
            "3.0",
        ]
        assert sessions.best(1) is None


def test_the_best_is_the_winner_then_the_faster_then_the_shorter() -> None:
    outcomes = [("rejected", None), ("correct", None), ("tie", 1.0), ("win", 1.2), ("win", 1.4)]
    with NamedSessions(paths.history_file()) as sessions:
        found = []
        for number, (outcome, ratio) in enumerate(outcomes):
            sessions.keep(
                "a", "softmax", f"def run(x): return {number}", settings={}, environment={}
            )
            sessions.set_verdict(1, number, {"verdict": outcome}, ratio=ratio)
            best = sessions.best(1)
            found.append(best.number if best else None)
    assert found == [None, 1, 2, 3, 4]


def test_two_processes_add_to_one_session_and_lose_nothing() -> None:
    code = (
        "import sys; from kmint_tui import paths; from kmint_tui.history.named import NamedSessions\n"
        "with NamedSessions(paths.history_file()) as sessions:\n"
        "    for number in range(20):\n"
        "        source = f'def run(x): return {number} * {sys.argv[1]}'\n"
        "        sessions.keep('a', 'softmax', source, settings={}, environment={})"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, str(number)]) for number in (1, 2)]
    assert [process.wait() for process in running] == [0, 0]
    with History(paths.history_file()) as history:
        assert history.draft_numbers(1) == tuple(range(40))


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "\x1b[1m", "x" * 61])
def test_a_name_is_one_short_line(name: str) -> None:
    with pytest.raises(UsageError, match="cannot name a session"):
        session_name(name)


def test_a_level_that_says_nothing_is_not_kept(tmp_path: Path) -> None:
    refused(
        kmint("judge", write(tmp_path / "softmax.py", GOOD), "--keep", "a", "--level", "screen"),
        2,
        "--keep",
        "--level screen",
    )
    assert not paths.history_file().exists()

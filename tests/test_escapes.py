"""No text of a stranger steers the terminal: the function itself, and the two writers."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from kmint_tui import paths
from kmint_tui.cli.streams import Cell, Diagnostics, Output, Table
from kmint_tui.errors import UsageError
from kmint_tui.escapes import visible, visible_json, visible_line, without_unsafe
from tests.cli.runner import kmint
from tests.evil import EVIL, SOURCE, STEERS, fill_evil

pytestmark = pytest.mark.usefixtures("warm")

texts = st.text(st.characters(exclude_categories=())) | st.text(
    st.sampled_from(EVIL + "\ud800\n\t\U000e0041é👍")
)


@given(texts)
def test_visible_text_steers_nothing(text: str) -> None:
    assert not STEERS.search(visible(text))
    assert not STEERS.search(visible_line(text)) and not {"\n", "\t"} & set(visible_line(text))
    assert visible(text).count("\n") == text.count("\n")


@given(texts)
def test_json_in_visible_form_holds_the_same(text: str) -> None:
    for indent in (None, 2):
        shown = visible_json(json.dumps({text: [text]}, ensure_ascii=False, indent=indent))
        assert not STEERS.search(shown) and json.loads(shown) == {text: [text]}


@given(texts)
def test_text_without_unsafe_is_as_wide_as_before(text: str) -> None:
    assert not STEERS.search(without_unsafe(text))
    assert cell_len(without_unsafe(text)) == cell_len(text)


def test_nothing_written_to_stdout_steers(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output()
    out.text(EVIL)
    out.heading(EVIL)
    out.table(Table((EVIL, "b"), [(EVIL, Cell(f"{EVIL}\n", "red")), ("x", "y")]))
    out.pairs([(EVIL, f"{EVIL}\nverdict  win")])
    out.document("kmint.test/1", {EVIL: EVIL})
    out.record({EVIL: EVIL})
    written = capsys.readouterr().out
    assert not STEERS.search(written)
    assert "\nverdict  win" not in written, "a value adds no line of its own"
    assert "\\x1b]52" in written and '"e\\u001b]52' in written


def test_nothing_written_to_stderr_steers(capsys: pytest.CaptureFixture[str]) -> None:
    err = Diagnostics()
    err.error(UsageError(EVIL, fix=EVIL, title=EVIL))
    err.note(EVIL)
    err.hint(EVIL)
    err.internal(RuntimeError(EVIL), debug=False)
    err.internal(RuntimeError(EVIL), debug=True)
    written = capsys.readouterr().err
    assert not STEERS.search(written) and written.count("\\x1b]52") >= 5
    (log,) = paths.log_dir().glob("fault-*.log")
    assert not STEERS.search(log.read_text())
    Diagnostics(live=True).block([EVIL])
    assert not STEERS.search(re.sub(r"\x1b\[(2K|J)|\r", "", capsys.readouterr().err))


COMMANDS: tuple[list[str], ...] = (
    [],
    ["--json"],
    ["show", "1"],
    ["show", "1.0"],
    ["show", "1.0", "--json"],
    ["show", "1", "--json"],
    ["diff", "1.0", "1.1"],
    ["export"],
)


@pytest.mark.parametrize("arguments", COMMANDS)
def test_no_history_command_steers(arguments: list[str]) -> None:
    fill_evil()
    done = kmint("history", *arguments)
    assert done.code in (0, 1) and done.out
    assert not STEERS.search(done.out + done.err)


def test_no_completion_steers() -> None:
    """click writes these itself, one a line with its help."""
    fill_evil()
    offered = kmint(
        _KMINT_COMPLETE="zsh_complete", COMP_WORDS="kmint history show ", COMP_CWORD="3"
    ).out
    assert "52;c;ZXZpbA" in offered and not STEERS.search(offered)


def test_a_source_is_exact_in_a_pipe() -> None:
    """`kmint history show ID --source > kernel.py` stores what was drafted."""
    fill_evil()
    assert kmint("history", "show", "1.0", "--source").out == SOURCE

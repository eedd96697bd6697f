"""Nothing that `kmint history import` reads can break the history: bad lines are left out, what
comes in can be shown."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kmint_tui import paths
from kmint_tui.cli.main import main
from kmint_tui.crowns.records import NoClaim, claim
from kmint_tui.crowns.store import Crowns
from kmint_tui.errors import KmintError, UsageError
from kmint_tui.history import transfer
from kmint_tui.history.records import Reference
from kmint_tui.history.session_lines import MAX_LINE_BYTES
from kmint_tui.history.store import History
from kmint_tui.history.transfer import export, remove, take_in
from kmint_tui.history.verdicts import verdict_document
from kmint_tui.save.saving import _measured, prepare
from kmint_tui.typed import Mistyped
from kmint_tui.widgets.bars import bars
from kmint_tui.widgets.spread import spread
from referee.ops import get
from tests.cli.runner import kmint
from tests.history.test_transfer import stream
from tests.sampling import sample
from tests.save.test_saving import SESSION, draft, verdict
from tests.tui.filled import change, fill, fill_crowns

pytestmark = pytest.mark.usefixtures("warm")

INSTEAD: tuple[Any, ...] = (
    "text",
    "",
    -1,
    0,
    1.5,
    True,
    None,
    [],
    {},
    [1],
    {"a": 1},
    2**63,
    1e300,
    -1e300,
    "x" * 50_000,
    [[]],
    [None],
)


@pytest.fixture
def exported() -> list[dict[str, Any]]:
    """Sessions with drafts of every kind, as they were exported; the history itself is empty
    again."""
    fill()
    found = [one for one in export(paths.history_file()) if isinstance(one, dict)]
    for beside in paths.history_file().parent.iterdir():
        beside.unlink()
    return found


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a document, of a list the first item."""
    yield path
    items = (
        value.items()
        if isinstance(value, dict)
        else list(enumerate(value))[:1]
        if isinstance(value, list)
        else ()
    )
    for name, item in items:
        yield from places(item, (*path, name))


def changed(document: Any, path: tuple[Any, ...], value: Any, *, lost: bool = False) -> Any:
    """A copy of the document with another value at that place, or without it."""
    if not path:
        return value
    copied = copy.deepcopy(document)
    at = copied
    for name in path[:-1]:
        at = at[name]
    if lost:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return copied


def mutants(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The document with each of its values replaced by another kind of value, or left out: a sample
    with every place and every kind.
    """
    edits = [
        (path, value, lost)
        for path in places(document)
        for value, lost in (*((value, False) for value in INSTEAD), *([(None, True)] * bool(path)))
    ]
    for path, value, lost in sample(edits):
        yield changed(document, path, value, lost=lost)


def test_whatever_is_taken_in_can_be_shown(
    exported: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    """One value of another type made the listing end with a fault of kmint's own, for ever."""
    document = {**exported[0], "drafts": exported[0]["drafts"][1:3]}
    lines = list(mutants(document))
    for number, line in enumerate(lines):
        if isinstance(line, dict) and line.get("seed") == document["seed"]:
            line["seed"] = number
    done = take_in(paths.history_file(), stream(document, *lines))
    assert done.left_out > len(lines) / 2 and done.sessions > 100
    assert main(["history", "--limit", "10000"]) == 0
    with History(paths.history_file()) as history:
        numbers = history.session_numbers()
        for number in numbers:
            drafts = history.drafts(number)
            assert main(["history", "show", str(number)]) == 0
            assert [main(["history", "show", draft.id]) for draft in drafts] == [0] * len(drafts)
            for draft in drafts:
                timing = (draft.verdict or {}).get("timing")
                shown = (
                    (bars(timing), spread(timing), _measured(draft.verdict or {})) if timing else ()
                )
                assert all(part is not None for part in shown)
                try:
                    claim(history.session(number), draft)
                except NoClaim:
                    pass
    assert sum(isinstance(one, dict) for one in export(paths.history_file())) == len(numbers)
    capsys.readouterr()


BAD = {
    "not JSON": "{",
    "no session": "[]",
    "another schema": '{"schema": "kmint.session/2"}',
    "a bare schema": '{"schema": "kmint.session/1"}',
    "a web page": "<html><body>Sign in</body></html>",
    "deep": "[" * 100_000,
    "a deep session": '{"schema": "kmint.session/1", "settings": '
    + '{"a":' * 5000
    + "1"
    + "}" * 5001,
}


@pytest.mark.parametrize("line", BAD.values(), ids=BAD)
def test_a_bad_line_costs_only_itself(exported: list[dict[str, Any]], line: str) -> None:
    done = take_in(paths.history_file(), stream(exported[0], line, "", exported[1]))
    assert (done.sessions, done.left_out, [bad.number for bad in done.named]) == (2, 1, [2])
    assert done.named[0].reason and "\n" not in done.named[0].reason


def test_the_command_names_what_is_left_out(exported: list[dict[str, Any]], tmp_path: Path) -> None:
    wrong = changed(exported[0], ("drafts", 0, "ratio"), "fast")
    (tmp_path / "mixed.jsonl").write_bytes(
        stream(wrong, exported[1], *["{"] * 30).getvalue() + b"\xff\xfe\n"
    )
    done = kmint("history", "import", str(tmp_path / "mixed.jsonl"))
    assert done.code == 1 and done.out == ""
    assert "line 1 is left out: drafts[0].ratio must be a number, not text" in done.err
    assert (
        "1 sessions with 1 drafts taken in, 0 were here already; 32 lines are left out" in done.err
    )
    assert len(done.err.splitlines()) < 25
    (tmp_path / "page.html").write_text("<html>\nSign in\n</html>\n")
    refused = kmint("history", "import", str(tmp_path / "page.html"))
    assert refused.code == 2 and "a web page" in refused.err and len(refused.err.splitlines()) == 2
    assert kmint("history").code == 0


def test_a_file_of_bad_lines_ends(
    exported: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gigabytes of something else are not read to their end, and what came before stays."""
    monkeypatch.setattr(transfer, "MOST_LEFT_OUT", 50)
    lines = stream(exported[0], *["x"] * 51, exported[1])
    with pytest.raises(
        UsageError, match="more than 50 lines are no session; line 2: it is not JSON"
    ) as refused:
        take_in(paths.history_file(), lines)
    assert "1 sessions were taken in" in refused.value.fix and lines.read() != b""
    with History(paths.history_file()) as history:
        assert history.session_numbers() == (1,)


LONG_LINE = """
import sys
for _ in range(300):
    sys.stdout.buffer.write(b"[" * (1 << 20))
sys.stdout.buffer.write(b"\\n" + sys.argv[1].encode() + b"\\n")
"""


def test_a_line_of_300_mb_takes_bounded_memory(exported: list[dict[str, Any]]) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LONG_LINE, json.dumps(exported[0])], stdout=subprocess.PIPE
    ) as writer:
        command = [
            "prlimit",
            f"--as={400 << 20}",
            sys.executable,
            "-m",
            "kmint_tui",
            "history",
            "import",
            "-",
        ]
        done = subprocess.run(command, stdin=writer.stdout, capture_output=True)
    assert done.returncode == 1, done.stderr.decode()
    assert (
        b"line 1 is left out: it is longer than 32 MiB" in done.stderr
        and b"1 sessions with" in done.stderr
    )


@pytest.mark.parametrize(
    ("text", "around"),
    [("[],", "[]"), ('"\\u0101a",', "[]"), ('{"a":{}},', "[]"), ("1.5,", "[]"), ("😀", '""')],
)
def test_a_line_of_the_longest_kind_is_bounded_too(text: str, around: str) -> None:
    """Within the bound, a line is refused before more is made of it than a process may take."""
    code = "import sys; from kmint_tui.history.session_lines import read_lines"
    code += "; print(*read_lines(sys.stdin.buffer))"
    filled = text.encode()
    begin, end = around.encode()
    content = filled * ((MAX_LINE_BYTES - 100) // len(filled))
    line = b'{"schema": "kmint.session/1", "settings": %c%s1%c}\n' % (begin, content, end)
    command = ["prlimit", f"--as={500 << 20}", sys.executable, "-c", code]
    done = subprocess.run(command, input=line, capture_output=True)
    assert done.returncode == 0 and b"BadLine(number=1" in done.stdout, done.stderr.decode()


def test_a_session_keeps_its_number_where_it_is_free(exported: list[dict[str, Any]]) -> None:
    take_in(paths.history_file(), stream(*exported))
    remove(paths.history_file(), Reference(2, None))
    take_in(paths.history_file(), stream(exported[1]))
    with History(paths.history_file()) as history:
        assert (
            history.session_numbers() == (1, 2, 3)
            and history.session(2).model == exported[1]["model"]
        )
        taken = {**exported[1], "started": "2027-01-01T00:00:00+00:00"}
        take_in(
            paths.history_file(),
            stream(taken, {**taken, "seed": 1, "id": 10**15}, {**taken, "seed": 2, "id": True}),
        )
        assert history.session_numbers() == (1, 2, 3, 4, 5, 6), (
            "a number that is taken, or far away, is not kept"
        )


def test_a_number_that_a_crown_names_is_not_given_away(exported: list[dict[str, Any]]) -> None:
    """Crowns outlive their sessions, and name the draft by its id."""
    fill()
    fill_crowns()
    stored = [one for one in export(paths.history_file()) if isinstance(one, dict)]
    remove(paths.history_file(), Reference(1, None))
    stranger = changed(
        {**stored[0], "started": "2027-01-01T00:00:00+00:00"},
        ("drafts", 1, "source"),
        "# another kernel\n",
    )
    take_in(paths.history_file(), stream(stranger))
    # Two sessions of the filled history begin at the same moment with the same seed, and would be
    # taken for one.
    take_in(paths.history_file(), stream({**stored[0], "seed": 8}))
    with History(paths.history_file()) as history, Crowns(paths.history_file()) as crowns:
        reign = next(reign for reign in crowns.reigns(past=True) if reign.draft == "1.1")
        assert history.draft(1, 1).source == reign.source
        assert history.session_numbers() == (1, 2, 3, 4, 5, 6)


def test_a_session_cut_short_comes_in_again(exported: list[dict[str, Any]]) -> None:
    assert (
        take_in(paths.history_file(), stream({**exported[0], "state": "cut short"})).sessions == 1
    )
    with History(paths.history_file()) as history:
        assert history.session(1).state == "stopped"


def test_what_an_earlier_kmint_let_in_breaks_no_listing() -> None:
    """Columns of SQLite hold any type, so a history may have text where a number belongs."""
    fill()
    change("UPDATE drafts SET ratio = 'fast', tokens = 'many' WHERE session = 1 AND number = 1")
    change("UPDATE sessions SET wanted = 'some' WHERE id = 2")
    change(
        """UPDATE drafts SET verdict = '{"verdict": "rejected", "reason": "", "checks": 5}' WHERE
        session = 2"""
    )
    listed = kmint("history")
    assert listed.code == 0 and len(listed.out.splitlines()) == 4
    for wanted in ("1.1", "2", "2.0"):
        refused = kmint("history", "show", wanted)
        assert refused.code == 3 and "kmint history rm" in refused.err, refused
    for wanted in ("1.1", "2"):
        assert kmint("history", "rm", wanted, "--yes").code == 0
    assert kmint("history", "show", "1").code == 0
    with pytest.raises(KmintError, match="no session 2"), History(paths.history_file()) as history:
        history.session(2)


def test_whatever_verdict_is_taken_in_can_be_saved_by(exported: list[dict[str, Any]]) -> None:
    """A kernel is saved by its verdict, so that one which lacks something is refused or saved, and
    ends nothing."""
    passed = {**exported[0]["drafts"][1]["verdict"], "timing": None}
    taken = 0
    for mutant in mutants(passed):
        try:
            document = verdict_document(mutant)
        except Mistyped:
            continue
        taken += 1
        try:
            prepare(
                SESSION,
                replace(draft(), verdict=document),
                get("softmax"),
                judge=lambda text: verdict(),
            )
        except KmintError:
            continue
    assert taken > 30

"""The parts of the agent's door that need no server: folders, bounds, remedies, edits, schemas."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from kmint_tui.agent.arguments import Explained, Judged, Saved, arguments, schema
from kmint_tui.agent.bounds import MOST_BYTES, bounded, verdict_document
from kmint_tui.agent.edits import proposals
from kmint_tui.agent.explanation import GENERAL, REMEDIES, explanation, remedy
from kmint_tui.agent.folders import Folders
from kmint_tui.errors import UsageError
from referee.verdict import Verdict
from tests.agent.kernels import FLOAT32, GOOD, MISNAMED, UNMASKED

ROOT = Path(__file__).resolve().parents[2]


def test_a_path_counts_by_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "door").symlink_to(tmp_path / "in")
    folders = Folders.of([tmp_path / "door", tmp_path / "other"])
    assert folders.inside("a.py") == tmp_path / "in" / "a.py"
    assert folders.inside(str(tmp_path / "other" / "b.py")) == tmp_path / "other" / "b.py"
    for outside in ("..", "../c.py", "/", str(tmp_path / "in2"), "~nobody/x/../../../.."):
        with pytest.raises(UsageError, match="outside the folders"):
            folders.inside(outside)


def test_every_guard_of_the_referee_has_a_remedy() -> None:
    """Guards stand in the referee's text as the second word of a rejection, or as that of a
    refusal.
    """
    found: set[str] = set()
    for file in (ROOT / "referee").rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        found |= set(re.findall(r'Rejection\(\s*"\w+",\s*"(\w+)"', text))
        found |= set(re.findall(r'HostRefused\(\s*"(\w+)"', text))
        found |= set(re.findall(r'guard="(\w+)"', text))
    assert len(found) > 20
    assert {guard for guard in found if guard not in REMEDIES} == set()
    assert (remedy("new_guard"), remedy(None)) == (GENERAL, GENERAL)


@pytest.mark.parametrize(
    ("source", "guard"),
    [
        (MISNAMED, "entry_point"),
        (UNMASKED, "out_of_bounds"),
        (UNMASKED, "guard_band"),
        (FLOAT32, "output_contract"),
    ],
)
def test_the_likeliest_edit_undoes_the_fault(source: str, guard: str) -> None:
    assert proposals(source, guard, ("x",))[0] == GOOD


@pytest.mark.parametrize(
    ("source", "guard"),
    [(GOOD, "parse"), ("def run(x:", "entry_point"), (GOOD, "entry_point"), ("", "wrong_answer")],
)
def test_where_nothing_is_known_nothing_is_proposed(source: str, guard: str) -> None:
    assert proposals(source, guard, ("x",)) == []


def test_an_edit_that_does_not_help_is_not_shown() -> None:
    rejected = Verdict("softmax", "rejected", "correct", "outside", "out_of_bounds", "interpret")
    judged: list[str] = []

    def again(source: str) -> Verdict:
        judged.append(source)
        return rejected

    found = explanation(rejected.to_json(), UNMASKED, ("x",), again)
    assert (found["diff"], found["diff_verdict"], len(judged) > 0) == (None, None, True)
    assert explanation(rejected.to_json(), UNMASKED, ("x",), None)["diff"] is None


@pytest.mark.parametrize(
    ("outcome", "stage", "words"),
    [
        ("correct", "done", "Nothing was timed"),
        ("unsure", "screen", "it was not run"),
        ("unsure", "done", "not decided"),
        ("error", "trace", "nothing about"),
    ],
)
def test_a_verdict_is_put_into_words_that_claim_no_more(
    outcome: str, stage: str, words: str
) -> None:
    verdict = {"verdict": outcome, "stage": stage, "reason": ""}
    assert words in explanation(verdict, GOOD, ("x",), None)["meaning"]


def test_long_documents_lose_the_end_of_their_lists_and_say_so() -> None:
    cells = [
        {"name": f"case {number}", "status": "fail", "detail": "x" * 100} for number in range(5000)
    ]
    found = bounded({"schema": "a", "cells": cells, "reason": "y" * 100_000})
    assert len(json.dumps(found).encode()) <= MOST_BYTES
    assert found["cells"][0]["name"] == "case 0"
    assert found["cells_left_out"] == 5000 - len(found["cells"])
    assert "characters left out" in found["reason"]
    assert (
        "ask for a part"
        in bounded({"schema": "a", "inner": {str(number): "x" * 1000 for number in range(1000)}})[
            "left_out"
        ]
    )


def test_only_the_cases_that_fail_are_shown() -> None:
    document = {
        "cells": [{"status": "pass"}, {"status": "fail"}],
        "checks": [{"status": "skipped"}, {"status": "pass"}],
    }
    assert verdict_document(document) == {
        "cells": [{"status": "fail"}],
        "cells_left_out": 1,
        "checks": [{"status": "pass"}],
    }


def test_the_schema_says_every_argument() -> None:
    found = schema(Judged)
    assert list(found["properties"]) == [one.name for one in fields(Judged)]
    assert found["properties"]["level"] == {
        "type": "string",
        "enum": ["screen", "compile", "correct", "full"],
        "description": "How far to go; without a GPU `full` means `correct`.",
        "default": "full",
    }
    assert schema(Saved)["required"] == ["draft", "folder"]
    assert schema(Explained)["properties"]["inputs"]["items"] == {"type": "string"}
    assert arguments(Judged, {"source": "x", "op": None}) == Judged(source="x")

"""Names: short ones for tests, and the field's terms for classes and modules."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
MOST_CHARACTERS = 60


def test_no_name_of_a_test_is_longer_than_60_characters() -> None:
    found = [
        name
        for file in TESTS.rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)", file.read_text(encoding="utf-8"))
    ]
    assert len(found) > 1000
    assert [name for name in found if len(name) > MOST_CHARACTERS] == []


HOME_MADE = frozenset(
    "Aside Seen Conflicts Marks Written Unwritten Tape Dice Room Wishes Said Broke Patience Subject Throne "
    "Badge CellJob Lap Rehearsal aside badges beside conflicts fresh_badges in_parts kept_lines "
    "lanes left_open marks near_miss open_lanes parting rehearsal remembered same_runs shares subject "
    "tape unwritten vacuity written workbench".split()
)
"""Names of classes and modules that the field's own terms have replaced."""


def test_classes_and_modules_have_the_fields_names() -> None:
    found = []
    for folder in ("kmint_tui", "referee", "convert", "forge"):
        for path in (TESTS.parent / folder).rglob("*.py"):
            classes = [
                node.name
                for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
                if isinstance(node, ast.ClassDef)
            ]
            names = {path.stem, path.parent.name, *(name.lstrip("_") for name in classes)}
            found += [f"{path}: {name}" for name in names & HOME_MADE]
    assert found == []

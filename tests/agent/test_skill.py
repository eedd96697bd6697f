"""`kmint skill`: the file that an agent reads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.generate import words
from kmint_tui.agent.arguments import Judged, schema
from kmint_tui.cli.skill import skill_text
from kmint_tui.history.store import PASSED
from tests.cli.runner import kmint
from tests.cli.test_bad_input import refused
from tests.docs.test_examples import check_line

pytestmark = pytest.mark.usefixtures("warm")


def test_it_is_printed_and_installed(tmp_path: Path) -> None:
    folder = tmp_path / "skills" / "kmint"
    done = kmint("skill", "--install", str(folder))
    assert (done.code, done.out) == (0, f"{folder / 'SKILL.md'}\n")
    assert (folder / "SKILL.md").read_text(encoding="utf-8") == skill_text() == kmint("skill").out
    assert kmint("skill", "--install", str(folder)).code == 0


def test_an_edited_file_is_not_lost(tmp_path: Path) -> None:
    file = tmp_path / "SKILL.md"
    file.write_text("mine", encoding="utf-8")
    refused(kmint("skill", "--install", str(tmp_path)), 2, "holds another text", "--force")
    assert file.read_text(encoding="utf-8") == "mine"
    assert kmint("skill", "--install", str(tmp_path), "--force").code == 0
    assert file.read_text(encoding="utf-8") == skill_text()


@pytest.mark.parametrize(
    ("make", "words"), [("file", "not a folder"), ("pipe", "cannot be replaced")]
)
def test_what_cannot_be_written_is_told(tmp_path: Path, make: str, words: str) -> None:
    import os

    folder = tmp_path / "place"
    if make == "file":
        folder.write_text("", encoding="utf-8")
    else:
        folder.mkdir()
        os.mkfifo(folder / "SKILL.md")
    refused(kmint("skill", "--install", str(folder)), 2, words)


def test_it_is_plain_english_and_names_real_commands() -> None:
    text = skill_text()
    head, body = text.split("---\n")[1:3]
    assert re.fullmatch(r"name: kmint\ndescription: .{20,300}\n", head)
    assert [(part, fault) for part in words.paragraphs(body) for fault in words.faults(part)] == []
    lines = [
        *re.findall(r"`(kmint [^`\n]+)`", body),
        *re.findall(r"^\$ (kmint .+)$", body, re.MULTILINE),
    ]
    assert len(lines) >= 6
    for line in lines:
        check_line("SKILL.md", line)
    assert all(
        f"`{name}`" in body
        for name in ("list_operations", "show_operation", "judge", "explain", "save")
    )
    assert all(
        name in schema(Judged)["properties"]
        for name in ("source", "file", "op", "session", "level")
    )
    verdicts = {
        name
        for row in re.findall(r"^\| ([a-z, ]+) \|", body, re.MULTILINE)
        for name in row.split(", ")
    } - {"verdict"}
    assert verdicts == {*PASSED, "rejected", "error"}

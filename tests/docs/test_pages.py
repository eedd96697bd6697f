"""README and docs: their length, their generated parts, their links and their English."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from docs.generate import pages, words
from docs.generate.pages import DOCS, ROOT, handwritten

README = ROOT / "README.md"
MOST_README_WORDS = 700
MOST_PAGE_WORDS = 900
MOST_GLOSSARY_ENTRIES = 25
MOST_CHANGELOG_LINES = 15
PAGES = sorted((*handwritten(), *(ROOT / page for page in pages.PAGES)))


def rendered_words(page: str) -> list[str]:
    """The words that a reader sees: without code blocks, comments, pictures, addresses of links
    and table rules."""
    page = re.sub(r"<!--.*?-->", "", page, flags=re.DOTALL)
    page = re.sub(r"^```.*?^```$", "", page, flags=re.DOTALL | re.MULTILINE)
    page = re.sub(r"^ {4}.*$", "", page, flags=re.MULTILINE)
    page = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", page)
    return [word for word in page.split() if re.search(r"\w", word)]


def test_readme_has_at_most_700_words() -> None:
    """Outside code blocks; with the code it is at most half as long again."""
    text = README.read_text(encoding="utf-8")
    assert len(rendered_words(text)) <= MOST_README_WORDS
    assert len(text.split()) <= 1.5 * MOST_README_WORDS


def test_words_are_counted_as_a_reader_sees_them() -> None:
    text = "# A title\n\n![a picture](x.svg) and [one link](y.md)\n\n| a | 1 % |\n|---|---|\n"
    page = text + "\n    code here\n\n```\nmore code\n```\n<!-- no -->"
    assert rendered_words(page) == ["A", "title", "a", "picture", "and", "one", "link", "a", "1"]


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_pages_are_short(page: Path) -> None:
    """But for those that are generated, which are as long as what they list."""
    text = re.sub(
        r"<!-- generated: .*?<!-- end -->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL
    )
    if str(page.relative_to(ROOT)) not in pages.PAGES:
        assert len(rendered_words(text)) <= MOST_PAGE_WORDS


def test_generated_pages_and_tables_are_up_to_date() -> None:
    """The commands, the messages, and every table of measurements; `python -m docs.generate`
    writes them."""
    assert pages.stale() == []


def test_a_generated_block_that_differs_is_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- generated: places -->\nold\n<!-- end -->\nb\n", encoding="utf-8")
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    monkeypatch.setattr(pages, "handwritten", lambda: [page])
    monkeypatch.setattr(pages, "PAGES", {})
    assert pages.stale() == ["page.md"]
    pages.write()
    assert pages.stale() == []
    assert "history.db" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_of_the_repository(page: Path) -> None:
    text = re.sub(
        r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    for target in re.findall(r"(?<!\\)\]\(([^)]+)\)", text):
        path, _, part = target.partition("#")
        if not target.startswith("https://"):
            assert (page.parent / path).exists(), target
            if part and path.endswith(".md"):
                assert part in anchors(page.parent / path), target


def anchors(page: Path) -> set[str]:
    """The names that links to headings use."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_index_names_every_page() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    assert all(f"({page.name})" in index for page in DOCS.glob("*.md") if page.name != "README.md")


def test_the_glossary_is_short_and_sorted() -> None:
    rows = re.findall(
        r"^\| (.+?) \| .+ \|$", (DOCS / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE
    )[1:]
    assert 15 <= len(rows) <= MOST_GLOSSARY_ENTRIES
    assert rows == sorted(rows)


def test_the_changelog_has_one_short_entry_a_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    for entry in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        lines = [line for line in entry.splitlines() if line.startswith("- ")]
        assert 0 < len(lines) <= MOST_CHANGELOG_LINES


def test_pages_are_plain_english() -> None:
    assert [(one.place, one.fault, one.text) for one in words.of_pages()] == []


def test_messages_are_plain_english() -> None:
    assert [(one.place, one.fault, one.text) for one in words.of_messages()] == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("nobody looked at it", "'nobody'"),
        ("at most so many rows", "'so many'"),
        ("the kernel changes what is read", "'what'"),
        ("run beside a replay", "'beside'"),
        ("word " * 26, "a sentence of 26 words"),
    ],
)
def test_words_to_avoid_are_found(text: str, fault: str) -> None:
    assert [one for one in words.faults(text) if one.startswith(fault)]


@pytest.mark.parametrize(
    "text",
    [
        "run `what is who` now",
        "what it does",
        "word " * 25,
        "one; " + "word " * 24,
        "as many rows as columns",
    ],
)
def test_plain_sentences_and_code_are_left_alone(text: str) -> None:
    assert list(words.faults(text)) == []


def test_nothing_in_the_repository_names_a_deleted_page() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("no git checkout")
    names = [
        ROOT / name
        for name in listed.stdout.splitlines()
        if name.endswith((".py", ".md", ".toml", ".sh"))
    ]
    text = {
        name: name.read_text(encoding="utf-8")
        for name in names
        if name.exists() and name != Path(__file__)
    }
    for name, content in text.items():
        for result in re.findall(r"bench/results/(\w+\.\w+)", content):
            assert (ROOT / "bench" / "results" / result).exists(), f"{name}: {result}"


def test_docstrings_and_comments_are_plain_english() -> None:
    assert [(one.place, one.fault, one.text) for one in words.of_code()] == []


def test_a_fault_in_a_docstring_or_a_comment_is_found() -> None:
    source = '"""Nobody reads it."""\n\n# So many\n# kernels run beside it.\nx = 1\n'
    texts = [text for _, text in (*words._docstrings(source), *words._comments(source))]
    assert texts == ["Nobody reads it.", "So many kernels run beside it."]
    assert all(list(words.faults(text)) for text in texts)


def test_the_path_of_a_verdict_names_at_most_20_files() -> None:
    text = (DOCS / "how-a-verdict-is-made.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w/]+\.py)`", text)
    assert 0 < len(named) == len(set(named)) <= 20
    assert [name for name in named if not (ROOT / "referee" / name).is_file()] == []

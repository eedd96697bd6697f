"""Which pages and blocks are generated, and from what.

A generated block stands in a page that is written by hand, between `<!-- generated: NAME -->` and
`<!-- end -->`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from docs.generate.command_page import command_page, command_table
from docs.generate.keys import keys, pictures
from docs.generate.message_page import message_page
from docs.generate.places import exit_codes, places, settings
from docs.generate.tables import claim_tables, readme_table

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

PAGES: dict[str, Callable[[], str]] = {
    "docs/cli.md": command_page,
    "docs/messages.md": message_page,
}
"""Pages that are generated as a whole."""

BLOCKS: dict[str, Callable[[], str]] = {
    "results": readme_table,
    "claims": claim_tables,
    "commands": command_table,
    "exit codes": exit_codes,
    "places": places,
    "settings": settings,
    "keys": keys,
    "pictures": pictures,
}
"""Blocks within pages."""

_BLOCK = re.compile(
    r"(?<=<!-- generated: )(?P<name>[a-z ]+)(?P<open> -->\n)(?P<text>.*?)(?=<!-- end -->)",
    re.DOTALL,
)


def handwritten() -> list[Path]:
    """README, CHANGELOG, CONTRIBUTING and every page of docs that is not generated as a whole."""
    top = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
    return [
        *top,
        *(page for page in sorted(DOCS.glob("*.md")) if str(page.relative_to(ROOT)) not in PAGES),
    ]


def texts() -> dict[str, str]:
    """Every page as it must be, by its path from the root."""
    made = {
        str(page.relative_to(ROOT)): _filled(page.read_text(encoding="utf-8"))
        for page in handwritten()
    }
    return made | {page: make() for page, make in PAGES.items()}


def stale() -> list[str]:
    """The pages that differ from what they must be."""
    return [
        page
        for page, text in texts().items()
        if not (ROOT / page).exists() or (ROOT / page).read_text(encoding="utf-8") != text
    ]


def write() -> None:
    """Bring every page up to date."""
    for page, text in texts().items():
        (ROOT / page).write_text(text, encoding="utf-8")


def _filled(text: str) -> str:
    """The page with every block made anew. Raises KeyError for a block that nothing makes."""
    return _BLOCK.sub(
        lambda block: f"{block['name']}{block['open']}{BLOCKS[block['name']]()}", text
    )

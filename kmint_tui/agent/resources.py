"""The resources of the MCP server, without MCP: pages of the documentation and receipts of saved
kernels.

A wheel holds the pages named here; a source checkout has them in `docs`. Receipts are read only
below the server's folders, and other files are never shown.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from urllib.parse import quote, unquote

from kmint_tui.agent.bounds import MOST_BYTES, bounded, verdict_document
from kmint_tui.agent.folders import Folders
from kmint_tui.documents import MAX_BYTES, compact
from kmint_tui.errors import UsageError
from kmint_tui.save.receipt import is_whole, load

DOCS, RECEIPTS = "kmint://docs/", "kmint://receipts/"
MARKDOWN, JSON = "text/markdown", "application/json"
SUFFIX = ".receipt.json"
MOST_LISTED = 200
MOST_SEEN = 20_000
"""Entries of folders that one listing looks at."""
MOST_URI = 4096
PAGES = {
    "SKILL.md": "the loop of an agent, and the claims to avoid",
    "agents.md": "this server: its tools, its resources and its limits",
    "cli.md": "every command and option",
    "glossary.md": "the words that kmint uses",
    "own-references.md": "a PyTorch function in place of an operation",
    "places-and-exit-codes.md": "settings, folders and exit codes",
    "timing-notes.md": "measured facts about the timing protocol",
    "use-a-saved-kernel.md": "ways to call a saved kernel, and its receipt",
    "verdicts.md": "the checks of the referee, and what a verdict says",
}


@dataclass(frozen=True)
class Resource:
    """One entry of the listing."""

    uri: str
    name: str
    description: str
    kind: str


@dataclass(frozen=True)
class Content:
    """The text of a resource, and its MIME type."""

    kind: str
    text: str


@dataclass(frozen=True)
class Library:
    """The resources of one server. Several threads may read at once."""

    folders: Folders

    def listed(self) -> list[Resource]:
        """The pages, and the receipts below the folders, up to `MOST_LISTED`."""
        pages = [Resource(DOCS + name, name, text, MARKDOWN) for name, text in PAGES.items()]
        return pages + [
            Resource(uri, unquote(uri.removeprefix(RECEIPTS)), "receipt of a saved kernel", JSON)
            for uri in self._receipts()
        ]

    def read(self, uri: str) -> Content:
        """The resource of that address. Raises UsageError."""
        if len(uri) > MOST_URI:
            raise UsageError(f"the address is longer than {MOST_URI} characters", title=_NONE)
        if uri.startswith(DOCS):
            return Content(MARKDOWN, page(uri.removeprefix(DOCS)))
        if uri.startswith(RECEIPTS):
            try:
                path = unquote(uri.removeprefix(RECEIPTS), errors="strict")
                path.encode()
            except UnicodeError:
                raise UsageError("the address holds no UTF-8 text", title=_NONE) from None
            return Content(JSON, self._receipt(path))
        raise UsageError(f"there is no resource {uri:.60}", title=_NONE, fix=_FIX)

    def _receipt(self, path: str) -> str:
        if not path.endswith(SUFFIX):
            raise UsageError(
                f"{path} is the name of no receipt",
                title=_NONE,
                fix=f"the name of a receipt ends in {SUFFIX}",
            )
        content = self.folders.content(path, most_bytes=MAX_BYTES)
        receipt = load(content.decode("utf-8", "replace"))
        shown = compact(
            bounded(
                {
                    **receipt,
                    "verdict": verdict_document(receipt["verdict"]),
                    "whole": is_whole(receipt),
                }
            )
        )
        if len(shown.encode("utf-8", "replace")) > MOST_BYTES:
            raise UsageError(f"{path} is too long to be shown", title="receipt not usable")
        return shown

    def _receipts(self) -> list[str]:
        found: set[str] = set()
        for path in self._files():
            with suppress(UnicodeEncodeError):
                found.add(RECEIPTS + quote(self._shown_path(path)))
            if len(found) == MOST_LISTED:
                break
        return sorted(found)

    def _shown_path(self, path: Path) -> str:
        """The path as the first folder's tools take it."""
        first = self.folders.roots[0]
        return str(path.relative_to(first) if path.is_relative_to(first) else path)

    def _files(self) -> Iterator[Path]:
        """Receipts by their names; links are not followed, and hidden folders are left out."""
        waiting, seen = list(self.folders.roots), 0
        while waiting:
            with suppress(OSError), os.scandir(waiting.pop(0)) as entries:
                for entry in entries:
                    seen += 1
                    if seen > MOST_SEEN:
                        return
                    if entry.is_dir(follow_symlinks=False):
                        waiting += [] if entry.name.startswith(".") else [Path(entry.path)]
                    elif entry.name.endswith(SUFFIX) and entry.is_file(follow_symlinks=False):
                        yield Path(entry.path)


def page(name: str) -> str:
    """The text of a page. Raises UsageError for an unknown name."""
    if name not in PAGES:
        raise UsageError(
            f"there is no page {name:.60}", title=_NONE, fix=f"the pages are {', '.join(PAGES)}"
        )
    package = resources.files("kmint_tui.agent")
    for packaged in (package.joinpath(name), package.joinpath("docs", name)):
        if packaged.is_file():
            return packaged.read_text(encoding="utf-8")
    # A source checkout keeps these pages at its root, where readers look first.
    return (Path(__file__).resolve().parents[2] / "docs" / name).read_text(encoding="utf-8")


_NONE = "no such resource"
_FIX = f"addresses begin with {DOCS} or {RECEIPTS}"

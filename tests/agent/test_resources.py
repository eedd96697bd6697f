"""Resources: pages of the documentation, and receipts below the folders alone."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError

from kmint_tui.agent import resources
from kmint_tui.agent.bounds import MOST_BYTES
from kmint_tui.agent.folders import Folders
from kmint_tui.agent.resources import DOCS, MOST_URI, PAGES, RECEIPTS, Library, page
from kmint_tui.cli.skill import skill_text
from kmint_tui.errors import UsageError
from kmint_tui.save.receipt import seal
from tests.agent.clients import connected, document, run
from tests.agent.kernels import GOOD

ROOT = Path(__file__).resolve().parents[2]
VERDICT = {
    "schema": "kmint.verdict/1",
    "op": "softmax",
    "verdict": "correct",
    "stage": "done",
    "reason": "",
}


def receipt(**more: Any) -> str:
    return seal({"op": "softmax", "files": {}, "verdict": VERDICT, "environment": {}, **more})


async def text_of(client: Client, uri: str) -> str:
    (found,) = (await client.read_resource(uri)).contents
    text: str = found.text  # type: ignore[union-attr]
    assert len(text.encode()) <= MOST_BYTES
    return text


async def why_not(client: Client, uri: str) -> dict[str, Any]:
    """The refusal's document, which its message says too."""
    with pytest.raises(MCPError) as refused:
        await client.read_resource(uri)
    found: dict[str, Any] = refused.value.error.data
    assert found["schema"] == "kmint.error/1" and found["message"] in str(refused.value)
    return found


def test_pages_and_the_receipt_of_a_saved_kernel_are_read(tmp_path: Path) -> None:
    async def work() -> None:
        async with connected(tmp_path) as client:
            listed = {one.uri: one for one in (await client.list_resources()).resources}
            assert list(listed) == [DOCS + name for name in PAGES]
            assert await text_of(client, f"{DOCS}SKILL.md") == skill_text()
            verdicts = (ROOT / "docs" / "verdicts.md").read_text(encoding="utf-8")
            assert await text_of(client, f"{DOCS}verdicts.md") == verdicts
            (template,) = (await client.list_resource_templates()).resource_templates
            assert template.uri_template == RECEIPTS + "{+path}"
            judged = await document(client, "judge", source=GOOD, op="softmax", session="one")
            await document(client, "save", draft=judged["draft"], folder="my kernels")
            uri = f"{RECEIPTS}my%20kernels/softmax.receipt.json"
            assert uri in [one.uri for one in (await client.list_resources()).resources]
            found = json.loads(await text_of(client, uri))
            file = json.loads((tmp_path / "my kernels" / "softmax.receipt.json").read_bytes())
            assert (found["schema"], found["whole"]) == ("kmint.receipt/1", True)
            assert (found["digest"], found["files"]) == (file["digest"], file["files"])
            shown, cells = found["verdict"], file["verdict"]["cells"]
            assert shown["cells_left_out"] + len(shown["cells"]) == len(cells) > 100

    run(work)


def test_nothing_but_pages_and_receipts_inside_is_read(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (outside / "a.receipt.json").write_text(receipt(), encoding="utf-8")
    (inside / "link.receipt.json").symlink_to(outside / "a.receipt.json")
    (inside / "linked").symlink_to(outside)
    (inside / "other.receipt.json").write_text('{"secret": 1}', encoding="utf-8")
    (inside / "notes.json").write_text(receipt(), encoding="utf-8")
    os.mkfifo(inside / "pipe.receipt.json")
    whole = str(outside / "a.receipt.json")
    refused = {
        f"{RECEIPTS}../outside/a.receipt.json": "outside the folders",
        f"{RECEIPTS}%2e%2e/outside/a.receipt.json": "outside the folders",
        f"{RECEIPTS}{whole}": "outside the folders",
        f"{RECEIPTS}link.receipt.json": "outside the folders",
        f"{RECEIPTS}linked/a.receipt.json": "outside the folders",
        f"{RECEIPTS}none.receipt.json": "cannot be read",
        f"{RECEIPTS}pipe.receipt.json": "no regular file",
        f"{RECEIPTS}other.receipt.json": "not of the schema",
        f"{RECEIPTS}notes.json": "ends in .receipt.json",
        f"{RECEIPTS}a%00.receipt.json": "null byte",
        f"{RECEIPTS}%ff.receipt.json": "no UTF-8",
        f"{DOCS}../../etc/passwd": "there is no page",
        f"{DOCS}none.md": "the pages are SKILL.md",
        "file:///etc/passwd": "there is no resource",
        RECEIPTS + "a" * MOST_URI: "longer than",
    }

    async def work() -> None:
        async with connected(inside) as client:
            for uri, words in refused.items():
                found = await why_not(client, uri)
                said = f"{found['title']}: {found['message']} {found.get('fix', '')}"
                assert words in said and found["code"] == 2, (uri, said)
            listed = [one.uri for one in (await client.list_resources()).resources]
            assert [uri for uri in listed if uri.startswith(RECEIPTS)] == [
                f"{RECEIPTS}other.receipt.json"
            ]
        async with connected() as client:
            assert "--folder" in (await why_not(client, f"{RECEIPTS}a.receipt.json"))["fix"]
            listed = [one.uri for one in (await client.list_resources()).resources]
            assert listed == [DOCS + name for name in PAGES]

    run(work)


def library(*folders: Path) -> Library:
    return Library(Folders.of(folders))


def test_a_receipt_of_a_second_folder_is_named_by_its_whole_path(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    (second / ".hidden").mkdir(parents=True)
    for folder in (second, second / ".hidden"):
        (folder / "a.receipt.json").write_text(receipt(), encoding="utf-8")
    both = library(first, second)
    (found,) = [one for one in both.listed() if one.uri.startswith(RECEIPTS)]
    assert found.name == str(second / "a.receipt.json")
    assert json.loads(both.read(found.uri).text)["op"] == "softmax"


def test_a_changed_receipt_is_not_whole_a_long_one_is_bounded(tmp_path: Path) -> None:
    cells = [{"name": f"case {at}", "status": "pass"} for at in range(9000)]
    long = receipt(verdict={**VERDICT, "cells": cells})
    (tmp_path / "a.receipt.json").write_text(long, encoding="utf-8")
    changed = receipt().replace('"op": "softmax"', '"op": "gelu"', 1)
    (tmp_path / "b.receipt.json").write_text(changed, encoding="utf-8")
    many = receipt(**{f"field {at}": at for at in range(9000)})
    (tmp_path / "c.receipt.json").write_text(many, encoding="utf-8")
    shelf = library(tmp_path)
    shown = shelf.read(f"{RECEIPTS}a.receipt.json").text
    assert len(shown.encode()) <= MOST_BYTES < len(long)
    assert (json.loads(shown)["whole"], json.loads(shown)["verdict"]["cells"]) == (True, [])
    assert json.loads(shelf.read(f"{RECEIPTS}b.receipt.json").text)["whole"] is False
    with pytest.raises(UsageError, match="too long"):
        shelf.read(f"{RECEIPTS}c.receipt.json")


def test_a_listing_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for at in range(30):
        (tmp_path / f"{at:02}.receipt.json").write_text("", encoding="utf-8")
    shelf = library(tmp_path)
    monkeypatch.setattr(resources, "MOST_LISTED", 10)
    assert len(shelf.listed()) == len(PAGES) + 10
    monkeypatch.setattr(resources, "MOST_SEEN", 3)
    assert len(shelf.listed()) == len(PAGES) + 3


def test_the_wheel_takes_the_pages_from_docs() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    included = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    wanted = {f"docs/{name}": f"kmint_tui/agent/docs/{name}" for name in PAGES}
    del wanted["docs/SKILL.md"]
    assert {name: to for name, to in included.items() if name.startswith("docs/")} == wanted
    assert all(0 < len(page(name).encode()) <= MOST_BYTES for name in PAGES)

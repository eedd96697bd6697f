"""The result of `kmint verify`: one kernel, a folder, or JUnit for CI systems."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from kmint_tui.cli.streams import Cell, Output, Table
from kmint_tui.errors import storage_error
from kmint_tui.escapes import visible

if TYPE_CHECKING:
    from kmint_tui.save.verifying import Verification

NEVER = "never judged here"


def show_one(out: Output, found: Verification) -> None:
    """All that was found of one kernel."""
    out.heading(str(found.file))
    out.pairs(
        [
            ("files", _files(found)),
            ("receipt", found.receipt),
            ("verdict", _verdict(found)),
            *[(name, f"{one.verdict} ({one.mode})") for name, one in found.entries.items()],
            *[("changed since", f"{one.name}: {one.then} -> {one.now}") for one in found.stale],
            *[("problem", problem) for problem in found.problems],
            ("holds", "yes" if found.holds else "no"),
        ]
    )


def show_folder(out: Output, found: Sequence[Verification], folder: Path) -> None:
    """A table with a row for each kernel; then the problems of those that do not hold."""
    rows = [
        (
            Cell(_below(one.file, folder) + _copies(one)),
            Cell(_files(one)),
            Cell(f"{one.verdict.verdict} ({one.verdict.mode})" if one.verdict else "not judged"),
            Cell(", ".join(stale.name for stale in one.stale)),
            Cell("yes", "green") if one.holds else Cell("no", "red"),
        )
        for one in found
    ]
    out.table(Table(("kernel", "files", "verdict", "changed since", "holds"), rows))
    for one in found:
        for problem in one.problems:
            out.text(f"{_below(one.file, folder)}: {problem}")


def write_junit(file: Path, found: Sequence[Verification], seconds: float) -> None:
    """The JUnit form that CI systems show: a test case a kernel. Raises StorageError."""
    from convert import files

    counts = {"tests": str(len(found)), "failures": str(sum(not one.holds for one in found))}
    suite = ElementTree.Element("testsuite", {"name": "kmint verify", **counts, "errors": "0"})
    suite.set("time", f"{seconds:.1f}")
    for one in found:
        shown = _plain(str(one.file))
        name = {"classname": "kmint.verify", "name": shown, "file": shown}
        case = ElementTree.SubElement(suite, "testcase", name)
        if not one.holds:
            why = _plain("; ".join(one.problems))
            named = {"message": why, "type": "kmint.verify"}
            failure = ElementTree.SubElement(case, "failure", named)
            failure.text = _plain("\n".join(one.problems))
        told = [f"files: {_files(one)}", f"verdict: {_verdict(one)}"]
        told += [f"the same file: {copy}" for copy in one.copies]
        told += [f"changed since: {stale.name}: {stale.then} -> {stale.now}" for stale in one.stale]
        ElementTree.SubElement(case, "system-out").text = _plain("\n".join(told))
    root = ElementTree.Element("testsuites", counts)
    root.append(suite)
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode", xml_declaration=False)
    try:
        files.write_text(file, f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n')
    except OSError as error:
        raise storage_error(file, error) from error


def _files(found: Verification) -> str:
    if found.receipt == "missing":
        return NEVER
    edited = any(one != "unchanged" for one in found.files.values()) or not found.files
    return "edited since judged" if edited else "unchanged since judged"


def _copies(found: Verification) -> str:
    return f" and {len(found.copies)} like it" if found.copies else ""


def _verdict(found: Verification) -> str:
    verdict = found.verdict
    return f"{verdict.verdict} ({verdict.mode}): {verdict.reason}" if verdict else "not judged"


def _below(file: Path, folder: Path) -> str:
    return str(file.relative_to(folder)) if file.is_relative_to(folder) else str(file)


def _plain(text: str) -> str:
    """XML has no word for control characters, nor for the last two of a plane."""
    return re.sub("[\ufffe\uffff]", "\ufffd", visible(text))

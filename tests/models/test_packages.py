"""The package lists agree with pyproject.toml and each other, with hashes and without addresses."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from kmint_tui.models.bundle import MATERIALS, REQUIREMENTS, package_lists

ROOT = Path(__file__).resolve().parents[2]
PINNED = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>\S+)(?P<marker> ;[^\\]*)?(?P<hashes>( \\\n    --hash=sha256:[0-9a-f]{64})+)\n"
)


def pinned() -> dict[str, list[tuple[Version, str]]]:
    """(version, marker) of every line by name; several lines of a name are for other platforms."""
    text = package_lists()[REQUIREMENTS]
    found: dict[str, list[tuple[Version, str]]] = {}
    for line in PINNED.finditer(text):
        found.setdefault(canonicalize_name(line["name"]), []).append(
            (Version(line["version"]), line["marker"] or "")
        )
    assert PINNED.sub("", text) == "", "a line is not pinned, or has no hash"
    return found


def test_every_dependency_is_pinned_within_its_bounds() -> None:
    """After a change of pyproject.toml, run `release/lock.py` again."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    locked = pinned()
    for wanted in map(Requirement, project["dependencies"]):
        versions = [version for version, _ in locked.get(canonicalize_name(wanted.name), [])]
        assert versions and all(wanted.specifier.contains(version) for version in versions), (
            str(wanted),
            versions,
        )


def test_the_bill_of_materials_lists_the_same_packages() -> None:
    """CycloneDX, with the hashes of the same files."""
    document = json.loads(package_lists()[MATERIALS])
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.5")
    listed = {
        (canonicalize_name(one["name"]), Version(one["version"])) for one in document["components"]
    }
    assert listed == {(name, version) for name, found in pinned().items() for version, _ in found}
    hashes = {item["content"] for one in document["components"] for item in one["hashes"]}
    assert hashes == set(re.findall(r"sha256:([0-9a-f]{64})", package_lists()[REQUIREMENTS]))


def test_no_list_holds_an_address() -> None:
    """An air-gapped site has an index of its own."""
    for name, text in package_lists().items():
        assert "://" not in text and "index-url" not in text, name

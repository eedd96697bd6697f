"""Writes the lists of packages that a release is tested with: hash-pinned requirements, and a
software bill of materials.

    pip install uv && python release/lock.py

`uv` resolves the dependencies of pyproject.toml for every supported Python and platform, from the
index that it is set up to use. The result goes into `kmint_tui/models`, from where `kmint models
bundle` takes it. Addresses are left out: an air-gapped site has another index, and the hashes
identify the files.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "kmint_tui" / "models"
# The files that the build of the project's metadata reads.
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "models.toml", "kmint_tui/__init__.py")
PLAIN = ("--no-header", "--no-annotate")


def uv(folder: Path, *arguments: str) -> str:
    """The output of `uv` in `folder`. Ends the script when it fails."""
    program = shutil.which("uv") or sys.exit("uv is missing: pip install uv")
    done = subprocess.run([program, *arguments], cwd=folder, stdout=subprocess.PIPE, text=True)
    return done.stdout if done.returncode == 0 else sys.exit(done.returncode)


def without_addresses(document: dict[str, Any]) -> dict[str, Any]:
    """A CycloneDX document with the files' hashes, but not the place or the moment in which it was
    made.
    """
    document.pop("serialNumber", None)
    document["metadata"].pop("timestamp", None)
    for component in document["components"]:
        files = component.pop("externalReferences", [])
        component["hashes"] = [item for file in files for item in file.get("hashes", [])]
    return document


def main() -> None:
    """Lock in a copy, so that no lock file with addresses stays in the project."""
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name)
        for source in SOURCES:
            (copy / source).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / source, copy / source)
        uv(copy, "lock", "--upgrade", "--quiet")
        export = ("export", "--frozen", "--no-dev", "--no-emit-project", "--quiet", "--format")
        requirements = uv(copy, *export, "requirements.txt", *PLAIN)
        materials = without_addresses(json.loads(uv(copy, *export, "cyclonedx1.5")))
    (TARGET / "requirements.txt").write_text(requirements, encoding="utf-8")
    (TARGET / "sbom.cdx.json").write_text(json.dumps(materials, indent=1) + "\n", encoding="utf-8")
    print(f"{len(materials['components'])} packages")


if __name__ == "__main__":
    main()

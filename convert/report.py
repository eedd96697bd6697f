"""How a written file earns its name: it is verified under another one, renamed, and its proof is left beside it as JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from convert.errors import ConvertError, SpaceError, VerifyError
from convert.provenance import file_digest
from convert.verify import Finding
from convert.write import sync_folder

SCHEMA = "kmint.convert/1"
_MAGIC = b"GGUF"


@dataclass(frozen=True)
class Report:
    """One written file with its proof."""

    path: str
    kind: str
    bytes: int
    sha256: str
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    provenance: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """The `kmint.convert/1` document."""
        return {"schema": SCHEMA, **asdict(self)}


def unproven(path: Path) -> Path:
    """Where a file stands, whole, while it is being verified; it gets its own name only afterwards."""
    return path.with_name(path.name + ".unproven")


def _require_ours(path: Path) -> None:
    """Refuse to replace what is no GGUF file: a slip in --out must not cost anybody a checkpoint."""
    if not path.exists():
        return
    try:
        start = b""
        if path.is_file():  # opening a pipe would wait for its writer
            with path.open("rb") as file:
                start = file.read(len(_MAGIC))
    except OSError as error:
        raise SpaceError(f"{path}: {error.strerror}", "choose another --out") from None
    if start != _MAGIC:
        raise ConvertError(f"{path} exists and is no GGUF file; it is not overwritten", "choose another --out, or move that file away")


@contextmanager
def removed(paths: Iterable[Path], *scratch: Path) -> Iterator[None]:
    """While `paths` are being made: what a killed run left of them is gone, and at the end, however it comes, nothing half-done stays."""
    paths = tuple(paths)
    for path in paths:
        _require_ours(path)
    half = [*scratch, *(unproven(path) for path in paths)]
    half += [path.with_name(path.name + ".partial") for path in half]
    try:
        for path in half:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise SpaceError(f"{path}: {error.strerror}", "check the folder of --out and its permissions") from None
    try:
        yield
    finally:
        for path in half:
            path.unlink(missing_ok=True)


def finish(path: Path, kind: str, findings: tuple[Finding, ...], notes: tuple[str, ...], provenance: Mapping[str, str]) -> Report:
    """Give the unproven file its name and write PATH.report.json. Raises VerifyError when a finding failed, and SpaceError."""
    failed = [finding for finding in findings if finding.status == "fail"]
    if failed:
        raise VerifyError(f"{path.name}: {failed[0].level} check failed: {failed[0].detail}", "nothing was kept of it; please report this")
    made = unproven(path)
    report = Report(str(path), kind, made.stat().st_size, file_digest(made), findings, notes, provenance)
    beside = path.with_name(path.name + ".report.json")
    try:
        beside.unlink(missing_ok=True)  # an older file's report must never stand beside this one
        os.replace(made, path)
        sync_folder(path.parent)
    except OSError as error:
        raise SpaceError(f"{path}: {error.strerror}", "check free space and permissions") from None
    _write(beside, report)
    return report


def _write(path: Path, report: Report) -> None:
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_text(json.dumps(report.to_json(), indent=1) + "\n", encoding="utf-8")
        os.replace(partial, path)
    except OSError as error:
        raise SpaceError(f"{path}: {error.strerror}") from None

"""The report that proves a written file: made only when nothing failed, and left beside the file as JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from convert.errors import SpaceError, VerifyError
from convert.provenance import file_digest
from convert.verify import Finding

SCHEMA = "kmint.convert/1"


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


def report_of(path: Path, kind: str, findings: tuple[Finding, ...], notes: tuple[str, ...], provenance: Mapping[str, str]) -> Report:
    """Write PATH.report.json and return its content. Raises VerifyError, after removing the file, when a finding failed."""
    failed = [finding for finding in findings if finding.status == "fail"]
    if failed:
        path.unlink(missing_ok=True)
        raise VerifyError(f"{path.name}: {failed[0].level} check failed: {failed[0].detail}", "the file was removed; please report this")
    report = Report(str(path), kind, path.stat().st_size, file_digest(path), findings, notes, provenance)
    _write(path.with_name(path.name + ".report.json"), report)
    return report


def _write(path: Path, report: Report) -> None:
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_text(json.dumps(report.to_json(), indent=1) + "\n", encoding="utf-8")
        os.replace(partial, path)
    except OSError as error:
        raise SpaceError(f"{path}: {error.strerror}") from None

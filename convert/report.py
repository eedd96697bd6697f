"""Gives a written file its name: it is verified in a temporary folder and then moved.

Its proof lies next to it as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from convert import files
from convert.errors import ConvertError, SpaceError, VerifyError
from convert.provenance import file_digest
from convert.verify import Proof

SCHEMA = "kmint.convert/1"
_MAGIC = b"GGUF"


@dataclass(frozen=True, kw_only=True)
class Report:
    """One written file with its proof."""

    path: str
    kind: str
    bytes: int
    sha256: str
    findings: tuple[Proof, ...]
    notes: tuple[str, ...]
    provenance: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """The `kmint.convert/1` document."""
        return {"schema": SCHEMA, **asdict(self)}


def _require_ours(path: Path) -> None:
    """Refuse to replace a file that is not GGUF; a wrong --out must not delete a checkpoint."""
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
        raise ConvertError(
            f"{path} exists and is not a GGUF file; it is not overwritten",
            "choose another --out, or move that file away",
        )


@contextmanager
def workshop(paths: Iterable[Path]) -> Iterator[Path]:
    """A temporary folder in which `paths`, all of one folder, are made and proven.

    The remains of killed runs are removed first. Raises ConvertError when one of `paths` is a file
    of another kind, and SpaceError.
    """
    paths = tuple(paths)
    for path in paths:
        _require_ours(path)
    home = paths[0].parent
    with suppress(OSError):  # some folders allow writing but no listing
        files.sweep(home)
    try:
        held = ExitStack()
        folder = held.enter_context(files.temporary_folder(home))
    except OSError as error:
        raise SpaceError(
            f"{home}: {error.strerror}", "check the folder of --out and its permissions"
        ) from None
    with held:
        yield folder


def finish(
    made: Path,
    path: Path,
    kind: str,
    findings: tuple[Proof, ...],
    notes: tuple[str, ...],
    provenance: Mapping[str, str],
) -> Report:
    """Give the file at `made` its name and write PATH.report.json.

    Raises VerifyError when a finding failed, and SpaceError.
    """
    failed = [finding for finding in findings if finding.status == "fail"]
    if failed:
        raise VerifyError(
            f"{path.name}: {failed[0].level} check failed: {failed[0].detail}",
            "no part of it was kept; please report this",
        )
    report = Report(
        path=str(path),
        kind=kind,
        bytes=made.stat().st_size,
        sha256=file_digest(made),
        findings=findings,
        notes=notes,
        provenance=provenance,
    )
    report_path = path.with_name(path.name + ".report.json")
    try:
        report_path.unlink(
            missing_ok=True
        )  # an older file's report must never lie next to this file
        files.move(made, path)
        files.write_text(report_path, json.dumps(report.to_json(), indent=1) + "\n")
    except OSError as error:
        raise SpaceError(f"{path}: {error.strerror}", "check free space and permissions") from None
    return report

"""The receipt of a saved kernel, `kmint.receipt/1`: all the evidence, and the digests of the files.

`digest` covers all other fields, so that an accidental edit shows. It is no signature and proves
nothing against forgery: `kmint verify` judges again instead. The identity of the referee is its
version and a digest of its sources, which tells an edited or unreleased referee from the released one.
All checks of a referee have its version.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import referee
from kmint_tui import __version__
from kmint_tui.documents import BadDocument, finite, parse_json
from kmint_tui.errors import UsageError
from kmint_tui.escapes import visible_json
from kmint_tui.history.verdicts import VerdictDocument
from kmint_tui.typed import Mistyped, typed

SCHEMA = "kmint.receipt/1"


class BadReceipt(UsageError):
    """A receipt that kmint cannot read, or that has another schema."""

    title = "receipt not usable"


def sha256(text: str) -> str:
    """The sha256 of a text's UTF-8 bytes."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def seal(content: Mapping[str, Any]) -> str:
    """The receipt's text, with its digest."""
    body = {"schema": SCHEMA, **finite(content)}
    return (
        visible_json(
            json.dumps(
                {**body, "digest": _digest(body)}, indent=2, ensure_ascii=False, allow_nan=False
            )
        )
        + "\n"
    )


class RefereeDocument(TypedDict):
    """The referee of the verdict."""

    version: NotRequired[str]
    sha256: NotRequired[str]


class ReferenceDocument(TypedDict):
    """The user's own reference that the kernel was judged by."""

    name: NotRequired[str]
    sha256: NotRequired[str]


class EntryDocument(TypedDict):
    """One kernel of a file that chooses by shape."""

    entry: str
    id: str
    source_sha256: str
    verdict: VerdictDocument


class ShapeDocument(TypedDict):
    """A shape at which a kernel of the file was measured."""

    rows: int
    columns: int
    dtype: str


class ReceiptDocument(TypedDict):
    """The fields of a receipt that kmint's own readers need."""

    schema: str
    op: str
    files: dict[str, str]
    verdict: VerdictDocument
    environment: dict[str, Any]
    id: NotRequired[str]
    source_sha256: NotRequired[str]
    referee: NotRequired[RefereeDocument]
    reference: NotRequired[ReferenceDocument | None]
    entries: NotRequired[list[EntryDocument]]
    shapes: NotRequired[list[ShapeDocument]]


def load(text: str) -> dict[str, Any]:
    """A `ReceiptDocument` with all of its keys, from its text. Raises BadReceipt."""
    try:
        found = parse_json(text)
        if not isinstance(found, dict) or found.get("schema") != SCHEMA:
            raise BadReceipt(
                f"it is not of the schema {SCHEMA}", fix="update kmint, or save the kernel again"
            )
        receipt: dict[str, Any] = typed(found, ReceiptDocument, "the receipt")
    except (BadDocument, Mistyped) as error:
        raise BadReceipt(str(error)) from error
    return receipt


def is_whole(receipt: Mapping[str, Any]) -> bool:
    """True if the receipt is unchanged since kmint wrote it."""
    return receipt.get("digest") == _digest(
        {name: value for name, value in receipt.items() if name != "digest"}
    )


def _digest(content: Mapping[str, Any]) -> str:
    return sha256(json.dumps(content, sort_keys=True, ensure_ascii=True, separators=(",", ":")))


@functools.cache
def referee_identity() -> dict[str, str]:
    """The version, and the sha256 over path and text of every Python file of the referee."""
    root = Path(referee.__file__).parent
    digest = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        digest.update(f"{file.relative_to(root).as_posix()}\0".encode() + file.read_bytes() + b"\0")
    return {"version": __version__, "sha256": digest.hexdigest()}


def with_versions(verdict: Mapping[str, Any], version: str | None) -> dict[str, Any]:
    """A verdict's document in which every check has its version."""
    return {
        **verdict,
        "checks": [{**check, "version": version} for check in verdict.get("checks") or ()],
    }

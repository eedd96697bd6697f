"""The receipt of a saved kernel, `kmint.receipt/1`: all the evidence, and the digests of the files it is about.

Its `digest` covers everything else in it, so that a slip of an editor shows; it is no signature, and proves nothing against
somebody who means to forge it: `kmint verify` judges again instead.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from kmint_tui.documents import finite
from kmint_tui.errors import UsageError

SCHEMA = "kmint.receipt/1"


class BadReceipt(UsageError):
    """A receipt that cannot be read, or is of another schema."""

    title = "receipt not usable"


def sha256(text: str) -> str:
    """The sha256 of a text's UTF-8 bytes."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def seal(content: Mapping[str, Any]) -> str:
    """The receipt's text, with its digest."""
    body = {"schema": SCHEMA, **finite(content)}
    return json.dumps({**body, "digest": _digest(body)}, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def load(text: str) -> dict[str, Any]:
    """A receipt from its text. Raises BadReceipt."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise BadReceipt(f"it is not JSON: {error}") from error
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        raise BadReceipt(f"it is not of the schema {SCHEMA}", fix="update kmint, or save the kernel again")
    wanted = {"op": str, "files": dict, "verdict": dict, "environment": dict}
    missing = [name for name, kind in wanted.items() if not isinstance(found.get(name), kind)]
    if missing:
        raise BadReceipt(f"it lacks {', '.join(missing)}")
    return found


def is_whole(receipt: Mapping[str, Any]) -> bool:
    """True when nothing in the receipt was changed since it was written."""
    return receipt.get("digest") == _digest({name: value for name, value in receipt.items() if name != "digest"})


def _digest(content: Mapping[str, Any]) -> str:
    return sha256(json.dumps(content, sort_keys=True, ensure_ascii=True, separators=(",", ":")))

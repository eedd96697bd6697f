"""Matches an adapter's patterns with modules as PEFT does: expressions, in a limited child."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from convert.errors import AdapterError
from convert.limited_child import ChildFailed, ask, serve

SECONDS = 5
MEMORY_BYTES = 1 << 30


def first_matches(key: str, patterns: Collection[str], modules: Collection[str]) -> dict[str, str]:
    """The first matching pattern of each module, for modules with a match.

    `key` is the setting that holds the patterns. Raises AdapterError for an invalid or slow
    expression.
    """
    if not patterns:
        return {}
    request = {"patterns": list(patterns), "modules": sorted(modules)}
    try:
        answer: dict[str, dict[str, str]] = ask(
            "patterns", request, seconds=SECONDS, memory_bytes=MEMORY_BYTES
        )
    except ChildFailed as failed:
        raise AdapterError(
            f"adapter_config.json: matching {key} failed: {failed}",
            "write the modules' names there, without regular expressions",
        ) from None
    if "invalid" in answer:
        raise AdapterError(
            f"adapter_config.json: {key} has the invalid pattern {answer['invalid']}"
        )
    return answer["found"]


def _match(request: dict[str, Any]) -> dict[str, object]:
    found: dict[str, str] = {}
    for pattern in request["patterns"]:
        try:
            expression = re.compile(rf"(.*\.)?({pattern})$")
        except (re.error, OverflowError, RecursionError) as error:
            return {"invalid": f"{pattern[:60]!r} ({error})"}
        for module in request["modules"]:
            if module not in found and expression.match(module):
                found[module] = pattern
    return {"found": found}


if __name__ == "__main__":
    serve(_match)

"""JSON from a stranger's file, or from a child that read one, within bounds."""

from __future__ import annotations

import json
import math
from typing import Any

MOST_VALUES = 4_000_000
"""Largest number of values, twice that of the largest tokenizers."""
MOST_DIGITS = 40
"""Largest number of digits of an integer. transformers writes 10**30 for an unlimited tokenizer."""


def parse_json(content: bytes) -> Any:
    """A JSON document.

    Raises ValueError for invalid JSON, deep nesting, and more than MOST_VALUES values. Integers of
    more than MOST_DIGITS digits and numbers that are not finite are refused as well.
    """
    # Counted before anything is built; marks within texts count as well.
    if sum(map(content.count, (b"[", b"{", b","))) > MOST_VALUES:
        raise ValueError(f"it holds more than {MOST_VALUES:,} values")
    try:
        return json.loads(content, parse_int=_integer, parse_float=_float, parse_constant=_float)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _integer(digits: str) -> int:
    if len(digits.lstrip("-")) > MOST_DIGITS:
        raise ValueError(f"it holds an integer of more than {MOST_DIGITS} digits")
    return int(digits)


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("it holds a number that is not finite")
    return value

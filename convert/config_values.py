"""Checks the numbers of a stranger's config.json before any use.

The bounds lie far above every published model. They keep a file of a few bytes from requesting
billions of layers or rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from convert.errors import ArchitectureError

MOST_SIZE = 1 << 24
"""Largest width, vocabulary or context."""
MOST_LAYERS = 512
"""Largest number of layers, which is llama.cpp's."""
MOST_ROWS = 1 << 20
"""Largest number of rows of all heads of a layer together."""


def positive(
    config: Mapping[str, Any], key: str, default: int | None = None, *, most: int = MOST_SIZE
) -> int:
    """A positive integer of the config. Raises ArchitectureError with the key."""
    value = config.get(key)
    value = default if value is None else value
    if type(value) is not int or value <= 0:
        raise ArchitectureError(
            f"config.json: {key} is {_shown(value)}, a positive integer is needed"
        )
    if value > most:
        raise ArchitectureError(
            f"config.json: {key} is {_shown(value)}, kmint accepts up to {most:,}"
        )
    return value


def layer_count(config: Mapping[str, Any]) -> int:
    """The number of layers. Raises ArchitectureError."""
    return positive(config, "num_hidden_layers", most=MOST_LAYERS)


def number(config: Mapping[str, Any], key: str, default: float | None = None) -> float:
    """A positive finite number of the config. Raises ArchitectureError with the key."""
    value = config.get(key, default)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
        raise ArchitectureError(
            f"config.json: {key} is {_shown(value)}, a positive number is needed"
        )
    try:
        return float(value)
    except OverflowError:
        raise ArchitectureError(f"config.json: {key} is too large a number") from None


def check_rows(heads: int, dimension: int, whose: str) -> None:
    """Raise ArchitectureError when the heads of a layer have more rows than MOST_ROWS."""
    if heads * dimension > MOST_ROWS:
        raise ArchitectureError(
            f"config.json: {heads} {whose} of {dimension} rows are {heads * dimension:,} rows, "
            f"kmint accepts up to {MOST_ROWS:,}"
        )


def _shown(value: object) -> str:
    return repr(value)[:60]

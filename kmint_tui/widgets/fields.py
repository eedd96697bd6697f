"""Fields of forms in kmint's style."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from textual.validation import Integer, Validator
from textual.widgets import Select

Pairs = Sequence[tuple[str, str]]
"""Choices: the shown text and the value of each."""


def choice(options: Pairs, value: str, identity: str, tooltip: str) -> Select[str]:
    """A field with one value of several."""
    fixed: Any = {"allow_blank": False, "compact": True}
    return Select(options, value=value, id=identity, tooltip=tooltip, **fixed)


def number(low: int, high: int) -> list[Validator]:
    """The check of a field for a whole number."""
    return [Integer(low, high)]

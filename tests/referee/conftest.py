"""The same random tensors in every run, in whatever order the tests come."""

from __future__ import annotations

import sys

import pytest

SEED = 20261121


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Seed torch where a test has it; most tests of data structures do not load it."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(SEED)

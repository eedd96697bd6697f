"""Warm workers shared by the tests of this folder."""

from collections.abc import Iterator

import pytest

from referee.zygote import Zygote


@pytest.fixture(scope="session")
def interpreter() -> Iterator[Zygote]:
    """A fork server for the CPU path."""
    with Zygote(interpret=True) as zygote:
        yield zygote

"""Warm workers shared by the tests of this folder."""

from collections.abc import Iterator

import pytest

from referee.sandbox.zygote import Zygote


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """A fork server for tracing and compiling."""
    with Zygote() as server:
        yield server

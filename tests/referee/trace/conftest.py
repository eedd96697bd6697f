"""Warm workers shared by the tests of this folder."""

import pytest

from referee.sandbox.zygote import Workers, Zygote


@pytest.fixture(scope="session")
def zygote(workers: Workers) -> Zygote:
    """A fork server for tracing and compiling."""
    return workers

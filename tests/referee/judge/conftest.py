"""Warm workers shared by the tests of this folder."""

from collections.abc import Iterator

import pytest

from referee.judge import Referee
from referee.sandbox.zygote import Workers, Zygote
from tests.referee.stand_in import Servers


@pytest.fixture(scope="session")
def referee() -> Iterator[Referee]:
    """A referee for the CPU path. A test that kills its processes opens another one."""
    with Referee(mode="interpret") as opened:
        yield opened


@pytest.fixture(scope="session")
def interpreter() -> Iterator[Zygote]:
    """A fork server for the CPU path."""
    with Zygote(interpret=True) as zygote:
        yield zygote


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """Fork servers for everything but replay."""
    with Workers() as workers, Workers(interpret=True) as interpreters:
        yield Servers(workers, interpreters)

"""The same random tensors in every run, in whatever order the tests come, and one set of warm
workers for all tests of this folder.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from referee.gpu.replayer import Replayer
from referee.judge import Referee
from referee.sandbox.zygote import Workers

if TYPE_CHECKING:
    from tests.referee.stand_in import Servers

SEED = 20261121


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Seed torch where a test has it; most tests of data structures do not load it."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(SEED)


@pytest.fixture(scope="session")
def referee(request: pytest.FixtureRequest) -> Iterator[Referee]:
    """A referee for the CPU path. A test that kills its processes opens another one."""
    if Replayer.available() is not None:
        yield request.getfixturevalue("shared_referee")
        return
    with Referee(mode="interpret") as opened:
        yield opened


@pytest.fixture(scope="session")
def workers(referee: Referee) -> Workers:
    """The referee's fork server for tracing and compiling."""
    return referee._workers


@pytest.fixture(scope="session")
def interpreter(referee: Referee) -> Workers:
    """The referee's fork server for the CPU path."""
    return referee._interpreters


@pytest.fixture(scope="session")
def servers(workers: Workers, interpreter: Workers) -> Servers:
    """Fork servers for everything but replay."""
    from tests.referee.stand_in import Servers

    return Servers(workers, interpreter)

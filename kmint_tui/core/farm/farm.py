"""The interface of every group of devices, local or in a Ray cluster: jobs in, answers out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import Any, Protocol

from kmint_tui.core.farm.devices import CPU
from kmint_tui.core.farm.job import Job, Versions

Tell = Callable[[str], None]
Count = Callable[[int, int], None]

AHEAD = 2
"""Jobs given out for each free place: the next one waits at hand when one ends."""


@dataclass(frozen=True)
class Answer:
    """The done work of a job. `others` says what the neighbours of its device did meanwhile."""

    done: dict[str, Any]
    others: str


class Farm(Protocol):
    """A group of devices of one kind. Any thread may submit.

    `device` is their product name or `cpu`, `devices` their number, `free` the number of those
    without a job now. `places` is the number of jobs that run at once. `spent` has the seconds of
    each part of the GPU processes' work, as far as they are known.
    """

    @property
    def device(self) -> str: ...
    @property
    def devices(self) -> int: ...
    @property
    def free(self) -> int: ...
    @property
    def places(self) -> int: ...
    @property
    def spent(self) -> dict[str, float]: ...

    def submit(
        self, job: Job, tell: Tell = lambda step: None, count: Count = lambda done, total: None
    ) -> Future[Answer]:
        """Begin a job. The future raises KmintError where it cannot be done."""
        ...


def times(farm: Farm) -> bool:
    """Whether the devices time kernels."""
    return farm.device != CPU


def base(farm: Farm) -> dict[str, Any]:
    """The fields that every job for this farm has."""
    return {"device": farm.device, "versions": Versions.here()}


def as_they_end(farm: Farm, jobs: Iterable[Job]) -> Iterator[tuple[Job, Future[Answer]]]:
    """Every job with its ended future, in the order in which they end.

    At most `AHEAD` jobs for each place are given out at a time, so a driver that is killed leaves
    little work behind.
    """
    waiting, running = iter(jobs), dict[Future[Answer], Job]()
    more = True
    while more or running:
        while more and len(running) < AHEAD * farm.places:
            job = next(waiting, None)
            if job is None:
                more = False
            else:
                running[farm.submit(job)] = job
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            yield running.pop(future), future

"""From the options `--gpus` and `--ray` to a group of devices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil

from kmint_tui.core.farm.devices import chosen, gpus, parse_gpus
from kmint_tui.core.farm.farm import Farm
from kmint_tui.errors import OfflineRefusal, UsageError


@dataclass(frozen=True)
class FarmAsked:
    """The options of a command: cards of this host, or a cluster and a kind of its devices.

    `offline` is the reason to open no network connection, or None.
    """

    gpus: str | None = None
    ray: str | None = None
    kind: str | None = None
    offline: str | None = None

    def __post_init__(self) -> None:
        """Raises UsageError for options that exclude each other or say nothing."""
        if self.gpus is not None and self.ray is not None:
            raise UsageError(
                "--gpus and --ray exclude each other",
                fix="--gpus is for the cards of this host; --ray-kind chooses those of a cluster",
            )
        if self.kind is not None and self.ray is None:
            raise UsageError("--ray-kind is for --ray", fix="name a cluster with --ray HOST:PORT")
        if self.gpus is not None:
            parse_gpus(self.gpus)

    @property
    def asks(self) -> bool:
        """True where an option was given."""
        return self.gpus is not None or self.ray is not None


@contextmanager
def open_farm(asked: FarmAsked, *, threads: int = 1, each: int = 1) -> Iterator[Farm | None]:
    """The requested devices; None where one device of this process does it all.

    `threads` is the number of jobs at once on this host, spread over its devices; a device has
    `each` at least. Raises UsageError, EnvironmentUnfit and OfflineRefusal.
    """
    if asked.ray is not None:
        from kmint_tui.core.farm.cluster import open_cluster

        if asked.offline is not None:
            raise OfflineRefusal(f"Ray needs the network, and {asked.offline} keeps kmint offline")
        with open_cluster(asked.ray, asked.kind) as cluster:
            yield cluster
        return
    devices = chosen(parse_gpus(asked.gpus), gpus()) if asked.gpus is not None else ()
    if len(devices) < 2:
        yield None
        return
    from kmint_tui.core.farm.local import LocalFarm

    with LocalFarm(devices, at_once=max(each, ceil(threads / len(devices)))) as farm:
        yield farm


@contextmanager
def open_gpus(asked: FarmAsked, what: str, *, each: int = 1) -> Iterator[Farm | None]:
    """As `open_farm` for `what`, which needs GPUs, with this number of jobs at a time on each.

    Raises EnvironmentUnfit without a GPU.
    """
    from kmint_tui.core.measuring import need_gpu, need_gpus

    if asked.ray is None:
        need_gpu(what)
    with open_farm(asked, each=each) as farm:
        need_gpus(what, farm)
        yield farm

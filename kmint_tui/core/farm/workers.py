"""The devices that can judge, with their versions, their jobs and the queue."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from platform import node
from typing import Any

from kmint_tui.core.farm.devices import CPU, gpus
from kmint_tui.core.farm.job import Versions
from kmint_tui.errors import EnvironmentUnfit, OfflineRefusal

_UNKNOWN = "not known: the head runs no dashboard"


@dataclass(frozen=True)
class WorkingDevice:
    """A device of a host. `versions` is None for a host without kmint."""

    host: str
    device: str
    versions: Versions | None
    does: str


@dataclass(frozen=True)
class Overview:
    """All devices, and the queue in words."""

    devices: tuple[WorkingDevice, ...]
    queue: str

    def to_json(self) -> dict[str, Any]:
        """The content of `kmint.workers/1`."""
        return {**asdict(self), "devices": [asdict(one) for one in self.devices]}


def of_host() -> Overview:
    """The GPUs of this host, or its processors; the queue is that of `kmint serve`."""
    host, here = node(), Versions.here()
    try:
        found = tuple(
            WorkingDevice(host, f"{one.index} {one.name}", here, _use(one.visible))
            for one in gpus()
        )
    except EnvironmentUnfit as error:
        found = (WorkingDevice(host, CPU, here, error.message),)
    return Overview(found, _session())


def of_cluster(address: str, offline: str | None) -> Overview:
    """The devices of a cluster; the queue counts kmint's tasks.

    Raises UsageError, EnvironmentUnfit and OfflineRefusal.
    """
    from kmint_tui.core.farm.cluster import connected, look, nodes, tasks

    if offline is not None:
        raise OfflineRefusal(f"Ray needs the network, and {offline} keeps kmint offline")
    with connected(address) as ray:
        hosts = nodes(ray)
        said = look(ray, hosts)
        counted = tasks()
    found = []
    for host, one in zip(hosts, said, strict=True):
        kinds = [f"{count} {kind}" for kind, count in host.kinds.items()]
        device = ", ".join([*kinds, f"{host.cpus} {CPU}"])
        does = _UNKNOWN if counted is None else f"{counted[1][host.id]} jobs"
        found.append(WorkingDevice(one.host, device, one.versions, does))
    queue = _UNKNOWN
    if counted is not None:
        states = ("running", "waiting", "done", "lost")
        queue = ", ".join(f"{counted[0][state]} {state}" for state in states)
    return Overview(tuple(found), queue)


def _use(name: str) -> str:
    """How busy a GPU is, and the processes that compute on it."""
    import pynvml

    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(name)
        busy = pynvml.nvmlDeviceGetUtilizationRates(handle).gpu
        pids = [one.pid for one in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)]
    except pynvml.NVMLError as error:
        return f"not known (NVML error {error.value})"
    processes = f"processes {', '.join(map(str, pids))}" if pids else "no process"
    return f"{busy} % busy, {processes}"


def _session() -> str:
    """The queue of the session of `kmint serve`."""
    from kmint_tui.service.client import NoSession, session

    try:
        with session() as opened:
            status = opened.status()
    except NoSession as error:
        return f"none: {error.message}"
    return f"{status.running} running, {status.waiting} waiting in the session of `kmint serve`"

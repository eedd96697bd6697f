"""Judging on a Ray cluster: every job is a Ray task, pinned to one kind of GPU or to processors.

Ray moves the jobs of a lost worker. The driver alone writes results. Everything that can be wrong
with the cluster is found before a job is sent.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any

from kmint_tui.core.farm import probe, ray_task
from kmint_tui.core.farm.devices import CPU
from kmint_tui.core.farm.farm import Answer, Count, Tell
from kmint_tui.core.farm.job import MOST_BYTES, Job, Versions, opened
from kmint_tui.documents import compact, parse_json
from kmint_tui.errors import EnvironmentUnfit, KmintError, UsageError

AUTO = "auto"
RETRIES = 20
"""How often Ray repeats a job whose worker was lost."""
ATTEMPTS = 3
"""How often the driver sends a job that Ray gave up."""
CONNECT_SECONDS = 5.0
PROBE_SECONDS = 300.0
_TITLE = "cluster not usable"
_KIND = "accelerator_type:"
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
# An HTTP/2 client's first words with empty settings. A gRPC server answers with its own settings.
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_SETTINGS = 4


@dataclass(frozen=True)
class Node:
    """One host of a cluster. `kinds` counts its GPUs by Ray's name of their kind."""

    id: str
    host: str
    cpus: int
    kinds: Mapping[str, int]


@dataclass(frozen=True)
class Looked:
    """The report of a host on itself: versions (None without kmint) and the names of its GPUs."""

    host: str
    versions: Versions | None
    gpus: tuple[str, ...]


class Cluster:
    """A farm of all devices of one kind in a cluster."""

    def __init__(self, ray: Any, device: str, kind: str, places: int) -> None:
        """`kind` is Ray's name of the GPUs, or `cpu`."""
        self._ray, self.device, self.places = ray, device, places
        self.devices = places
        self._given_out = 0
        self._closed = False
        self._lock = threading.Lock()
        pinned = (
            {"num_cpus": 1}
            if kind == CPU
            else {"num_cpus": 1, "num_gpus": 1, "resources": {_KIND + kind: 0.001}}
        )
        self._task = ray.remote(ray_task.do).options(
            max_retries=RETRIES, retry_exceptions=False, **pinned
        )

    @property
    def spent(self) -> dict[str, float]:
        """Empty: the tasks of a cluster do not report it."""
        return {}

    @property
    def free(self) -> int:
        """The number of devices without a job of this command."""
        with self._lock:
            return max(0, self.places - self._given_out)

    def submit(
        self, job: Job, tell: Tell = lambda step: None, count: Count = lambda done, total: None
    ) -> Future[Answer]:
        """Send a job. Ray tasks report no steps, so `tell` hears of the wait alone."""
        tell("waiting for a worker of the cluster")
        found: Future[Answer] = Future()
        with self._lock:
            self._given_out += 1
        text = compact(asdict(job))
        self._send(text, found, ATTEMPTS)
        return found

    def close(self) -> None:
        """Send nothing more."""
        self._closed = True

    def _send(self, text: str, found: Future[Answer], attempts: int) -> None:
        def ended(said: Future[Any]) -> None:
            try:
                said.result()
            except Exception:
                # Ray itself repeats a task whose worker died, but not one whose worker never began.
                # After the end, a call would start another cluster.
                if attempts > 1 and not self._closed:
                    self._send(text, found, attempts - 1)
                    return
            with self._lock:
                busy = min(self._given_out, self.places)
                self._given_out -= 1
            try:
                result = parse_json(said.result(), most_bytes=MOST_BYTES)
                where = f"{result['host']}; {busy} of {self.places} devices of the cluster had work"
                found.set_result(Answer(opened(result["answer"]), where))
            except KmintError as error:
                found.set_exception(error)
            except Exception as error:
                found.set_exception(_lost(error))

        self._task.remote(text).future().add_done_callback(ended)


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """The module `ray`, connected to a cluster, or to one that is started here and ended.

    Raises UsageError for an address that is none, and EnvironmentUnfit.
    """
    if address != AUTO and not _ADDRESS.fullmatch(address):
        raise UsageError(
            f"--ray {address[:60]!r} is not the address of a head",
            fix="HOST:PORT of `ray start --head`, for example 10.0.0.1:6379; or `auto`",
        )
    if find_spec("ray") is None:
        raise EnvironmentUnfit(
            "--ray needs the package ray, which is not installed",
            title=_TITLE,
            fix="pip install 'kmint[ray]'",
        )
    if address != AUTO:
        _check_answers(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    before = signal.getsignal(signal.SIGTERM)
    try:
        _init(ray, address)
        if threading.current_thread() is threading.main_thread():
            # Ray's own handler would end this process without kmint's clean-up.
            signal.signal(signal.SIGTERM, before)
        yield ray
    finally:
        ray.shutdown()


def _init(ray: Any, address: str) -> None:
    words: dict[str, Any] = {"include_dashboard": False} if address == AUTO else {}
    try:
        ray.init(
            address="local" if address == AUTO else address,
            namespace="kmint",
            log_to_driver=False,
            logging_level=logging.CRITICAL,
            **words,
        )
    except (Exception, SystemExit) as error:
        said = str(error)
        if "Version mismatch" in said:
            found = [f"ray {one}" for one in re.findall(r"Ray: (\S+)", said)]
            python = [f"Python {one}" for one in re.findall(r"Python: (\S+)", said)]
            sides = [" and ".join(side) for side in zip(found, python, strict=False)]
            what = f"the head at {address} has {', and this machine has '.join(sides)}"
            fix = "install the same versions on every host"
        else:
            lines = said.strip().splitlines() or [type(error).__name__]
            what = f"Ray does not connect to {address}: {lines[0][:300]}"
            fix = "this machine must be part of the cluster: `ray start --address HOST:PORT`"
        raise EnvironmentUnfit(what, title=_TITLE, fix=fix) from None


def _check_answers(address: str) -> None:
    """Raise EnvironmentUnfit where no gRPC server answers: Ray itself would wait for minutes."""
    host, port = address.rsplit(":", 1)
    fix = "start a head with `ray start --head`, or check the address"
    try:
        with socket.create_connection(
            (host.strip("[]"), min(int(port), 65535)), CONNECT_SECONDS
        ) as line:
            if os.environ.get("RAY_USE_TLS", "0") != "0":
                return
            line.sendall(_PREFACE)
            if line.recv(9)[3:4] == bytes((_SETTINGS,)):
                return
            reason = "another service listens there"
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
    raise EnvironmentUnfit(f"no Ray head answers at {address}: {reason}", title=_TITLE, fix=fix)


def nodes(ray: Any) -> tuple[Node, ...]:
    """The hosts of the cluster that are alive."""
    found = []
    for one in ray.nodes():
        if not one["Alive"]:
            continue
        resources = one["Resources"]
        named = [name.removeprefix(_KIND) for name in resources if name.startswith(_KIND)]
        count = int(resources.get("GPU", 0))
        kinds = {named[0]: count} if named and count else {}
        host = str(one["NodeManagerHostname"])
        found.append(Node(str(one["NodeID"]), host, int(resources.get("CPU", 0)), kinds))
    return tuple(found)


def look(ray: Any, hosts: Sequence[Node]) -> tuple[Looked, ...]:
    """Facts that every host reports. Raises EnvironmentUnfit for one that does not answer."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ray.cloudpickle.register_pickle_by_value(probe)
    task = ray.remote(probe.look)
    asked = [
        task.options(
            num_cpus=0,
            max_retries=2,
            scheduling_strategy=NodeAffinitySchedulingStrategy(host.id, soft=False),
        ).remote()
        for host in hosts
    ]
    found = []
    for host, one in zip(hosts, asked, strict=True):
        try:
            said = ray.get(one, timeout=PROBE_SECONDS)
        except Exception as error:
            raise EnvironmentUnfit(
                f"the host {host.host} of the cluster does not answer: {_first_line(error)}",
                title=_TITLE,
                fix="`ray status` shows the cluster",
            ) from error
        versions = Versions(**said["versions"]) if said["versions"] else None
        found.append(Looked(str(said["host"]), versions, tuple(said["gpus"])))
    return tuple(found)


@contextmanager
def open_cluster(address: str, kind: str | None) -> Iterator[Cluster]:
    """All devices of one kind in a cluster. `kind` is Ray's name for a GPU, such as H200, or `cpu`.

    None takes the only kind of GPU, or processors where there is none. Raises UsageError and
    EnvironmentUnfit, before any job is sent.
    """
    with connected(address) as ray:
        everything = nodes(ray)
        kind = kind or _only_kind(everything)
        hosts = [host for host in everything if kind == CPU or kind in host.kinds]
        places = sum(host.cpus if kind == CPU else host.kinds[kind] for host in hosts)
        if not places:
            counted = Counter({CPU: sum(host.cpus for host in everything)})
            for host in everything:
                counted.update(host.kinds)
            there = ", ".join(f"{count} {name}" for name, count in counted.items())
            raise EnvironmentUnfit(
                f"the cluster has no {kind}: it has {there}",
                title=_TITLE,
                fix="name a kind that is there with --ray-kind",
            )
        hosts = [host for host in hosts if kind != CPU or host.cpus]
        said = look(ray, hosts)
        _check_versions(said)
        cluster = Cluster(ray, CPU if kind == CPU else _product(said), kind, places)
        try:
            yield cluster
        finally:
            cluster.close()


def _only_kind(everything: Sequence[Node]) -> str:
    kinds = sorted({kind for host in everything for kind in host.kinds})
    if len(kinds) > 1:
        raise EnvironmentUnfit(
            f"the cluster has GPUs of several kinds: {', '.join(kinds)}",
            title="kinds are not mixed",
            fix=f"choose one, for example --ray-kind {kinds[0]}",
        )
    return kinds[0] if kinds else CPU


def _check_versions(said: Sequence[Looked]) -> None:
    here = Versions.here()
    for one in said:
        where = f"the host {one.host}"
        if one.versions is None:
            raise EnvironmentUnfit(
                f"{where} of the cluster has no kmint",
                title=_TITLE,
                fix="install kmint there, for the Python that `ray start` uses",
            )
        if different := one.versions.difference(here, where):
            raise EnvironmentUnfit(
                different, title=_TITLE, fix="install the same versions on every host"
            )


def _product(said: Sequence[Looked]) -> str:
    names = sorted({name for one in said for name in one.gpus})
    if len(names) == 1:
        return names[0]
    what = (
        f"its GPUs are of several kinds: {', '.join(names)}" if names else "kmint sees no GPU there"
    )
    raise EnvironmentUnfit(what, title=_TITLE, fix="start a cluster with GPUs of one kind")


def tasks() -> tuple[Counter[str], Counter[str]] | None:
    """Numbers of kmint's tasks by state, and of the running ones by host.

    None where the head runs no dashboard.
    """
    try:
        from ray.util.state import list_tasks

        found = list_tasks(
            filters=[("name", "=", ray_task.do.__name__)],
            limit=10_000,
            raise_on_missing_output=False,
            timeout=10,
        )
    except Exception:
        return None
    names = {"RUNNING": "running", "FINISHED": "done", "FAILED": "lost"}
    states = Counter(names.get(str(one.state), "waiting") for one in found)
    return states, Counter(str(one.node_id) for one in found if one.state == "RUNNING")


def _lost(error: Exception) -> KmintError:
    return EnvironmentUnfit(
        f"the cluster gave up a job {ATTEMPTS} times: {_first_line(error)}",
        title="worker lost",
        fix="`ray status` shows the cluster; the same command goes on with the missing verdicts",
    )


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__

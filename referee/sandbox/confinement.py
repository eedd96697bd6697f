"""The layers that a helper process applies to itself before it reads an untrusted file.

A helper runs kmint's code and a library on that file. It needs fewer rights than a candidate's job
and no fork server. It confines itself once it can find its modules and before it has a second
thread, because Landlock binds only the calling thread.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass

from referee.sandbox import file_view, landlock, limits, linux, namespaces, seccomp
from referee.sandbox.demand import Protection

NAMES = (
    "resource limits",
    "no capabilities",
    "no new privileges",
    "landlock",
    "not dumpable",
    "system-call filter",
)

_DESCRIPTORS = 1024
# Facts about the machine: processors, memory, the container's share; and versions and devices of
# drivers.
_FACTS = (
    *(
        "/proc/self",
        "/proc/cpuinfo",
        "/proc/meminfo",
        "/proc/stat",
        "/proc/filesystems",
        "/proc/version",
        "/proc/devices",
    ),
    *("/proc/modules", "/proc/driver", "/proc/sys/vm", "/sys/fs/cgroup", "/sys/devices"),
    *("/sys/bus/pci", "/sys/class", "/sys/module"),
)


@dataclass(frozen=True, kw_only=True)
class Rights:
    """The rights of a helper, beyond reading the system's libraries and this Python.

    `readable`: files and folders. `devices`: device files that it may read, write and control.
    `memory_bytes` (address space) and `processor_seconds` count from now on; None: not limited.
    `file_bytes`: the longest file that it may write.
    """

    readable: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    memory_bytes: int | None = None
    processor_seconds: int | None = None
    file_bytes: int = 16 << 20


def confine(rights: Rights, without: Collection[str] = ()) -> tuple[Protection, ...]:
    """Applies every layer of this host to this process permanently, except those in `without`.

    A layer that the host lacks is reported with the reason; nothing is raised.
    """
    layers: dict[str, Callable[[], str]] = {
        "resource limits": lambda: _limit(rights),
        "no capabilities": lambda: _drop_capabilities(rights.readable),
        "no new privileges": linux.no_new_privileges,
        "landlock": lambda: landlock.describe(landlock.restrict(_rules(rights))),
        "not dumpable": linux.not_dumpable,
        "system-call filter": lambda: _filter(rights),
    }
    return tuple(_taken(name, layers[name], without) for name in NAMES)


def _taken(name: str, layer: Callable[[], str], without: Collection[str]) -> Protection:
    if sys.platform != "linux" and name != "resource limits":
        return Protection(name, False, f"needs Linux; this is {sys.platform}")
    if name in without:
        return Protection(name, False, "left out on request")
    try:
        return Protection(name, True, layer())
    except OSError as error:
        return Protection(name, False, str(error))


def _limit(rights: Rights) -> str:
    said = ["file size", "descriptors", "core files"]
    values = {
        resource.RLIMIT_FSIZE: rights.file_bytes,
        resource.RLIMIT_NOFILE: _DESCRIPTORS,
        resource.RLIMIT_CORE: 0,
    }
    if rights.memory_bytes is not None and sys.platform == "linux":
        values[resource.RLIMIT_AS] = limits.virtual_bytes() + rights.memory_bytes
        said.insert(0, "address space")
    if rights.processor_seconds is not None:
        values[resource.RLIMIT_CPU] = limits.seconds_used() + rights.processor_seconds
        said.insert(0, "processor time")
    limits.set_all(values)
    return ", ".join(said)


def _drop_capabilities(readable: Collection[str]) -> str:
    """Root then loses access to others' files. Raises OSError where a file would be lost."""
    seen = [path for path in readable if os.access(path, os.R_OK)]

    def attempt() -> None:
        linux.no_capabilities()
        for path in seen:
            if not os.access(path, os.R_OK):
                raise OSError(f"{path} is readable with them only")

    if reason := namespaces.try_in_child(attempt):
        raise OSError(reason)
    return linux.no_capabilities()


def _rules(rights: Rights) -> list[landlock.Rule]:
    readable = (*file_view.readable_paths(rights.readable), *file_view.DEVICES, *_FACTS)
    rules = [landlock.Rule(path, landlock.READ) for path in readable]
    rules.append(landlock.Rule("/dev/null", landlock.READ | landlock.WRITE_FILE))
    return [*rules, *(landlock.Rule(path, landlock.DEVICE) for path in rights.devices)]


def _filter(rights: Rights) -> str:
    length = seccomp.install(execute=False, devices=bool(rights.devices))
    return f"allow-list, {length} instructions" + (
        ", any command to a device" if rights.devices else ""
    )

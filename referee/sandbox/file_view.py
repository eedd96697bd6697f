"""A private root directory for the fork server and its jobs.

They see the system's libraries, the Python installation and kmint's package, read-only, and no
other file of the host. The root needs a separate mount namespace. Bind mounts keep the host's files
in place; nothing is copied.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import site
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path

from referee.sandbox.linux import (
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_RDONLY,
    MS_REC,
    MS_REMOUNT,
    mount,
    pivot_root,
    set_mount_flags,
    unmount,
)

SCRATCH = "/scratch"

# The few device files that must stay usable, and the processor's description, which LLVM and torch
# read.
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
SYSTEM = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/alternatives",
    "/etc/localtime",
    "/nix/store",
    "/gnu/store",
    "/sys/devices/system/cpu",
)

SCRATCH_BYTES = 256 << 20
SCRATCH_FILES = 16384

_PROC = "/proc"
_MOUNT_POINT = "/tmp"
_OLD_ROOT = "old-root"


def readable_paths(extra: Iterable[str]) -> tuple[str, ...]:
    """The paths that a job must read: system, Python, packages, kmint's package, `extra`, loaded
    libraries.

    `sys.path` is not trusted here: an entry may be a directory full of the user's files.
    """
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    libraries = [
        entry for entry in os.environ.get("LD_LIBRARY_PATH", "").split(":") if os.path.isabs(entry)
    ]
    wanted = [*SYSTEM, *_installation(_home()), package, *libraries, *extra, *_mapped_files()]
    kept: list[str] = []
    for path in dict.fromkeys(os.path.normpath(path) for path in wanted):
        if path != "/" and os.path.exists(path) and not any(_below(path, root) for root in kept):
            kept.append(path)
    return tuple(kept)


def _home() -> str:
    """This user's home directory; None for a user without a password entry."""
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return "/nonexistent"


def _installation(home: str) -> list[str]:
    """This Python's directories; only library folders of one directly in the user's home."""
    prefixes = (sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix)
    folders = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return [
        *(prefix for prefix in prefixes if not _below(home, prefix)),
        *folders,
        *site.getsitepackages(),
    ]


def enter(paths: Sequence[str]) -> None:
    """Makes a read-only root of `paths` and the devices this process's root, with an empty scratch
    file system.

    It has a /proc if the host allows mounting one. Raises OSError; the root may then be unusable,
    so try it in a child.
    """
    mount("tmpfs", _MOUNT_POINT, "tmpfs", MS_NOSUID | MS_NODEV, "size=16m,mode=755")
    old = os.path.join(_MOUNT_POINT, _OLD_ROOT)
    os.mkdir(old, 0o700)
    pivot_root(_MOUNT_POINT, old)
    os.chdir("/")
    old = "/" + _OLD_ROOT
    for path in paths:
        _show(old, path, MS_RDONLY | MS_NOSUID | MS_NODEV)
    for path in DEVICES:
        _show(old, path, MS_NOSUID | MS_NOEXEC)
    os.mkdir(_PROC, 0o755)
    with contextlib.suppress(PermissionError):
        mount("proc", _PROC, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    unmount(old)
    os.rmdir(old)
    os.mkdir(SCRATCH, 0o700)
    mount("none", "/", None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)
    mount_scratch(SCRATCH)


def mount_proc() -> None:
    """Mounts a read-only /proc of this pid namespace, in a mount namespace. Raises OSError."""
    mount("proc", _PROC, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY)


def mount_scratch(path: str) -> None:
    """Mounts an empty memory file system of limited size at `path`. Raises OSError."""
    mount(
        "tmpfs",
        path,
        "tmpfs",
        MS_NOSUID | MS_NODEV | MS_NOEXEC,
        f"size={SCRATCH_BYTES},nr_inodes={SCRATCH_FILES},mode=700",
    )


def _show(old: str, path: str, flags: int) -> None:
    """Binds one host path at the same place, with the symbolic links that lead to it."""
    target = _reach(old, path)
    if target is None:
        return
    source = old + target
    if os.path.isdir(source):
        os.makedirs(target, 0o755, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), 0o755, exist_ok=True)
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT, 0o444))
    mount(source, target, None, MS_BIND | MS_REC)
    _restrict(target, flags)


def _reach(old: str, path: str, links: int = 0) -> str | None:
    """The real place of `path`, after recreating its links; None if it needs nothing."""
    if links > 40:
        return None
    walked = "/"
    parts = [part for part in path.split("/") if part]
    for position, part in enumerate(parts):
        here = os.path.join(walked, part)
        if os.path.islink(old + here):
            link = os.readlink(old + here)
            if not os.path.lexists(here):
                os.makedirs(walked, 0o755, exist_ok=True)
                os.symlink(link, here)
            rest = os.path.join(link, *parts[position + 1 :])
            return _reach(old, os.path.normpath(os.path.join(walked, rest)), links + 1)
        walked = here
    return walked if os.path.exists(old + walked) and not _same_file(old + walked, walked) else None


def _same_file(first: str, second: str) -> bool:
    return os.path.exists(second) and os.path.samefile(first, second)


def _restrict(target: str, flags: int) -> None:
    try:
        set_mount_flags(target, flags)
    except OSError:
        # Kernels before 5.12: one mount at a time, keeping flags the user namespace may not clear.
        for point in _mounts_below(target):
            kept = os.statvfs(point).f_flag & (
                MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC | 0x1C00
            )
            mount("none", point, None, MS_REMOUNT | MS_BIND | flags | _as_mount_flags(kept))


def _as_mount_flags(statvfs_flags: int) -> int:
    # statvfs and mount(2) agree on the low flags; noatime, nodiratime and relatime differ in their
    # place.
    atime = ((0x400, 0x400), (0x800, 0x800), (0x1000, 0x200000))
    return (statvfs_flags & 0xF) | sum(
        mount_flag for seen, mount_flag in atime if statvfs_flags & seen
    )


def _mounts_below(target: str) -> list[str]:
    with open("/" + _OLD_ROOT + "/proc/self/mountinfo") as table:
        points = [line.split()[4].encode().decode("unicode_escape") for line in table]
    return [point for point in dict.fromkeys(points) if _below(point, target)]


def _below(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def _mapped_files() -> list[str]:
    """Shared libraries that this process has loaded from any place."""
    found = []
    with open("/proc/self/maps") as maps:
        for line in maps:
            path = line.rstrip("\n").partition("/")
            if path[1] and ".so" in path[2]:
                found.append("/" + path[2])
    return [path for path in dict.fromkeys(found) if os.path.isfile(path)]


def locate(names: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The directory of each package by its name, and the paths that hold them all.

    In a directory that is no site-packages, such as a source tree on PYTHONPATH, only the package
    itself is readable.
    """
    found, readable = dict[str, str](), []
    for name in dict.fromkeys(name.partition(".")[0] for name in names):
        spec = find_spec(name)
        if spec is None or spec.origin in (None, "built-in", "frozen"):
            continue
        origin = Path(str(spec.origin)).resolve()
        package = origin.parent if origin.name == "__init__.py" else origin
        found[name] = str(package.parent)
        readable.append(
            str(
                package.parent
                if package.parent.name in ("site-packages", "dist-packages")
                else package
            )
        )
    return found, readable

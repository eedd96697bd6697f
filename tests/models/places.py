"""Places where storing fails: file systems of a mount namespace, made for one command."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

SPACE = ("unshare", "--user", "--map-root-user", "--mount")
MOUNTS = (
    "mount -t tmpfs -o size=1m none /tmp",
    "mount --bind /tmp /tmp",
    "mount -o remount,ro,bind /tmp",
)
NO_NETWORK = ("unshare", "--user", "--map-root-user", "--net")


@cache
def refused(space: tuple[str, ...]) -> str:
    """The reason why this host gives no such namespaces or mounts; "" when both work."""
    if shutil.which("unshare") is None:
        return "unshare is not installed"
    tried = " && ".join(MOUNTS) if space == SPACE else "true"
    done = subprocess.run([*space, "sh", "-c", tried], capture_output=True, text=True)
    return done.stderr.strip() or f"status {done.returncode}" if done.returncode else ""


def need(space: tuple[str, ...]) -> None:
    """Skip the test, with the reason, on a host without such namespaces."""
    if reason := refused(space):
        pytest.skip(f"namespaces are refused here: {reason}")


def with_mount(setup: str, command: Sequence[str]) -> list[str]:
    """`command` in a mount namespace, after the shell lines of `setup`."""
    need(SPACE)
    return [*SPACE, "sh", "-e", "-c", f'{setup}\nexec "$@"', "sh", *command]


def tmpfs(place: Path, megabytes: int) -> str:
    """A line that mounts an empty file system of that size."""
    return f'mount -t tmpfs -o size={megabytes}m none "{place}"'


def read_only(place: Path) -> str:
    """A line that makes a folder read-only."""
    return f'mount --bind "{place}" "{place}" && mount -o remount,ro,bind "{place}"'

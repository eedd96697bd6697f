"""Python, packages, compiler, memory, disk, directories and terminal.

Nothing here imports a library that it checks.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from kmint_tui import paths
from kmint_tui.doctor.finding import Finding
from kmint_tui.memory import available_memory
from kmint_tui.models.fit import readable

PYTHONS = ((3, 11), (3, 13))
PACKAGES = ("torch", "triton", "llama-cpp-python", "textual")
LEAST_FREE = 1 << 30
"""Bytes of free memory, or of free disk space, below which the doctor warns."""

SMALLEST = (80, 24)
"""Columns and lines of the smallest useful terminal."""


def python() -> Finding:
    """The interpreter's version against the supported ones."""
    text = f"{platform.python_version()} on {platform.platform(terse=True)}"
    if not PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]:
        return Finding(
            "python", "fail", f"{text} is not supported", "install kmint under Python 3.11 to 3.13"
        )
    if sys.platform != "linux":
        return Finding(
            "python",
            "warn",
            f"{text}: the referee's sandbox needs Linux",
            "use Linux to judge kernels",
        )
    return Finding("python", "ok", text)


def packages() -> Finding:
    """Finding on the packages that kmint needs."""
    known = {name: installed_version(name) for name in PACKAGES}
    text = ", ".join(f"{name} {found}" for name, found in known.items() if found)
    missing = ", ".join(name for name, found in known.items() if found is None)
    if missing:
        return Finding(
            "packages", "fail", f"{text or 'none'}; missing: {missing}", "install kmint again"
        )
    return Finding("packages", "ok", text)


def installed_version(package: str) -> str | None:
    """The installed version of a package; None without it."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def compiler() -> Finding:
    """The C compiler that Triton's own launcher needs; kmint's replay needs none."""
    wanted = os.environ.get("CC")
    found = (
        shutil.which(wanted)
        if wanted
        else next((path for name in ("gcc", "clang", "cc") if (path := shutil.which(name))), None)
    )
    if found:
        return Finding("compiler", "ok", found)
    what = f"CC names {wanted}, which does not exist" if wanted else "no C compiler found"
    return Finding(
        "compiler",
        "warn",
        f"{what}; Triton needs one to launch saved kernels",
        "install gcc or clang, or let CC name one",
    )


def memory() -> Finding:
    """Main memory that is available now."""
    free = available_memory()
    if free is None:
        return Finding(
            "memory",
            "unknown",
            "the system does not report it",
            "check it with the system's own tools",
        )
    text = f"{readable(free)} free, {os.cpu_count()} processors"
    return (
        Finding("memory", "ok", text)
        if free > LEAST_FREE
        else Finding("memory", "warn", text, "end other programs, or use the embedded model")
    )


def disk() -> Finding:
    """Free space in the models' folder."""
    place = _existing(paths.models_dir())
    free = shutil.disk_usage(place).free
    text = f"{readable(free)} free at {place}"
    if free > LEAST_FREE:
        return Finding("disk", "ok", text)
    return Finding(
        "disk",
        "warn",
        text,
        "free some space, or set KMINT_HOME or KMINT_MODELS_DIR to a place with room",
    )


def directories() -> Finding:
    """Finding on kmint's folders: whether it may write there. The check makes no folder."""
    wanted = (
        paths.config_dir(),
        paths.data_dir(),
        paths.models_dir(),
        paths.cache_dir(),
        paths.state_dir(),
    )
    refused = ", ".join(str(path) for path in wanted if not _may_write(path))
    if refused:
        return Finding(
            "directories",
            "fail",
            f"cannot write to {refused}",
            "set KMINT_HOME to a place you may write to",
        )
    return Finding(
        "directories",
        "ok",
        f"settings {wanted[0]}, data {wanted[1]}, models {wanted[2]}, cache {wanted[3]}, "
        f"logs {wanted[4]}",
    )


def _may_write(path: Path) -> bool:
    place = _existing(path)
    return place.is_dir() and os.access(place, os.W_OK | os.X_OK)


def _existing(path: Path) -> Path:
    absolute = path.absolute()
    return next(place for place in (absolute, *absolute.parents) if place.exists())


def terminal() -> Finding:
    """Size and colours of the terminal, where stdout is one."""
    if not sys.__stdout__ or not sys.__stdout__.isatty():
        return Finding(
            "terminal",
            "unknown",
            "stdout is not a terminal",
            "run `kmint doctor` in a terminal to check it",
        )
    size = os.get_terminal_size(sys.__stdout__.fileno())
    kind, depth = os.environ.get("TERM", ""), os.environ.get("COLORTERM", "")
    text = f"{size.columns}x{size.lines}, TERM={kind or 'not set'}, COLORTERM={depth or 'not set'}"
    if size.columns < SMALLEST[0] or size.lines < SMALLEST[1]:
        return Finding(
            "terminal",
            "warn",
            text,
            f"make it at least {SMALLEST[0]}x{SMALLEST[1]} for the full-screen interface",
        )
    if kind in ("", "dumb"):
        return Finding(
            "terminal",
            "warn",
            f"{text}: no colours",
            "set TERM to the terminal's name, for example xterm-256color",
        )
    return Finding("terminal", "ok", text)

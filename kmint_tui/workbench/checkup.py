"""What works on this machine and what does not, looked at without the network, a model or torch.

What could not be found out is "unknown", never a guess. `kmint selftest` proves the referee itself.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kmint_tui import config, paths
from kmint_tui.cli.referee import no_gpu_reason
from kmint_tui.errors import KmintError
from kmint_tui.minting.request import environment
from kmint_tui.models.fit import available_memory, readable
from kmint_tui.workbench import facts, preferences, smiths

LEAST_FREE = 1 << 30

Status = Literal["ok", "warn", "fail", "unknown"]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; `fix` says what to do about it."""

    name: str
    status: Status
    detail: str
    fix: str = ""


def findings() -> Iterator[Finding]:
    """Everything, one after the other; a probe that fails becomes a finding."""
    probes: tuple[tuple[str, Callable[[], Finding]], ...] = (
        ("python", _python),
        ("packages", _packages),
        ("gpu", _gpu),
        ("smith", _smith),
        ("memory", _memory),
        ("disk", _disk),
        ("folders", _folders),
        ("compiler", _compiler),
        ("settings", _settings),
        ("terminal", _terminal),
        ("network", _network),
    )
    for name, probe in probes:
        try:
            yield probe()
        except KmintError as error:
            yield Finding(name, "fail", error.message, error.fix)
        except OSError as error:
            yield Finding(name, "unknown", f"could not be looked at: {error}")


def _python() -> Finding:
    return Finding("python", "ok", f"{platform.python_version()} on {platform.platform(terse=True)}")


def _packages() -> Finding:
    known = environment()
    names = ("torch", "triton", "llama-cpp-python", "textual")
    missing = [name for name in names if known.get(name) is None]
    text = ", ".join(f"{name} {known[name]}" for name in names if known.get(name))
    if missing:
        return Finding("packages", "fail", f"{text}; missing: {', '.join(missing)}", "install kmint again")
    return Finding("packages", "ok", text)


def _gpu() -> Finding:
    reason = no_gpu_reason()
    if reason is None:
        return Finding("gpu", "ok", facts.gpu()[0])
    return Finding("gpu", "warn", f"{reason}; kernels are checked by Triton's interpreter and never timed")


def _smith() -> Finding:
    here = smiths.usable()
    if not here:
        return Finding("smith", "fail", "no model is here", "install kmint again, or pull one on the Models screen")
    best = facts.default_model()
    return Finding("smith", "ok", f"{best} would be used; here: {', '.join(smith.id for smith in here)}")


def _memory() -> Finding:
    free = available_memory()
    if free is None:
        return Finding("memory", "unknown", "the system does not say")
    cores = len(os.sched_getaffinity(0))
    return Finding("memory", "ok" if free > LEAST_FREE else "warn", f"{readable(free)} free, {cores} processor cores")


def _disk() -> Finding:
    place = next(path for path in (paths.data_dir(), *paths.data_dir().parents) if path.exists())
    free = shutil.disk_usage(place).free
    fix = "" if free > LEAST_FREE else "free some space, or set KMINT_HOME to a place with room"
    return Finding("disk", "warn" if fix else "ok", f"{readable(free)} free at {place}", fix)


def _folders() -> Finding:
    refused = [str(path) for path in (paths.config_dir(), paths.data_dir(), paths.cache_dir(), paths.state_dir()) if not _writable(path)]
    if refused:
        return Finding("folders", "fail", f"cannot write to {', '.join(refused)}", "set KMINT_HOME to a place you may write to")
    return Finding("folders", "ok", f"history {paths.history_file()}, models {paths.models_dir()}")


def _writable(path: Path) -> bool:
    return os.access(next(place for place in (path, *path.parents) if place.exists()), os.W_OK)


def _compiler() -> Finding:
    found = next((path for name in ("cc", "gcc", "clang") if (path := shutil.which(name))), None)
    if found is None:
        return Finding("compiler", "warn", "no C compiler found; Triton needs one to launch kernels on a GPU", "install gcc or clang")
    return Finding("compiler", "ok", found)


def _settings() -> Finding:
    config.load(paths.config_file())
    preferences.load()
    here = [str(path) for path in (paths.config_file(), preferences.file()) if path.exists()]
    return Finding("settings", "ok", ", ".join(here) or "none; everything as built in")


def _terminal() -> Finding:
    size = shutil.get_terminal_size()
    text = f"{size.columns}x{size.lines}, TERM={os.environ.get('TERM', 'not set')}, colours {os.environ.get('COLORTERM', 'unknown')}"
    small = size.columns < 80 or size.lines < 24
    return Finding("terminal", "warn" if small else "ok", text, "kmint wants 80x24 at least" if small else "")


def _network() -> Finding:
    reason = facts.offline_reason()
    return Finding("network", "ok", f"offline ({reason})" if reason else "allowed; used only for pulls, never at start")

"""Runs the profilers on a compiled candidate: Nsight Compute where `ncu` is on PATH, and torch's.

Times and the share of the copy floor always come from torch, with a cold L2 cache. Bytes and the
achieved occupancy come from Nsight Compute alone.
"""

from __future__ import annotations

import csv
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from kmint_tui.documents import parse_json
from kmint_tui.errors import EnvironmentUnfit, TimedOut
from referee import python_child
from referee.gpu import wire
from referee.gpu.jobs import CompiledCandidate, pack_jobs
from referee.gpu.worker_process import worker_environment

SECONDS = 300
TIME, BYTES, ACTIVE = (
    "gpu__time_duration.sum",
    "dram__bytes.sum",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
)


@dataclass(frozen=True)
class KernelRun:
    """One kernel as a profiler saw it: microseconds, bytes to and from the device's memory, and the
    achieved occupancy as a share. None where the profiler does not say.
    """

    name: str
    us: float | None
    moved_bytes: float | None = None
    occupancy: float | None = None


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The measured half of a profile. `us` and `floor_us` are medians of a call and of a copy of the
    same bytes, with a cold L2 cache.

    `note` says why Nsight Compute was not used, "" where it was.
    """

    device: str
    us: float
    floor_us: float
    by: Literal["ncu", "torch"]
    kernels: tuple[KernelRun, ...]
    note: str = ""

    @property
    def floor_share(self) -> float:
        """The time of the copy over that of the call: 1.0 is as fast as a copy."""
        return self.floor_us / self.us

    def to_json(self) -> dict[str, Any]:
        """The part `measured` of `kmint.profile/1`."""
        return {**asdict(self), "floor_share": self.floor_share}


def measured(prepared: CompiledCandidate, cache: Path) -> Measured:
    """Profile a candidate that was compiled at one case. Raises EnvironmentUnfit or TimedOut."""
    packed, blobs = pack_jobs(prepared.jobs)
    frame = wire.frame({"jobs": packed, **prepared.message()}, blobs)
    child = python_child.module_command("kmint_tui.profiling.child")
    told = parse_json(_run([*child, "timed"], frame, cache).splitlines()[-1])
    by_torch = tuple(KernelRun(one["name"], one["us"]) for one in told.pop("kernels"))
    tool = shutil.which("ncu")
    kernels: tuple[KernelRun, ...] = ()
    note = "`ncu` (Nsight Compute) is not on PATH"
    if tool is not None:
        try:
            kernels = read_ncu(_run([*ncu_command(tool), *child, "once"], frame, cache))
            note = ""
        except EnvironmentUnfit as error:
            note = error.message
    return Measured(
        **told, by="ncu" if kernels else "torch", kernels=kernels or by_torch, note=note
    )


def ncu_command(tool: str) -> list[str]:
    """Nsight Compute for the marked part of a program, as a table; the card's clocks stay as they
    are.
    """
    return [
        tool,
        "--profile-from-start=off",
        "--clock-control=none",
        "--csv",
        "--page=raw",
        "--print-units=base",
        f"--metrics={TIME},{BYTES},{ACTIVE}",
    ]


def read_ncu(output: str) -> tuple[KernelRun, ...]:
    """The kernels in a table of Nsight Compute, whose second row holds units.

    Raises EnvironmentUnfit for output without a table, with the error in it.
    """
    lines = output.splitlines()
    rows = list(csv.DictReader(line for line in lines if line.startswith('"')))
    found = tuple(
        KernelRun(
            row["Kernel Name"],
            _scaled(row.get(TIME), 1e-3),
            _scaled(row.get(BYTES), 1.0),
            _scaled(row.get(ACTIVE), 1e-2),
        )
        for row in rows
        if row.get("ID")
    )
    if not found:
        said = [line for line in lines if "ERR" in line or "WARNING" in line] or lines[-1:]
        raise EnvironmentUnfit(f"Nsight Compute saw no kernel: {' '.join(said)[:300]}")
    return found


def _scaled(text: str | None, factor: float) -> float | None:
    """A number of the table, which may have commas; None where there is none."""
    try:
        return float((text or "").replace(",", "")) * factor
    except ValueError:
        return None


def _run(command: Sequence[str], frame: bytes, cache: Path) -> str:
    """The output of a profiler. Raises EnvironmentUnfit or TimedOut."""
    try:
        done = subprocess.run(
            command,
            input=frame,
            capture_output=True,
            timeout=SECONDS,
            cwd=python_child.WORKING_FOLDER,
            env=worker_environment(cache),
        )
    except subprocess.TimeoutExpired as error:
        raise TimedOut(f"the profiler did not end within {SECONDS} s") from error
    out, err = (stream.decode(errors="replace") for stream in (done.stdout, done.stderr))
    if done.returncode:
        last = (err.strip() or out.strip()).splitlines()[-1:]
        raise EnvironmentUnfit(f"the profiler failed: {' '.join(last)[:300]}")
    return out

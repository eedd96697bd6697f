"""The figures of `bench/decode.py`, the machine they hold for, and their table."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from referee.timing.nvml import first_visible
from tests import tiny_models

MINICPM5 = tiny_models.Shape(
    layers=24,
    hidden=1536,
    heads=16,
    kv_heads=2,
    head=128,
    feed_forward=4608,
    context=32768,
    spread=0.02,
    vocabulary=130560,
    same_layers=True,
)
TINY = tiny_models.Shape(layers=2, context=8192, vocabulary=20000)
HEAD = (
    "| peer | drafts | tok/s decoding | tok/s in all | first s | all s | prefill s "
    "| ms a step | host ms | sampling | peak MiB | cancel ms |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|---|"
)


@dataclass(frozen=True)
class Figure:
    """One measurement. Seconds; rates are tokens of all drafts a second, `decode_rate` without the
    prompt.

    `step` is the median step, `host` the part of it in which the model waited for us. `cancel` is
    the longest wait from asking for an end to having it. Zero where a peer does not say.
    """

    peer: str
    drafts: int
    tokens: int
    prompt_tokens: int
    rate: float
    decode_rate: float
    first_draft: float
    all_drafts: float
    prefill: float
    step: float
    sampling_share: float
    peak_memory: int
    host: float = 0.0
    cancel: float = 0.0
    gpu_memory: int = 0
    note: str = ""

    def row(self) -> str:
        """A line of the Markdown table under `HEAD`."""
        ours = self.peer == "kmint"
        peak = (self.peak_memory + self.gpu_memory) / 2**20
        cells = [
            self.peer,
            f"{self.drafts}",
            f"{self.decode_rate:.0f}",
            f"{self.rate:.0f}",
            f"{self.first_draft:.2f}",
            f"{self.all_drafts:.2f}",
            f"{self.prefill:.3f}",
            f"{1000 * self.step:.2f}",
            f"{1000 * self.host:.2f}" if ours else "-",
            f"{100 * self.sampling_share:.0f} %" if ours else "-",
            f"{peak:.0f}" if peak else "-",
            f"{1000 * self.cancel:.1f}" if ours else "-",
        ]
        return f"| {' | '.join(cells)} |"


def make_random(path: Path, shape: tiny_models.Shape = MINICPM5) -> Path:
    """Makes a Q8_0 file of random weights that never ends a draft early."""
    return tiny_models.llama(path, shape, quant="Q8_0", end=-9)


def environment() -> dict[str, Any]:
    """The machine and the versions that the figures hold for."""
    info = (
        Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    )
    model = next(
        (
            line.partition(":")[2].strip()
            for line in info.splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    return {
        "processor": model,
        "cores": cores(),
        "load": os.getloadavg()[0],
        "gpu": gpu(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "versions": {
            name: _version(name) for name in ("llama-cpp-python", "numpy", "torch", "transformers")
        },
    }


def cores() -> int:
    """Physical cores this process may use."""
    from kmint_tui.smith import machine

    return machine.cores().count


def gpu() -> str:
    """Name and driver of the GPU that is used; "" without one."""
    return _smi("--query-gpu=name,driver_version")


def gpu_memory_used() -> int:
    """Bytes in use on the GPU, by all processes; 0 without one."""
    used = _smi("--query-gpu=memory.used", "nounits")
    return int(used) * 2**20 if used.isdecimal() else 0


def peak_of(pid: int | None) -> int:
    """The most memory that a process has had, in bytes; 0 when the system does not say."""
    status = Path(f"/proc/{pid}/status")
    found = (
        re.search(r"VmHWM:\s+(\d+) kB", status.read_text(encoding="utf-8"))
        if status.exists()
        else None
    )
    return int(found.group(1)) * 1024 if found else 0


def _smi(query: str, *form: str) -> str:
    try:
        shown = subprocess.run(
            [
                "nvidia-smi",
                f"--id={first_visible()}",
                query,
                "--format=" + ",".join(["csv", "noheader", *form]),
            ],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return next(iter(shown.stdout.strip().splitlines()), "").strip()


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""

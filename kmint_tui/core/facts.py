"""The facts that the application always shows: the smith, the GPU and its users, the network.

A fact that cannot be found out reads "unknown". Nothing here loads torch or a model.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Container, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePath

from kmint_tui import config, paths
from kmint_tui.core import offline as network
from kmint_tui.core.referee import no_gpu_reason
from kmint_tui.errors import KmintError
from kmint_tui.models import registry, store
from kmint_tui.models.fit import readable
from kmint_tui.smith import Smith

NO_GPU = "no GPU"
"""The fact where kernels cannot be timed."""
_QUERY_SECONDS = 5.0
_BUSY_PERCENT = 10
"""A desktop alone loads a GPU by a few percent."""


@dataclass(frozen=True)
class Facts:
    """Short texts. `offline` is the reason for running offline, `others` names the other users of
    the GPU.
    """

    model: str
    offload: str
    gpu: str
    offline: str | None
    others: str | None = None

    @property
    def network(self) -> str:
        """ONLINE or OFFLINE."""
        return "OFFLINE" if self.offline else "ONLINE"


def default_model() -> str:
    """The id of the default smith, or "no model"."""
    try:
        settings = config.load(paths.config_file()).config
        known = registry.load(paths.user_models_file())
        return (
            store.resolve(known, settings.mint_model)
            if settings.mint_model
            else store.choose(known, drafts=settings.mint_drafts)
        ).id
    except KmintError:
        return "no model"


def offline_reason(*, flag: bool = False) -> str | None:
    """The reason for staying offline, also where the settings cannot be read; None when online."""
    try:
        return network.offline_reason(flag=flag)
    except KmintError:
        return "unreadable settings"


def has_gpu() -> bool:
    """True where kernels can be timed."""
    return no_gpu_reason() is None


def gpu() -> tuple[str, str | None]:
    """The GPU with its free memory, or "no GPU"; and the other programs that use it, or None."""
    if not has_gpu():
        return NO_GPU, None
    query = shutil.which("nvidia-smi")
    if query is None:
        return "GPU, memory unknown", None
    try:
        name, free, load = _ask(query, "--query-gpu=name,memory.free,utilization.gpu")[0].rsplit(
            ",", 2
        )
        text = f"{name.removeprefix('NVIDIA ').strip()} {readable(int(free) << 20)} free"
        return text, users(
            _ask(query, "--query-compute-apps=pid,used_memory,process_name"),
            load.strip(),
            _own_processes(),
        )
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return "GPU, memory unknown", None


def users(lines: Iterable[str], load: str, own: Container[int]) -> str | None:
    """The programs that use the GPU, without the processes of `own`; None where there is none.

    `lines` are the driver's, as "pid, MiB, name"; `load` is the load in percent. In a container the
    driver names no process of the outside. There a load without a process of `own` counts as
    another program.
    """
    found, ours = [], False
    for line in lines:
        pid, memory, name = (part.strip() for part in line.split(",", 2))
        if not pid.isdigit() or int(pid) in own:
            ours = ours or pid.isdigit()
            continue
        held = f" {readable(int(memory) << 20)}" if memory.isdigit() else ""
        found.append(f"{PurePath(name).name or 'a process'} ({pid}){held}")
    if found:
        return found[0] + (f" and {len(found) - 1} more" if len(found) > 1 else "")
    if not ours and load.isdigit() and int(load) > _BUSY_PERCENT:
        return f"another program, {load} % load"
    return None


def _ask(query: str, wanted: str) -> list[str]:
    from referee.timing.nvml import first_visible

    command = [query, f"--id={first_visible()}", wanted, "--format=csv,noheader,nounits"]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=_QUERY_SECONDS, check=True
    ).stdout.splitlines()


def _own_processes() -> frozenset[int]:
    """The ids of this process and of its descendants, as far as /proc shows parents."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(entry.name)] = int(
                (entry / "stat")
                .read_text(encoding="utf-8", errors="replace")
                .rpartition(")")[2]
                .split()[1]
            )
        except (OSError, ValueError, IndexError):
            continue
    own = {os.getpid()}
    while True:
        more = {pid for pid, parent in parents.items() if parent in own} - own
        if not more:
            return frozenset(own)
        own |= more


def offload(smith: Smith | None) -> str:
    """Number of the loaded model's layers that are on the GPU, in words; "not loaded" without one."""
    loaded = smith.loaded if smith is not None else None
    if loaded is None:
        return "not loaded"
    return (
        f"{loaded.gpu_layers}/{loaded.layers + 1} layers on GPU" if loaded.gpu_layers else "on CPU"
    )


def collect(smith: Smith | None, *, offline: bool = False) -> Facts:
    """All facts now. It asks the driver, so call it in a thread."""
    device, others = gpu()
    return Facts(default_model(), offload(smith), device, offline_reason(flag=offline), others)

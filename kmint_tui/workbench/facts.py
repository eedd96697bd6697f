"""The facts that the interface always shows: the smith and where it runs, the GPU and who holds it, whether the network may be used.

What could not be found out is said to be unknown, never guessed. Nothing here loads torch or a model.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass

from kmint_tui import config, paths
from kmint_tui.cli.referee import no_gpu_reason
from kmint_tui.cli.state import offline_variable
from kmint_tui.errors import KmintError
from kmint_tui.models import registry, store
from kmint_tui.models.fit import readable
from kmint_tui.smith import Smith

_QUERY_SECONDS = 5.0


@dataclass(frozen=True)
class Facts:
    """Four short texts, and the reason for running offline, if any."""

    model: str
    offload: str
    gpu: str
    offline: str | None

    @property
    def network(self) -> str:
        """ONLINE or OFFLINE."""
        return "OFFLINE" if self.offline else "ONLINE"


def default_model() -> str:
    """The id of the smith that would be used, or "no model"."""
    try:
        settings = config.load(paths.config_file()).config
        known = registry.load(paths.user_models_file())
        return (store.resolve(known, settings.mint_model) if settings.mint_model else store.choose(known, drafts=settings.mint_drafts)).id
    except KmintError:
        return "no model"


def offline_reason(*, flag: bool = False) -> str | None:
    """What forbids the network: the flag, a variable or the settings; None when nothing does."""
    if flag:
        return "--offline"
    if (variable := offline_variable()) is not None:
        return variable
    try:
        return "network.offline" if config.load(paths.config_file()).config.network_offline else None
    except KmintError:
        return "unreadable settings"


def gpu() -> str:
    """The GPU and its free memory, or that there is none to use."""
    if no_gpu_reason() is not None:
        return "no GPU"
    query = shutil.which("nvidia-smi")
    if query is None:
        return "GPU, memory unknown"
    command = [query, "--query-gpu=name,memory.free", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_QUERY_SECONDS, check=True).stdout
        name, free = answer.splitlines()[0].rsplit(",", 1)
        return f"{name.removeprefix('NVIDIA ').strip()} {readable(int(free) << 20)} free"
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return "GPU, memory unknown"


def offload(smith: Smith | None) -> str:
    """How many of the loaded model's layers are on the GPU; "not loaded" before."""
    loaded = smith.loaded if smith is not None else None
    if loaded is None:
        return "not loaded"
    return f"{loaded.gpu_layers}/{loaded.layers + 1} layers on GPU" if loaded.gpu_layers else "on CPU"


def collect(smith: Smith | None, *, offline: bool = False) -> Facts:
    """All facts now; asks the driver, so call it in a thread."""
    return Facts(default_model(), offload(smith), gpu(), offline_reason(flag=offline))

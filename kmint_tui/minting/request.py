"""What is to be minted, and by whom: everything that decides a session's outcome, in one frozen value."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any, Literal

from kmint_tui import __version__
from kmint_tui.history.records import NewSession
from kmint_tui.models.registry import Feedback
from kmint_tui.models.store import Choice
from kmint_tui.smith.prompts import Prompt
from kmint_tui.smith.sampling import Sampling
from referee.ops import Op

if TYPE_CHECKING:
    from kmint_tui.models.endpoint import Endpoint
    from referee.device.jobs import TaskName

Until = Literal["best", "first"]
Level = Literal["screen", "compile", "correct", "full"]

_VERSIONED = ("llama-cpp-python", "torch", "triton", "textual")


@dataclass(frozen=True)
class MintRequest:
    """One session. `task` is what the referee judges by: the op's name, or the file of a user's own reference.

    `repair` is how many further rounds rejected drafts may get, `feedback` the form of what the smith is then told; `tune` has
    the best kernel's launch constants swept. With an `endpoint` the smith is there, and there is no model file.
    """

    op: Op
    task: str | TaskName
    model: Choice
    model_sha256: str
    prompt: Prompt
    drafts: int
    seed: int
    sampling: Sampling
    max_tokens: int
    until: Until = "best"
    level: Level = "full"
    target: str | None = None
    repair: int = 0
    tune: bool = False
    feedback: Feedback = "full"
    endpoint: Endpoint | None = None

    def to_session(self) -> NewSession:
        """What the history stores of it."""
        names = ("max_tokens", "until", "level", "target", "repair", "tune", "feedback")
        settings = {**asdict(self.sampling), **{name: getattr(self, name) for name in names}}
        return NewSession(
            op=self.op.name,
            model=self.model.id,
            model_file=self.model.file.path.name,
            model_sha256=self.model_sha256,
            system=self.prompt.system,
            user=self.prompt.user,
            seed=self.seed,
            wanted=self.drafts,
            settings=settings,
            environment=environment(),
        )


def environment() -> dict[str, Any]:
    """The machine and the versions of everything that takes part, without importing any of it."""
    versions = {name: _version(name) for name in _VERSIONED}
    return {
        "kmint": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "machine": platform.machine(),
        **versions,
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None

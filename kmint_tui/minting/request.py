"""The request of a session: everything that decides its outcome, in one frozen value."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any, Literal

from kmint_tui import __version__
from kmint_tui.history.records import NewSession, Session
from kmint_tui.models.registry import Dialect, Feedback
from kmint_tui.models.store import Choice
from kmint_tui.smith.prompts import Prompt
from kmint_tui.smith.sampling import Sampling
from referee.ops import Op

if TYPE_CHECKING:
    from kmint_tui.graph.program import Program
    from kmint_tui.models.endpoint import Endpoint
    from referee.problem import TaskName

Until = Literal["best", "first"]
Level = Literal["screen", "compile", "correct", "full"]

OWN_WORDING = "kmint's own words"
_VERSIONED = ("llama-cpp-python", "torch", "triton", "textual")


@dataclass(frozen=True)
class MintRequest:
    """One session. `task` is the op's name, or the file of the user's own function.

    `repair` is the maximum number of further rounds, `feedback` the form of the line about a
    rejected draft. With `tune` the tuner sweeps the best kernel's launch constants. With an
    `endpoint` the smith is there, and there is no model file; with `more` of them, draft n of a batch
    comes from endpoint n modulo their number. `program` is the function as a graph,
    None where it has none. In the dialect "graph" the smith writes the kernel of the program's main
    stage, and kmint the rest. With `template` kmint's own kernel competes with the drafts.
    `wording` names the source of the prompt's words.
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
    more: tuple[Endpoint, ...] = ()
    dialect: Dialect = "card"
    program: Program | None = None
    template: bool = True
    wording: str = OWN_WORDING

    @property
    def drafted_stage(self) -> Program | None:
        """The program whose main stage the smith writes; None where it writes whole files."""
        return self.program if self.dialect == "graph" else None

    def to_session(self) -> NewSession:
        """The session's row for the history."""
        names = (
            "max_tokens",
            "until",
            "level",
            "target",
            "repair",
            "tune",
            "feedback",
            "dialect",
            "wording",
            "template",
        )
        settings = {**asdict(self.sampling), **{name: getattr(self, name) for name in names}}
        if self.endpoint is not None:
            settings["endpoints"] = [
                f"{one.url}#{one.model}" for one in (self.endpoint, *self.more)
            ]
        if not isinstance(self.task, str):
            settings |= {
                name: list(getattr(self.task, name)) for name in ("inputs", "fixed", "shapes")
            }
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


def inputs_of(session: Session) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The texts of `--input` and `--fix` that a session was minted with."""
    inputs, fixed = (session.settings.get(name) for name in ("inputs", "fixed"))
    return tuple(map(str, inputs if isinstance(inputs, list) else ())), tuple(
        map(str, fixed if isinstance(fixed, list) else ())
    )


def shapes_of(session: Session) -> tuple[str, ...]:
    """The shapes that the kernels of a session were judged at, as `--shape` takes them."""
    shapes = session.settings.get("shapes")
    return tuple(map(str, shapes)) if isinstance(shapes, list) else ()


def environment() -> dict[str, Any]:
    """The machine and the versions of all parts, without an import of any."""
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

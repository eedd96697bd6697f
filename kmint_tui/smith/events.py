"""The engine's messages to the application: frozen dataclasses, one JSON object a line on the pipe.

A run gives any number of `Token`s and `Note`s, one `DraftDone` for every draft, and ends with
exactly one `RunDone` or `Failed`. `Loading` and `ModelLoaded` come before the first run's events;
`Measured` and `Chat` do not leave the engine.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any, Literal

from kmint_tui import typed
from kmint_tui.smith.extract import Finish

FailureCode = Literal[
    "environment", "gpu", "model", "template", "memory", "request", "native", "killed", "protocol"
]


@dataclass(frozen=True)
class Choice:
    """A decision of the engine, with its reason."""

    name: str
    value: str
    reason: str


@dataclass(frozen=True)
class Loading:
    """The model is being read; `fraction` is from 0 to 1."""

    fraction: float


@dataclass(frozen=True)
class Measured:
    """A measurement to store under `key` for the next start; internal to the engine."""

    key: str
    entry: dict[str, object]


@dataclass(frozen=True)
class Chat:
    """The model file's own chat template and the text of its BOS token.

    `adds_bos`: prompts begin with that token.
    """

    template: str
    bos: str
    adds_bos: bool


@dataclass(frozen=True, kw_only=True)
class ModelLoaded:
    """The model is ready."""

    path: str
    description: str
    architecture: str
    parameters: int
    bytes: int
    layers: int
    vocabulary: int
    trained_context: int
    recurrent: bool
    gpu_layers: int
    choices: tuple[Choice, ...]
    seconds: float


@dataclass(frozen=True)
class Token:
    """New text of one draft; `tokens` counts all of the draft's tokens so far."""

    draft: int
    text: str
    tokens: int


@dataclass(frozen=True, kw_only=True)
class DraftDone:
    """The end of one draft. `ids` are its tokens, which reproduce the text without the model."""

    draft: int
    text: str
    finish: Finish
    tokens: int
    seconds: float
    seed: int
    temperature: float
    ids: tuple[int, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Note:
    """Information for the user during the run."""

    text: str


@dataclass(frozen=True, kw_only=True)
class RunDone:
    """Figures of one run. Times are seconds; `sampling_share` is sampling's part of the step time.

    `host_seconds` is the part of the median step in which the model waited, sampling included.
    """

    drafts: int
    tokens: int
    seconds: float
    prompt_tokens: int
    reused_tokens: int
    prefill_seconds: float
    first_token_seconds: float
    steps: int
    step_seconds: float
    sampling_share: float
    cells: int
    threads: int
    cancelled: bool
    choices: tuple[Choice, ...] = ()
    host_seconds: float = 0.0


@dataclass(frozen=True)
class Failed:
    """The run, or loading, cannot continue. Drafts that are done stay valid.

    `log` is a file with llama.cpp's output.
    """

    code: FailureCode
    reason: str
    log: str = ""

    @property
    def exit_code(self) -> int:
        """The command's exit code: 2 request, 3 environment, 4 model, 70 internal."""
        return {
            "request": 2,
            "environment": 3,
            "gpu": 3,
            "memory": 3,
            "model": 4,
            "template": 4,
        }.get(self.code, 70)


Event = Loading | Measured | Chat | ModelLoaded | Token | DraftDone | Note | RunDone | Failed
_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (Loading, Measured, Chat, ModelLoaded, Token, DraftDone, Note, RunDone, Failed)
}


def encode(event: Event) -> str:
    """One line of ASCII without a line break."""
    # `asdict` copies every token id on its own. When many drafts end at once that takes longer than
    # a step.
    return json.dumps(
        {"event": type(event).__name__, **vars(event)}, separators=(",", ":"), default=vars
    )


def decode(line: str) -> Event:
    """The event of one line. Raises ValueError for any other text."""
    try:
        data = json.loads(line)
    except RecursionError:
        raise ValueError("an engine event that is nested too deeply") from None
    if (
        not isinstance(data, dict)
        or not isinstance(data.get("event"), str)
        or data["event"] not in _KINDS
    ):
        raise ValueError(f"not an engine event: {line[:80]!r}")
    kind = _KINDS[data.pop("event")]
    if set(data) != {field.name for field in fields(kind)}:
        raise ValueError(f"a {kind.__name__} event with other fields: {line[:80]!r}")
    event: Event = typed.made(kind, data, kind.__name__)
    return event

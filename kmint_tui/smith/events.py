"""What the engine tells the application, as frozen dataclasses, and their form on the pipe: one JSON object a line.

A run gives any number of `Token`s and `Note`s, one `DraftDone` for every draft, and ends with exactly one `RunDone` or
`Failed`. `Loading` and `Loaded` come before the first run's events.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any, Literal

from kmint_tui.smith.extract import Finish

FailureCode = Literal["environment", "gpu", "model", "template", "memory", "request", "native", "killed", "protocol"]


@dataclass(frozen=True)
class Choice:
    """Something the engine decided by itself, with its reason."""

    name: str
    value: str
    reason: str


@dataclass(frozen=True)
class Loading:
    """The model is being read; `fraction` is from 0 to 1."""

    fraction: float


@dataclass(frozen=True)
class Loaded:
    """The model is ready. `template_refused` is the reason why it cannot take prompts in chat form, or ""."""

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
    template_refused: str
    choices: tuple[Choice, ...]
    seconds: float


@dataclass(frozen=True)
class Token:
    """New text of one draft; `tokens` counts all of the draft's tokens so far."""

    draft: int
    text: str
    tokens: int


@dataclass(frozen=True)
class DraftDone:
    """One draft is finished. `ids` are its tokens, so that the text can be had again without the model."""

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
    """Something a person should know while the run goes on."""

    text: str


@dataclass(frozen=True)
class RunDone:
    """Figures of one run. Times are seconds; `sampling_share` is the part of the step time spent choosing tokens.

    `host_seconds` is the part of the median step in which the model waited for anything but itself, sampling included.
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
    """The run, or loading, cannot go on. Drafts that were done before stay valid. `log` is a file with llama.cpp's words."""

    code: FailureCode
    reason: str
    log: str = ""

    @property
    def exit_code(self) -> int:
        """The command line's exit code for this failure: 2 request, 3 environment, 4 model, 70 internal."""
        return {"request": 2, "environment": 3, "gpu": 3, "memory": 3, "model": 4, "template": 4}.get(self.code, 70)


Event = Loading | Loaded | Token | DraftDone | Note | RunDone | Failed
_KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in (Loading, Loaded, Token, DraftDone, Note, RunDone, Failed)}


def encode(event: Event) -> str:
    """One line without a line break; ASCII only."""
    # `asdict` copies every token id on its own: with many drafts that end at once it takes longer than a step.
    return json.dumps({"event": type(event).__name__, **vars(event)}, separators=(",", ":"), default=vars)


def decode(line: str) -> Event:
    """The event of one line. Raises ValueError when it is not one of ours."""
    data = json.loads(line)
    if not isinstance(data, dict) or not isinstance(data.get("event"), str) or data["event"] not in _KINDS:
        raise ValueError(f"not an engine event: {line[:80]!r}")
    kind = _KINDS[data.pop("event")]
    if set(data) != {field.name for field in fields(kind)}:
        raise ValueError(f"a {kind.__name__} event with other fields: {line[:80]!r}")
    try:
        if "choices" in data:
            data["choices"] = tuple(Choice(**choice) for choice in data["choices"])
        if "ids" in data:
            data["ids"] = tuple(data["ids"])
    except TypeError as error:
        raise ValueError(f"a {kind.__name__} event with odd fields: {error}") from None
    event: Event = kind(**data)
    return event

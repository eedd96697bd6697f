"""The events of a mint as frozen dataclasses, for the command line and the application."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kmint_tui.history.records import draft_id
from kmint_tui.minting.drafts import MintDraft
from kmint_tui.minting.request import MintRequest
from kmint_tui.minting.result import MintResult
from kmint_tui.minting.tuning import Sweep
from kmint_tui.smith.events import Choice
from referee.verdict import Verdict

SCHEMA = "kmint.mint-event/1"


@dataclass(frozen=True)
class Started:
    """The session exists in the history; the smith is being loaded."""

    session: int
    request: MintRequest


@dataclass(frozen=True)
class RoundStarted:
    """Rejected drafts go back to the smith; `parents` has the number of every new draft and of the
    one that it repairs.
    """

    round: int
    parents: Mapping[int, int | None]


@dataclass(frozen=True)
class Progress:
    """The smith has written more of a draft; `tokens` counts all of the draft's tokens so far."""

    index: int
    tokens: int
    text: str


@dataclass(frozen=True)
class DraftFinished:
    """A draft is complete and stored."""

    session: int
    draft: MintDraft


@dataclass(frozen=True)
class Judging:
    """The referee has begun on a draft."""

    index: int


@dataclass(frozen=True)
class CasesDone:
    """Progress without a GPU: the referee has finished `done` of `total` test cases of a draft."""

    index: int
    done: int
    total: int


@dataclass(frozen=True)
class Judged:
    """The referee's word on a draft. Not `final` when the draft is still to be timed, once the
    smith is silent.
    """

    session: int
    index: int
    verdict: Verdict
    final: bool


@dataclass(frozen=True)
class Tuning:
    """The tuner has begun to sweep the launch constants of a draft."""

    index: int


@dataclass(frozen=True)
class Swept:
    """The result of the tuner. A faster kernel follows as a draft."""

    sweep: Sweep


@dataclass(frozen=True)
class Choices:
    """The settings that the smith chose itself, each with its reason."""

    choices: tuple[Choice, ...]


@dataclass(frozen=True)
class Notice:
    """A message for the user while the session continues."""

    text: str


@dataclass(frozen=True)
class Stopping:
    """Drafting stops; finished drafts are still judged."""


@dataclass(frozen=True)
class Finished:
    """The session is over."""

    result: MintResult


MintEvent = (
    Started
    | RoundStarted
    | Progress
    | DraftFinished
    | Judging
    | CasesDone
    | Judged
    | Tuning
    | Swept
    | Choices
    | Notice
    | Stopping
    | Finished
)


def to_json(event: MintEvent) -> dict[str, Any]:
    """One line of the `kmint.mint-event/1` stream."""
    match event:
        case Started(session=session, request=request):
            content: dict[str, Any] = {
                "op": request.op.name,
                "model": request.model.id,
                "seed": request.seed,
                "drafts": request.drafts,
            }
            return _line("started", history_id=str(session), **content)
        case RoundStarted(round=number, parents=parents):
            drafts = [{"index": index, "parent": parent} for index, parent in parents.items()]
            return _line("round", round=number, drafts=drafts)
        case Progress(index=index, tokens=tokens):
            return _line("tokens", index=index, tokens=tokens)
        case DraftFinished(session=session, draft=draft):
            return _line(
                "draft",
                id=draft_id(session, draft.index),
                **{k: v for k, v in draft.to_json(None).items() if k != "verdict"},
            )
        case Judging(index=index):
            return _line("judging", index=index)
        case CasesDone():
            return _line("cases", **asdict(event))
        case Judged(session=session, index=index, verdict=verdict, final=final):
            return _line(
                "verdict",
                id=draft_id(session, index),
                index=index,
                final=final,
                verdict=verdict.to_json(),
            )
        case Tuning(index=index):
            return _line("tuning", index=index)
        case Swept(sweep=sweep):
            return _line("swept", **sweep.to_json())
        case Choices(choices=choices):
            return _line("choices", choices=[asdict(choice) for choice in choices])
        case Notice():
            return _line("notice", **asdict(event))
        case Stopping():
            return _line("stopping")
        case Finished(result=result):
            return _line("done", result=result.to_json())


def _line(name: str, **content: Any) -> dict[str, Any]:
    return {"schema": SCHEMA, "event": name, **content}

"""Messages between workers and screens."""

from __future__ import annotations

from dataclasses import dataclass

from textual.message import Message
from textual.message_pump import MessagePump
from textual.worker import get_current_worker

from kmint_tui.core.facts import Facts
from kmint_tui.core.smiths import SmithState
from kmint_tui.history.records import Draft, Session


@dataclass
class FactsFound(Message):
    """The facts of this machine were looked at."""

    facts: Facts


@dataclass
class ModelsFound(Message):
    """The registry and the store were looked at."""

    smiths: tuple[SmithState, ...]


@dataclass
class DraftFound(Message):
    """A draft was read from the history, with its session and the other drafts of it."""

    session: Session
    draft: Draft
    siblings: tuple[Draft, ...]


@dataclass
class Refused(Message):
    """A worker cannot deliver its result; `error` is the reason."""

    error: Exception


@dataclass
class RunReady(Message):
    """The session under way has something to read."""


@dataclass
class JobsChanged(Message):
    """Work other than the session began or ended."""


def answer(to: MessagePump, message: Message) -> None:
    """Post the result of an exclusive worker, unless the next worker of its group has begun.

    A worker's thread goes on when the worker is cancelled, and may then be slower than its
    successor; its result is out of date. Workers begin and are cancelled where callbacks run, so
    no worker can begin between the look and the post.
    """
    worker = get_current_worker()
    to.call_later(lambda: None if worker.is_cancelled else to.post_message(message))

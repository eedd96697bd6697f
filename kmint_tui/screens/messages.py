"""Messages between workers and screens."""

from __future__ import annotations

from dataclasses import dataclass

from textual.message import Message

from kmint_tui.history.records import Draft, Session
from kmint_tui.workbench.facts import Facts
from kmint_tui.workbench.smiths import SmithState


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
    """What was asked of a worker cannot be had."""

    error: Exception


@dataclass
class RunReady(Message):
    """The session under way has something to read."""


@dataclass
class JobsChanged(Message):
    """Work besides the session began or ended."""

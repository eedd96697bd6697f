"""The events of a build, its result, and where its seconds went."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kmint_tui.book.records import Entry
from kmint_tui.core.book.contest import Outcome, Seconds
from kmint_tui.core.book.planning import Work
from kmint_tui.documents import rounded


@dataclass(frozen=True)
class Step:
    """The build begins something that takes a while."""

    text: str


@dataclass(frozen=True)
class Done:
    """One operation has ended: its entries, its failures, and the state of the whole build.

    `left` is the remaining time in seconds, by the operations so far.
    """

    work: Work
    entries: tuple[Entry, ...]
    failures: tuple[str, ...]
    number: int
    total: int
    elapsed: float
    left: float


BuildEvent = Step | Done


@dataclass
class Profile:
    """Where the seconds of a build went: those of the clock by the cause of waiting, then those of
    the threads together. `worker` has those of the GPUs' processes.
    """

    wall: float = 0.0
    waited: dict[str, float] = field(default_factory=dict)
    contests: Seconds = field(default_factory=Seconds)
    stages: dict[str, float] = field(default_factory=dict)
    drafted: int = 0
    verdicts: int = 0
    worker: dict[str, float] = field(default_factory=dict)

    def add(self, outcome: Outcome) -> None:
        """Count one contest."""
        for name, value in vars(outcome.seconds).items():
            setattr(self.contests, name, getattr(self.contests, name) + value)
        for verdict in outcome.verdicts.values():
            self.verdicts += 1
            for name, value in verdict.seconds.items():
                self.stages[name] = self.stages.get(name, 0.0) + value


@dataclass(frozen=True)
class Built:
    """The result: new entries, failures by place, operations that were not begun, and the profile."""

    entries: tuple[Entry, ...]
    failures: tuple[str, ...]
    left: tuple[str, ...]
    profile: Profile


def profile_document(profile: Profile) -> dict[str, Any]:
    """The profile as plain values, in seconds."""
    found: dict[str, Any] = rounded({**vars(profile), "contests": vars(profile.contests)})
    return found

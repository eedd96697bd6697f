"""The time that a run's steps take, by purpose."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class StepTime:
    """Seconds of one step: in total, until the model's results, and for choosing tokens."""

    whole: float
    model: float
    sampling: float


@dataclass
class Times:
    """The steps of one run, without those that only ended a draft because the cache was full."""

    steps: list[StepTime] = field(default_factory=list)

    def add(self, step: StepTime) -> None:
        """Add one step."""
        self.steps.append(step)

    @property
    def median(self) -> float:
        """Seconds of the median step; 0 without steps."""
        return _median([step.whole for step in self.steps])

    @property
    def host(self) -> float:
        """Seconds of the median step in which the model waited for token choices and other work."""
        return _median([step.whole - step.model for step in self.steps])

    @property
    def sampling_share(self) -> float:
        """Part of all steps' time spent choosing tokens; 0 without steps."""
        whole = sum(step.whole for step in self.steps)
        return sum(step.sampling for step in self.steps) / whole if whole else 0.0


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2] if values else 0.0

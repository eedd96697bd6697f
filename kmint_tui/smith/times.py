"""Where the time of a run's steps goes."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Step:
    """Seconds of one step: all of it, until the model's results were there, and for choosing tokens from them."""

    whole: float
    model: float
    sampling: float


@dataclass
class Times:
    """The steps of one run. A step that ended nothing but a full cache does not count."""

    steps: list[Step] = field(default_factory=list)

    def add(self, step: Step) -> None:
        """One more step."""
        self.steps.append(step)

    @property
    def median(self) -> float:
        """Seconds of the median step; 0 without steps."""
        return _median([step.whole for step in self.steps])

    @property
    def host(self) -> float:
        """Seconds of the median step in which the model waited: choosing tokens, and what else was not in its shadow."""
        return _median([step.whole - step.model for step in self.steps])

    @property
    def sampling_share(self) -> float:
        """Part of all steps' time spent choosing tokens; 0 without steps."""
        whole = sum(step.whole for step in self.steps)
        return sum(step.sampling for step in self.steps) / whole if whole else 0.0


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2] if values else 0.0

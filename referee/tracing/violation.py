"""What ends a trace: a step that no plan can hold, as an exception the candidate's own handlers do not catch."""

from __future__ import annotations


class Violation(BaseException):
    """`guard` names the rule, `reason` is one line of advice. A BaseException, so that `except Exception` lets it pass."""

    def __init__(self, guard: str, reason: str) -> None:
        super().__init__(reason)
        self.guard = guard
        self.reason = reason


class Violations:
    """The first violation of a trace sticks: a candidate that catches it and goes on gains nothing."""

    def __init__(self) -> None:
        self.first: Violation | None = None

    def add(self, guard: str, reason: str) -> Violation:
        """Note a violation and return it, to be raised."""
        violation = Violation(guard, reason)
        self.first = self.first or violation
        return violation

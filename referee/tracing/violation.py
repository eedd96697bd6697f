"""The exception that ends a trace at a step that no plan can hold. A handler for `Exception` does
not catch it.
"""

from __future__ import annotations


class Violation(BaseException):
    """A broken rule, which no `except Exception` catches: its guard, and one line of advice."""

    def __init__(self, guard: str, reason: str) -> None:
        super().__init__(reason)
        self.guard = guard
        self.reason = reason


class Violations:
    """The first violation of a trace sticks. A candidate that catches it gains nothing."""

    def __init__(self) -> None:
        self.first: Violation | None = None

    def add(self, guard: str, reason: str) -> Violation:
        """Note a violation and return it, to be raised."""
        violation = Violation(guard, reason)
        self.first = self.first or violation
        return violation

"""What a launch returns in a trace, in place of the compiled kernel that Triton returns: it may be kept or thrown away, not looked at.

A compiled kernel has attributes, and is the same one after a second launch alike; a trace has none to show. Whatever is asked of it ends
the trace. Runs in the trace worker.
"""

from __future__ import annotations

from typing import Any

from referee.violation import Violation, Violations

_REASON = "what a launch returns is looked at; only launch kernels"


class _Unknown(type):
    """Of the class too nothing is known."""

    def __getattr__(cls, name: str) -> Any:
        raise Violation("state", _REASON)


class CompiledKernel(metaclass=_Unknown):
    """Under the name that Triton's own has."""

    def __init__(self, violations: Violations) -> None:
        self.__dict__["_violations"] = violations

    def __getattr__(self, name: str) -> Any:
        raise self.__dict__["_violations"].add("state", _REASON)

    def __bool__(self) -> bool:
        # As every object: Triton's own is true as well.
        return True

    def __eq__(self, other: object) -> bool:
        raise self.__dict__["_violations"].add("state", _REASON)

    def __hash__(self) -> int:
        raise self.__dict__["_violations"].add("state", _REASON)

    def __getitem__(self, grid: object) -> Any:
        raise self.__dict__["_violations"].add("state", _REASON)


def launched(violations: Violations) -> CompiledKernel:
    """What one launch returns."""
    return CompiledKernel(violations)

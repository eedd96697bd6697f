"""The exit codes of `kmint`, and the code of each kind of error."""

from __future__ import annotations

from enum import IntEnum
from typing import Self

from kmint_tui.errors import (
    EnvironmentUnfit,
    KmintError,
    ModelError,
    StorageError,
    TimedOut,
    UsageError,
)


class ExitCode(IntEnum):
    """The exit codes of kmint; `--help` and the documentation show the meanings."""

    meaning: str

    DONE = 0, "a kernel passed, or the work is done"
    NOTHING_PASSED = 1, "it ran, and nothing passed"
    USAGE = 2, "wrong request or wrong configuration"
    ENVIRONMENT = 3, "this machine or installation cannot do it"
    MODEL = 4, "model missing, corrupt, or refused because offline"
    TIMEOUT = 5, "a part did not answer in time"
    STORAGE = 6, "no space, or cannot write"
    INTERNAL = 70, "a fault in kmint itself"
    INTERRUPTED = 130, "stopped with Ctrl-C"

    def __new__(cls, value: int, meaning: str) -> Self:
        member = int.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member


_CODES: tuple[tuple[type[KmintError], ExitCode], ...] = (
    (UsageError, ExitCode.USAGE),
    (EnvironmentUnfit, ExitCode.ENVIRONMENT),
    (ModelError, ExitCode.MODEL),
    (TimedOut, ExitCode.TIMEOUT),
    (StorageError, ExitCode.STORAGE),
)


def exit_code(error: KmintError) -> ExitCode:
    """The exit code of an error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), ExitCode.INTERNAL)

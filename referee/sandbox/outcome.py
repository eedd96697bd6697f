"""How a sandboxed job ended, as the parent tells it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "crash", "timeout", "memory", "flood", "exited"]


@dataclass(frozen=True)
class Outcome:
    """How a job ended. `data` is the entry's result when `status` is "ok", else empty.

    "crash": killed by a signal, or the entry raised; "timeout": its time, or its processor time, was up; "exited": ended without a
    result; "flood": too large a result or too much printed. `killed_outside`: something other than the job and its limits ended
    it, so it may be run again.
    `detail` may quote what the job printed; it holds no control characters but line ends and tabs.
    """

    status: Status
    data: bytes
    detail: str
    seconds: float
    killed_outside: bool = False

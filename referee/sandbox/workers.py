"""Sandboxed workers whose loss is told apart from a candidate's failure.

A job that something other than itself ended (a stray signal, the machine running out of memory) is run once more. If that is
lost too, the judge learns nothing of the candidate and says so.
"""

from __future__ import annotations

from collections.abc import Sequence

from referee.sandbox.zygote import Limits, Outcome, Zygote


class JobLost(RuntimeError):
    """A job ended, or answered nonsense, for a reason that is not the candidate's."""


class Workers(Zygote):
    """A fork server that runs a lost job again and raises JobLost when that is lost as well."""

    def run(self, entry: str, payload: bytes, *, limits: Limits, fds: Sequence[int] = (), stop: int | None = None) -> Outcome:
        """As `Zygote.run`; never returns an outcome with `killed_outside`."""
        for _ in range(2):
            outcome = super().run(entry, payload, limits=limits, fds=fds, stop=stop)
            if not outcome.killed_outside:
                return outcome
        raise JobLost(f"a worker was lost twice: {outcome.detail}")

"""The first stage: reads the text and cuts out its kernels. Nothing of it runs."""

from __future__ import annotations

from pathlib import Path

from referee.candidate import Candidate, raise_rejected
from referee.problem import Problem
from referee.reading.host_reached import reservation, unvouched
from referee.reading.kernels import KernelError, extract
from referee.reading.screen import screen
from referee.report import Domain, Rejected, Report
from referee.sandbox.zygote import Workers
from referee.verdict import HostCode, Rejection


def screened(
    report: Report,
    source: str,
    problem: Problem,
    workers: Workers,
    cache: Path | None,
    *,
    strict: bool,
) -> Candidate:
    """The candidate with its kernels, for the problem that fits its `run`. Raises Rejected.

    Host code outside the allow-list becomes a reservation, or a rejection if `strict`.
    """
    with report.during("screen"):
        checks, rejection = screen(source)
        report.add(checks)
        raise_rejected(rejection)
        if findings := unvouched(source):
            if strict:
                raise_rejected(
                    Rejection(
                        "screen", "host_code", f"{reservation(findings)} ({findings[0].reason})"
                    )
                )
            report.host_code = tuple(HostCode(one.line, one.what, one.reason) for one in findings)
            report.fails("host_code", reservation(findings))
            report.reserve(reservation(findings))
        else:
            report.passes("host_code", "every line that counts is on the list")
        try:
            module = extract(source)
        except KernelError as error:
            raise Rejected(Rejection("screen", error.guard, str(error))) from None
    return Candidate(
        report=report,
        workers=workers,
        cache=cache,
        source=source,
        problem=problem.fitting(source),
        module=module,
        strict=strict,
        domain=None if strict else Domain(),
    )

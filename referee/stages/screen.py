"""The first stage: reads the text and cuts out its kernels. Nothing of it runs.

The text must parse, define `run` and hold kernels that the referee can cut out. The screen is no
security boundary: only checked plans and the referee's own cut of the kernels are executed.
`host_reached.py` checks the host code.
"""

from __future__ import annotations

import ast
from pathlib import Path

from referee.candidate import Candidate, raise_rejected
from referee.problem import Problem
from referee.reading.host_reached import reservation, unvouched
from referee.reading.kernels import KernelError, extract
from referee.reading.module_scope import Scope, read
from referee.reading.names import ImportRefused
from referee.reading.source import SourceError, parse
from referee.report import SCREEN_GUARDS, Domain, Report
from referee.sandbox.zygote import Workers
from referee.verdict import Check, HostCode, Rejection


def screen(source: str) -> tuple[tuple[Check, ...], Rejection | None]:
    """Return the report of every check, and the first rejection if there is one. Never raises."""
    checks: list[Check] = []
    rejection = _run(source, checks)
    if rejection is not None:
        checks.append(Check(SCREEN_GUARDS[len(checks)], "fail", rejection.reason))
    left = SCREEN_GUARDS[len(checks) :]
    skipped = (Check(name, "skipped", "an earlier check failed") for name in left)
    return (*checks, *skipped), rejection


def _run(source: str, checks: list[Check]) -> Rejection | None:
    """Add a check for each test that passes, in order. Return the first rejection."""
    try:
        tree = parse(source)
        checks.append(Check("parse", "pass"))
        scope = read(tree)
        checks.append(Check("imports", "pass"))
        reason = _entry_point(tree, scope)
        if reason is not None:
            return Rejection("screen", "entry_point", reason)
        checks.append(Check("entry_point", "pass"))
        module = extract(source)
        checks.append(Check("kernels", "pass", ", ".join(module.kernels)))
    except SourceError as error:
        return Rejection("screen", "parse", str(error))
    except ImportRefused as error:
        return Rejection("screen", "imports", str(error))
    except KernelError as error:
        return Rejection("screen", error.guard, str(error))
    return None


def _entry_point(tree: ast.Module, scope: Scope) -> str | None:
    run = scope.functions.get("run")
    if run is None:
        advice = "; write `def run(...):` there, which may call what was bound to it"
        reason = "the file does not define a function `run` at its top level"
        return f"{reason}{advice if 'run' in scope.assigned else ''}"
    if "run" in scope.rebound:
        return "`run` is defined more than once"
    return None


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
            reason = f"{reservation(findings)} ({findings[0].reason})"
            raise_rejected(Rejection("screen", "host_code", reason) if strict else None)
            report.host_code = tuple(HostCode(one.line, one.what, one.reason) for one in findings)
            report.fails("host_code", reservation(findings))
            report.reserve(reservation(findings))
        else:
            report.passes("host_code", "every line that counts is on the list")
        module = extract(source)
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

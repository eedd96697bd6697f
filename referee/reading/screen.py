"""The screen reads a candidate's text before anything of it runs.

The text must parse, define `run` and hold kernels that the referee can cut out. The screen is no
security boundary: only checked plans and the referee's own cut of the kernels are executed.
`host_reached.py` checks the host code.
"""

from __future__ import annotations

import ast

from referee.reading.kernels import KernelError, extract
from referee.reading.module_scope import Scope, read
from referee.reading.names import ImportRefused
from referee.reading.source import SourceError, parse
from referee.verdict import Check, Rejection

NAMES = ("parse", "imports", "entry_point", "kernels")
"""Names of the checks, in their order."""


def screen(source: str) -> tuple[tuple[Check, ...], Rejection | None]:
    """Return the report of every check, and the first rejection if there is one. Never raises."""
    checks: list[Check] = []
    rejection = _run(source, checks)
    if rejection is not None:
        checks.append(Check(NAMES[len(checks)], "fail", rejection.reason))
    skipped = (Check(name, "skipped", "an earlier check failed") for name in NAMES[len(checks) :])
    return (*checks, *skipped), rejection


def _run(source: str, checks: list[Check]) -> Rejection | None:
    """Add a check for each test that passes, in the order of NAMES. Return the first rejection."""
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
        written = (
            "; write `def run(...):` there, which may call what was bound to it"
            if "run" in scope.assigned
            else ""
        )
        return f"the file does not define a function `run` at its top level{written}"
    if "run" in scope.rebound:
        return "`run` is defined more than once"
    return None

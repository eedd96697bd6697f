"""The screen: milliseconds of reading a candidate, before anything of it runs, with reasons a model can learn from.

It is feedback, never the boundary: a candidate that slips past it gains nothing, because the judge executes a checked plan
and kernels that it cut out itself.
"""

from __future__ import annotations

import ast

from referee.reading.host_module import check_host
from referee.reading.host_refused import HostRefused
from referee.reading.kernels import KernelError, extract
from referee.reading.module_scope import Scope, read
from referee.reading.names import ImportRefused
from referee.reading.source import SourceError, parse
from referee.verdict import Check, Rejection

NAMES = ("parse", "imports", "entry_point", "kernels", "host_code")


def screen(source: str) -> tuple[tuple[Check, ...], Rejection | None]:
    """Every check's report and the first rejection, if any. Never raises, whatever the text."""
    checks: list[Check] = []
    rejection = _run(source, checks)
    if rejection is not None:
        checks.append(Check(NAMES[len(checks)], "fail", rejection.reason))
    skipped = (Check(name, "skipped", "an earlier check failed") for name in NAMES[len(checks) :])
    return (*checks, *skipped), rejection


def _run(source: str, checks: list[Check]) -> Rejection | None:
    """Add a check for each test that passes, in the order of NAMES; return why the next one does not."""
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
        check_host(tree, scope)
        checks.append(Check("host_code", "pass"))
    except SourceError as error:
        return Rejection("screen", "parse", str(error))
    except ImportRefused as error:
        return Rejection("screen", "imports", str(error))
    except (KernelError, HostRefused) as error:
        return Rejection("screen", error.guard, str(error))
    return None


def _entry_point(tree: ast.Module, scope: Scope) -> str | None:
    run = scope.functions.get("run")
    if run is None:
        written = "; write `def run(...):` there, which may call what was bound to it" if "run" in scope.assigned else ""
        return f"the file does not define a function `run` at its top level{written}"
    if "run" in scope.rebound:
        return "`run` is defined more than once"
    return None

"""Checks that a kernel file may be saved: clean kernels, and host code within the allow-list.

The allow-list is the one of a verdict (`referee.reading.host_allowed`). The kernels come from the
referee's own clean cut (`referee.reading.kernels`). Nothing is run. `judged_part.py` makes the
saved text from these parts.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from kmint_tui.errors import UsageError
from referee.reading import kernels
from referee.reading.host_allowed import ENTRY, Finding, in_function, is_plain, needed
from referee.reading.module_scope import Scope, read
from referee.reading.names import ImportRefused
from referee.reading.source import SourceError, parse

__all__ = ["ENTRY", "HostCode", "NotSaveable", "check"]


class NotSaveable(UsageError):
    """A kernel that may pass or win but not be saved, with the line and the reason."""

    title = "this kernel cannot be saved"


@dataclass(frozen=True)
class HostCode:
    """A source that may be saved: its clean kernels, its syntax tree, its top-level names, and
    `run`.
    """

    kernels: kernels.KernelModule
    tree: ast.Module
    scope: Scope
    run: ast.FunctionDef


def check(source: str) -> HostCode:
    """The parts of a source that keeps to the lists. Raises NotSaveable."""
    try:
        module = kernels.extract(source)
        tree = parse(source)
        scope = read(tree)
    except (kernels.KernelError, SourceError, ImportRefused) as error:
        raise NotSaveable(str(error)) from error
    run: ast.FunctionDef | None = None
    reached = needed(scope)
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef):
            if kernels.is_kernel(statement, scope):
                _check_kernel(statement)
            elif statement.name in reached:
                for finding in in_function(statement, scope):
                    raise NotSaveable(str(finding))
            run = statement if statement.name == ENTRY else run
        elif not is_plain(statement, scope):
            raise NotSaveable(
                str(
                    Finding.at(
                        statement,
                        "at the top level only imports, constants and functions can be saved",
                    )
                )
            )
    if run is None or kernels.is_kernel(run, scope):
        raise NotSaveable(f"the file defines no function `{ENTRY}`")
    return HostCode(module, tree, scope, run)


def _check_kernel(function: ast.FunctionDef) -> None:
    if len(function.decorator_list) > 1:
        reason = (
            "kernels with triton.heuristics are not saved: their launches do not say all values"
        )
        raise NotSaveable(
            str(Finding.at(function, reason)),
            fix="give the launch its values and drop the decorator",
        )

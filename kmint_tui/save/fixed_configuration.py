"""Writes one configuration into an autotuned kernel, so that a saved file does not time itself.

On a GPU it is the configuration that the referee chose and timed. Without a GPU the referee runs
all of them, and the first one is taken.

Limits: one autotuned kernel a file; configurations written as literals; no pruning, because only
running code shows which configurations remain.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kmint_tui.save.host_code import NotSaveable
from referee.reading.module_scope import Scope, read
from referee.reading.names import dotted
from referee.reading.source import SourceError, parse

_OPTIONS = {"num_warps": 4, "num_stages": 3}
"""Launch options that a configuration may set, with Triton's defaults."""
_WAY_OUT = "choose one configuration and drop the decorator"


@dataclass(frozen=True)
class Chosen:
    """The configuration that was written in: its kernel, constants and launch options, and the
    reason.
    """

    kernel: str
    values: Mapping[str, Any]
    of: int
    reason: str

    def to_json(self) -> dict[str, Any]:
        """For the receipt."""
        return {**asdict(self), "values": dict(self.values)}


def fix_configuration(source: str, verdict: Mapping[str, Any]) -> tuple[str, Chosen | None]:
    """The source with the configuration of `verdict` (`kmint.verdict/1`).

    A source without autotuning stays as it is. Raises NotSaveable if the configuration is not
    known.
    """
    try:
        tree = parse(source)
        scope = read(tree)
    except (SourceError, ValueError) as error:
        raise NotSaveable(str(error)) from error
    tuned = {
        name: call
        for name, function in scope.functions.items()
        if (call := _autotune(function, scope)) is not None
    }
    if not tuned:
        return source, None
    if len(tuned) > 1:
        raise NotSaveable(
            f"{len(tuned)} of its kernels are autotuned; only one can be saved with a fixed "
            "configuration",
            fix=_WAY_OUT,
        )
    ((name, call),) = tuned.items()
    if (
        any(keyword.arg in (None, "prune_configs_by") for keyword in call.keywords)
        or len(call.args) > 2
    ):
        raise NotSaveable(
            "its autotuned kernel prunes its configurations (prune_configs_by)", fix=_WAY_OUT
        )
    constants = {argument.arg for argument in scope.functions[name].args.args} - _OPTIONS.keys()
    configurations = _configurations(call, scope, constants)
    number, reason = _choice(verdict, len(configurations))
    scope.functions[name].decorator_list.remove(call)
    # A named list of configurations has no further use, and a saved file may not hold it as a
    # constant.
    written = _list_of(call, scope)
    tree.body = [
        node
        for node in tree.body
        if not (isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is written)
    ]
    keywords = [
        ast.keyword(option, ast.Constant(value)) for option, value in configurations[number].items()
    ]
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Subscript(value=ast.Name(id=launched))) if launched == name:
                node.keywords += keywords
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n", Chosen(
        name, configurations[number], len(configurations), reason
    )


def _autotune(function: ast.FunctionDef, scope: Scope) -> ast.Call | None:
    for decorator in function.decorator_list:
        if (
            isinstance(decorator, ast.Call)
            and dotted(decorator.func, scope.aliases) == "triton.autotune"
        ):
            return decorator
    return None


def _configurations(
    call: ast.Call, scope: Scope, constants: Collection[str]
) -> list[dict[str, Any]]:
    """Each different configuration once, in the order of the text, which is how the referee numbers
    them.
    """
    value = _list_of(call, scope)
    if not isinstance(value, ast.List) or not value.elts:
        raise NotSaveable(
            "the configurations of its autotuned kernel are not written out as a list", fix=_WAY_OUT
        )
    configurations = [_configuration(item, scope, constants) for item in value.elts]
    unique = {repr(sorted({**_OPTIONS, **found}.items())): found for found in configurations}
    return list(unique.values())


def _list_of(call: ast.Call, scope: Scope) -> ast.expr | None:
    named = [keyword.value for keyword in call.keywords if keyword.arg == "configs"]
    value = next(iter([*call.args, *named]), None)
    if isinstance(value, ast.Name) and value.id not in scope.rebound:
        return scope.assigned.get(value.id)
    return value


def _configuration(item: ast.expr, scope: Scope, constants: Collection[str]) -> dict[str, Any]:
    try:
        if not isinstance(item, ast.Call) or dotted(item.func, scope.aliases) != "triton.Config":
            raise ValueError("not a triton.Config")
        names = ("kwargs", *_OPTIONS)
        given = {
            name: ast.literal_eval(value) for name, value in zip(names, item.args, strict=False)
        }
        given |= {
            keyword.arg: ast.literal_eval(keyword.value)
            for keyword in item.keywords
            if keyword.arg is not None
        }
        if (
            len(item.args) > len(names)
            or given.keys() - set(names)
            or not isinstance(given.get("kwargs"), dict)
        ):
            raise ValueError("more than constants, num_warps and num_stages")
        # Triton would take them for options of the launch, or leave them to the configuration's
        # own.
        if others := sorted(given["kwargs"].keys() - constants):
            raise ValueError(f"`{others[0]}` is no constant of the kernel")
    except (ValueError, TypeError, SyntaxError) as error:
        raise NotSaveable(
            f"line {item.lineno}: a configuration of its autotuned kernel cannot be read: {error}",
            fix=_WAY_OUT,
        ) from error
    return {**given.pop("kwargs"), **given}


def _choice(verdict: Mapping[str, Any], count: int) -> tuple[int, str]:
    if verdict.get("mode") == "interpret":
        return 0, "the first; all were found correct without a GPU, and none was timed"
    details = [
        check.get("detail", "")
        for check in verdict.get("checks") or ()
        if check["name"] == "autotune"
    ]
    picked = {int(number) for detail in details for number in re.findall(r"\d+: (\d+)", detail)}
    if count == 1:
        return 0, "the only one"
    if len(picked) != 1 or not 0 <= min(picked) < count:
        raise NotSaveable(
            "the verdict does not say which one configuration of its autotuned kernel was judged",
            fix="judge it again",
        )
    return (
        picked.pop(),
        "the fastest at the timed cell, picked by the referee, and the only one it timed",
    )

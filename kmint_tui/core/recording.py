"""Runs a user's script and records one call of a function: its tensors' properties and other
values.

The script runs in this process as `python SCRIPT` would run it, and ends after the recorded call.
Only the properties that `--input` can write are kept: shapes, dtypes, strides and kinds of values.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import runpy
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten_with_path

from kmint_tui.core.recorded_call import is_plain
from referee.reference.inputs import (
    Dim,
    DtypeName,
    Entry,
    InputSet,
    ScalarInput,
    TensorInput,
    Values,
)
from referee.reference.kinds import MOST_LISTED
from referee.reference.layout import lies_apart, spec_of
from referee.reference.unusable import UnusableReference, one_line

_HOOK = "__kmint_record__"


@dataclass(frozen=True)
class Recorded:
    """One call: its inputs, and the types of arguments that `--input` cannot express."""

    inputs: InputSet
    left_out: Mapping[str, str] = field(default_factory=dict)


class _Done(BaseException):
    """The call is recorded, so the script ends here."""


class _Recorder:
    """Wraps a function and raises `_Done` at its call of this number."""

    def __init__(self, number: int) -> None:
        self._left = number
        self.calls = 0
        self.found: Recorded | None = None

    def wrapped(self, function: Any) -> Any:
        """The replacement of the function."""
        if isinstance(function, type) and issubclass(function, torch.nn.Module):
            function.forward = self.wrapped(function.forward)
            return function
        if isinstance(function, torch.nn.Module):
            function.register_forward_pre_hook(self._before, with_kwargs=True)
            return function
        signature = inspect.signature(function)

        @functools.wraps(function)
        def noted(*args: Any, **kwargs: Any) -> Any:
            self._note(signature, args, kwargs)
            return function(*args, **kwargs)

        return noted

    def _before(
        self, module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        self._note(inspect.signature(module.forward), args, kwargs)

    def _note(
        self, signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        self.calls += 1
        self._left -= 1
        if self._left == 0:
            self.found = recorded(signature, args, kwargs)
            raise _Done


def record(script: Path, function: str, arguments: Sequence[str], number: int = 1) -> Recorded:
    """The call of that number.

    `function` is `MODULE:NAME`, or `NAME` for one that the script defines; NAME may be
    Class.method. Raises UnusableReference if the function does not exist, the script fails, or it
    ends before the call.
    """
    module, colon, name = function.rpartition(":")
    recorder = _Recorder(number)
    before = sys.argv, list(sys.path)
    sys.argv, sys.path[:0] = [str(script), *arguments], [str(script.resolve().parent)]
    try:
        if not colon or module in ("__main__", script.stem):
            _run_with_hook(script, name, recorder)
        else:
            _replace(_imported(module), name, recorder)
            runpy.run_path(str(script), run_name="__main__")
    except _Done:
        pass
    except UnusableReference:
        raise
    except SystemExit as error:
        if error.code not in (None, 0):
            raise UnusableReference(
                f"{script} ended with exit({error.code!r}) before a call of {function} was recorded"
            ) from None
    except Exception as error:
        raise UnusableReference(
            f"{script} failed before a call of {function} was recorded: {one_line(error)}"
        ) from error
    finally:
        sys.argv, sys.path[:] = before[0], before[1]
    if recorder.found is None:
        raise UnusableReference(
            f"{script} ended, and {function} was called {recorder.calls} times, not {number}"
        )
    return recorder.found


def _imported(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except Exception as error:
        raise UnusableReference(
            f"the module {module} cannot be imported: {one_line(error)}"
        ) from error


def _replace(owner: Any, name: str, recorder: _Recorder) -> None:
    *path, last = name.split(".")
    for part in path:
        owner = getattr(owner, part, None)
    if not hasattr(owner, last):
        raise UnusableReference(
            f"there is no {name} in the module; name it as MODULE:FUNCTION or MODULE:Class.method"
        )
    setattr(owner, last, recorder.wrapped(getattr(owner, last)))


def _run_with_hook(script: Path, name: str, recorder: _Recorder) -> None:
    """Run the script, and wrap the function as soon as it is defined."""
    try:
        tree = ast.parse(script.read_bytes(), str(script))
    except OSError as error:
        raise UnusableReference(f"{script} cannot be read: {error.strerror}") from None
    except (SyntaxError, ValueError) as error:
        raise UnusableReference(f"{script} is no Python script: {one_line(error)}") from None
    first = name.partition(".")[0]
    places = [number for number, statement in enumerate(tree.body) if first in _defined(statement)]
    if not places:
        raise UnusableReference(
            f"{script} defines no {first!r} at its top level; name one of another module as MODULE:FUNCTION"
        )
    hook = ast.parse(f"{name} = {_HOOK}({name})").body[0]
    tree.body.insert(places[-1] + 1, ast.fix_missing_locations(hook))
    main = type(sys)("__main__")
    main.__file__ = str(script)
    setattr(main, _HOOK, recorder.wrapped)
    kept = sys.modules["__main__"]
    sys.modules["__main__"] = main
    try:
        exec(compile(tree, str(script), "exec"), vars(main))
    finally:
        sys.modules["__main__"] = kept


def _defined(statement: ast.stmt) -> set[str]:
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return {statement.name}
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return {target.id for target in targets if isinstance(target, ast.Name)}


def recorded(
    signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Recorded:
    """A call as `--input` entries. Raises UnusableReference for a tensor that the referee cannot
    judge.
    """
    bound = signature.bind(*args, **kwargs).arguments
    entries: list[tuple[str, Entry]] = []
    left_out: dict[str, str] = {}
    for name, value in bound.items():
        if name == "self":
            continue
        variadic = signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
        if is_plain(value) and not variadic:
            entries.append((name, ScalarInput((value,))))
            continue
        for path, leaf in tree_flatten_with_path(value)[0]:
            keys = [str(key).strip("[].'\"") for key in path]
            whole = ".".join(keys if variadic else [name, *keys])
            if isinstance(leaf, Tensor):
                entries.append((whole, input_of(whole, leaf)))
            elif is_plain(leaf):
                entries.append((whole, ScalarInput((leaf,))))
            elif isinstance(leaf, torch.dtype):
                entries.append((whole, ScalarInput((DtypeName(str(leaf).removeprefix("torch.")),))))
            else:
                left_out[whole] = type(leaf).__name__
    return Recorded(InputSet(tuple(entries)), left_out)


def input_of(name: str, tensor: Tensor) -> TensorInput:
    """A tensor as an `--input` entry. Raises UnusableReference if the referee cannot judge it."""
    tensor = tensor.detach()
    spec = spec_of(name, tensor)
    dims = tuple(Dim(plus=size) for size in spec.shape)
    apart = lies_apart(tensor) and not tensor.is_contiguous()
    strides = spec.strides if apart else None
    return TensorInput(
        dtype=spec.dtype,
        dims=dims,
        values=_values(tensor),
        strides=strides,
        offset=spec.offset if apart else 0,
    )


def _values(tensor: Tensor) -> Values:
    """The kind of a tensor's values."""
    if tensor.dtype == torch.bool or not tensor.numel():
        return Values()
    low, high = (number.item() for number in torch.aminmax(tensor))
    if tensor.is_floating_point():
        return Values("uniform" if low >= 0 else "normal")
    if low >= 0:
        return Values("range", 0, int(high) + 1)
    below = sorted(set(tensor[tensor < 0].tolist()))
    if len(below) <= MOST_LISTED // 16 and high >= 0:
        return Values("range", 0, int(high) + 1, tuple(below))
    return Values("range", int(low), int(high) + 1)

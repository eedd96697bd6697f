"""Tasks from a reference that the user brings: `file.py:fn`, or a KernelBench-style file.

The file is the user's own trusted code: it is imported and run in the judge's process, without a sandbox. Two forms:
- a function, with example inputs from `get_inputs()` (one list of inputs) or `EXAMPLES` (a list of such lists);
- `Model` (a torch.nn.Module), `get_inputs()` and optionally `get_init_inputs()`. The module's parameters and floating
  buffers become further arguments of `run`, after the inputs, dots replaced by underscores; it runs in the mode the file
  leaves it in.

Tensors are arguments of `run`, in order, named after the function's parameters; any other value is fixed for good. The
float64 oracle is the same code on float64 inputs with casts to narrower floats widened, so it is as exact as the reference
itself. The tensors of the file serve as examples of shape, dtype and kind of values only: values are drawn afresh.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from referee.ops.cells import Profile
from referee.ops.promote import in_float64
from referee.ops.spec import Op
from referee.ops.task import Task
from referee.ops.tolerance import PUBLIC
from referee.ops.user_cells import Unusable, user_cells

_HELPERS = frozenset({"get_inputs", "get_init_inputs"})


class UserReferenceError(ValueError):
    """The file cannot serve as a reference; the message says what is missing in one line."""


@dataclass(frozen=True)
class _Reference:
    """A function of tensors only, with the names of its arguments and one list of example tensors for each example."""

    function: Callable[..., Any]
    names: tuple[str, ...]
    examples: tuple[tuple[Tensor, ...], ...]


def _import(path: Path) -> ModuleType:
    name = f"kmint_user_reference_{abs(hash(path.resolve()))}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserReferenceError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    # Registered while it runs: dataclasses and pickling look their module up by name.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except FileNotFoundError:
        raise UserReferenceError(f"{path} does not exist") from None
    except (Exception, SystemExit) as error:
        raise UserReferenceError(f"{path} failed on import: {_told(error)}") from error
    return module


def _examples(module: ModuleType) -> list[list[Any]]:
    listed = getattr(module, "EXAMPLES", None)
    if listed is not None:
        examples = [list(example) if isinstance(example, Sequence) else [example] for example in listed]
    elif callable(getattr(module, "get_inputs", None)):
        examples = [_example(module.get_inputs)]
    else:
        raise UserReferenceError("the file defines neither get_inputs() nor EXAMPLES")
    if not examples or not all(any(isinstance(value, Tensor) for value in example) for example in examples):
        raise UserReferenceError("every example needs at least one tensor")
    return examples


def _example(make: Callable[[], Iterable[Any]]) -> list[Any]:
    try:
        return list(make())
    except (Exception, SystemExit) as error:
        raise UserReferenceError(f"{getattr(make, '__name__', 'get_inputs')}() failed: {_told(error)}") from error


def _told(error: BaseException) -> str:
    """A failure of the user's code in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def _chosen(module: ModuleType, name: str | None) -> Any:
    if name is not None:
        if not callable(getattr(module, name, None)):
            raise UserReferenceError(f"the file defines no function {name!r}")
        return getattr(module, name)
    if hasattr(module, "Model"):
        return module.Model
    own = [
        value for key, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and key not in _HELPERS and not key.startswith("_")
    ]
    if len(own) != 1:
        raise UserReferenceError(f"the file defines {len(own)} functions: name the reference as FILE.py:function")
    return own[0]


def _of_function(function: Callable[..., Any], examples: list[list[Any]]) -> _Reference:
    parameters = [p for p in inspect.signature(function).parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    first = examples[0]
    if len(first) > len(parameters):
        raise UserReferenceError(f"the reference takes {len(parameters)} arguments, the example has {len(first)}")
    positions = [i for i, value in enumerate(first) if isinstance(value, Tensor)]
    for example in examples[1:]:
        if [i for i, value in enumerate(example) if isinstance(value, Tensor)] != positions or len(example) != len(first):
            raise UserReferenceError("the examples differ in which arguments are tensors")

    def with_tensors(*tensors: Tensor) -> Any:
        values = list(first)
        for position, tensor in zip(positions, tensors, strict=True):
            values[position] = tensor
        return function(*values)

    names = tuple(parameters[i].name for i in positions)
    return _Reference(with_tensors, names, tuple(tuple(example[i] for i in positions) for example in examples))


def _of_module(model: torch.nn.Module, examples: list[list[Any]]) -> _Reference:
    base = _of_function(model.forward, examples)
    state: Mapping[str, Tensor] = {
        **{name: value.detach() for name, value in model.named_parameters()},
        **{name: value.detach() for name, value in model.named_buffers() if value.is_floating_point()},
    }
    inputs, count = examples[0], len(base.names)
    positions = [i for i, value in enumerate(inputs) if isinstance(value, Tensor)]

    def with_state(*tensors: Tensor) -> Any:
        values = list(inputs)
        for position, tensor in zip(positions, tensors[:count], strict=True):
            values[position] = tensor
        # Clones, because a module may update its buffers in place and the judge's inputs must not change.
        given = {name: tensor.clone() for name, tensor in zip(state, tensors[count:], strict=True)}
        with torch.no_grad():
            return torch.func.functional_call(model, given, tuple(values))

    names = (*base.names, *(name.replace(".", "_") for name in state))
    return _Reference(with_state, names, tuple((*example, *state.values()) for example in base.examples))


def _returns_tensors(function: Callable[..., Any]) -> Callable[..., Tensor | tuple[Tensor, ...]]:
    def reference(*inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        try:
            result = function(*inputs)
        except SystemExit as error:
            raise RuntimeError(f"the reference ended the process: exit({error.code!r})") from error
        outputs = tuple(result) if isinstance(result, (tuple, list)) else (result,)
        if not outputs or not all(isinstance(out, Tensor) for out in outputs):
            raise UserReferenceError("the reference must return a tensor or a tuple of tensors")
        return outputs[0] if len(outputs) == 1 else outputs

    return reference


def _is_deterministic(function: Callable[..., Any], inputs: tuple[Tensor, ...]) -> bool:
    first, second = function(*inputs), function(*inputs)
    first, second = (x if isinstance(x, tuple) else (x,) for x in (first, second))
    return all(torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)) for a, b in zip(first, second, strict=True))


def split_reference(reference: str) -> tuple[Path, str | None]:
    """`FILE.py:function` as its path and function name; the name is None for `FILE.py`."""
    file, colon, name = reference.rpartition(".py:")
    return (Path(file + ".py"), name) if colon else (Path(reference), None)


def load_user(file: str | Path, function: str | None, profile: Profile) -> Task:
    """The task of a reference file: its function of that name, else its `Model`, else its only function.

    Raises UserReferenceError with a one-line reason.
    """
    path, name = Path(file), function
    module = _import(path)
    chosen, examples = _chosen(module, name), _examples(module)
    title = path.stem if not name or name == path.stem else f"{path.stem}:{name}"
    if isinstance(chosen, type) and issubclass(chosen, torch.nn.Module):
        init = _example(module.get_init_inputs) if hasattr(module, "get_init_inputs") else []
        try:
            model = chosen(*init)
        except (Exception, SystemExit) as error:
            raise UserReferenceError(f"{chosen.__name__}({len(init)} arguments) failed: {_told(error)}") from error
        found = _of_module(model, examples)
    else:
        found = _of_function(chosen, examples)
    eager = _returns_tensors(found.function)
    try:
        made = user_cells(found.names, found.examples, eager, profile)
        if not _is_deterministic(eager, found.examples[0]):
            raise UserReferenceError("the reference gives different answers to the same inputs (dropout, random numbers?)")
    except Unusable as error:
        raise UserReferenceError(str(error)) from None
    description = inspect.getdoc(chosen) or f"the same as {title}"
    op = Op(
        name=title, kind="user", family="user", title=title, formula=description.splitlines()[0], difficulty="hard",
        origin="user", arguments=found.names,
    )
    return Task(op, made, eager, in_float64(eager), dict(PUBLIC), rowwise=False)

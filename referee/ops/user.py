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

import hashlib
import inspect
import keyword
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from referee.ops.catalogue import UnknownOp, get
from referee.ops.cells import Profile
from referee.ops.promote import in_float64
from referee.ops.spec import Op
from referee.ops.task import Task
from referee.ops.tolerance import PUBLIC
from referee.ops.user_cells import user_cells
from referee.ops.user_file import UserReferenceError, chosen_of, example_of, examples_of, import_file, told, torch_as_it_was
from referee.ops.user_layout import Unusable

__all__ = ["UserReferenceError", "load_user", "split_reference"]


@dataclass(frozen=True)
class _Reference:
    """A function of tensors only, with the names of its arguments and one list of example tensors for each example."""

    function: Callable[..., Any]
    names: tuple[str, ...]
    examples: tuple[tuple[Tensor, ...], ...]


def _of_function(function: Callable[..., Any], examples: list[list[Any]]) -> _Reference:
    try:
        kinds = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise UserReferenceError("the reference does not say which arguments it takes: wrap it in a function that names them") from None
    if any(p.kind is p.VAR_POSITIONAL for p in kinds):
        raise UserReferenceError("the reference takes *args: name every argument")
    parameters = [p for p in kinds if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    first = examples[0]
    if len(first) > len(parameters):
        raise UserReferenceError(f"the reference takes {len(parameters)} arguments, the example has {len(first)}")
    positions = [i for i, value in enumerate(first) if isinstance(value, Tensor)]
    for example in examples[1:]:
        if [i for i, value in enumerate(example) if isinstance(value, Tensor)] != positions or len(example) != len(first):
            raise UserReferenceError("the examples differ in which arguments are tensors")
        for i, (value, other) in enumerate(zip(first, example, strict=True)):
            if i not in positions and value != other:
                raise UserReferenceError(f"the examples differ in {parameters[i].name}, which is no tensor and thus fixed for good")

    def with_tensors(*tensors: Tensor) -> Any:
        values = list(first)
        for position, tensor in zip(positions, tensors, strict=True):
            values[position] = tensor
        return function(*values)

    names = tuple(parameters[i].name for i in positions)
    return _Reference(with_tensors, names, tuple(tuple(example[i].detach() for i in positions) for example in examples))


def _of_module(model: torch.nn.Module, examples: list[list[Any]]) -> _Reference:
    base = _of_function(model.forward, examples)
    count = len(base.names)
    state: Mapping[str, Tensor] = {
        **{name: value.detach() for name, value in model.named_parameters()},
        **{name: value.detach() for name, value in model.named_buffers() if value.is_floating_point()},
    }
    fixed = [value for name, value in model.named_buffers() if name not in state]
    inputs = examples[0]
    positions = [i for i, value in enumerate(inputs) if isinstance(value, Tensor)]

    def with_state(*tensors: Tensor) -> Any:
        values = list(inputs)
        for position, tensor in zip(positions, tensors[:count], strict=True):
            values[position] = tensor
        given = dict(zip(state, tensors[count:], strict=True))
        if fixed and fixed[0].device != tensors[0].device:
            model.to(tensors[0].device)
            fixed[:] = [value for name, value in model.named_buffers() if name not in state]
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


def _protecting(function: Callable[..., Any], dtype: torch.dtype) -> Callable[..., Any]:
    """`function` on copies of its inputs, which it may change, with the default dtype that the file sets; its outputs carry no gradient."""

    def protected(*inputs: Tensor) -> Any:
        with _default_dtype(dtype):
            result = function(*(tensor.clone() for tensor in inputs))
        return tuple(out.detach() for out in result) if isinstance(result, tuple) else result.detach()

    return protected


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    kept = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(kept)


def _changed(reference: _Reference, plain: Callable[..., Any], eager: Callable[..., Any], dtype: torch.dtype) -> tuple[str, ...]:
    """The arguments that the reference leaves changed, those left out that it returns. Raises UserReferenceError where answers differ."""
    inputs = reference.examples[0]
    copies = [tensor.clone() for tensor in inputs]
    with _default_dtype(dtype):
        returned = plain(*copies)
    first, second = (x if isinstance(x, tuple) else (x,) for x in (eager(*inputs), returned))
    if not all(_same(a, b) for a, b in zip(first, second, strict=True)):
        raise UserReferenceError("the reference gives different answers to the same inputs (dropout, random numbers?)")
    judged = {(out.data_ptr(), out.numel()) for out in second}
    return tuple(
        name
        for name, copy, tensor in zip(reference.names, copies, inputs, strict=True)
        if not _same(copy, tensor) and (copy.data_ptr(), copy.numel()) not in judged
    )


def _same(first: Tensor, second: Tensor) -> bool:
    return torch.equal(torch.nan_to_num(first), torch.nan_to_num(second))


def _checked_names(names: tuple[str, ...]) -> None:
    """`run` and the saved function have these parameters."""
    for number, name in enumerate(names):
        if not name.isidentifier() or keyword.iskeyword(name):
            raise UserReferenceError(f"{name!r} cannot be the name of an argument: rename that part of the module")
        if name in names[:number]:
            raise UserReferenceError(f"two arguments are called {name!r}: rename one of them")


def _title(stem: str, function: str, *, named: bool) -> str:
    """The file's name, with that of the function where it was asked for; never one by which the catalogue would be meant."""
    if named and function != stem:
        return f"{stem}:{function}"
    try:
        get(stem)
    except UnknownOp:
        return stem
    return f"{stem}:{function}"


def split_reference(reference: str) -> tuple[Path, str | None]:
    """`FILE.py:function` as its path and function name; the name is None for `FILE.py`."""
    file, colon, name = reference.rpartition(".py:")
    return (Path(file + ".py"), name) if colon else (Path(reference), None)


def load_user(file: str | Path, function: str | None, profile: Profile) -> Task:
    """The task of a reference file: its function of that name, else its `Model`, else its only function.

    Raises UserReferenceError with a one-line reason.
    """
    path = Path(file)
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            raise UserReferenceError(f"{path} cannot be read: {told(error)}") from None
        named = "" if path.suffix == ".py" else "; a reference is named as FILE.py or FILE.py:function"
        raise UserReferenceError(f"{path} does not exist{named}") from None
    return _loaded(path, digest, function, profile)


@lru_cache(maxsize=4)
def _loaded(path: Path, digest: str, name: str | None, profile: Profile) -> Task:
    # A command asks for the same task several times, and large examples take seconds.
    with torch_as_it_was():
        module = import_file(path)
        chosen = chosen_of(module, name)
        found = _found(chosen, module)
        dtype = torch.get_default_dtype()
    _checked_names(found.names)
    title = _title(path.stem, str(name or getattr(chosen, "__name__", "reference")), named=name is not None)
    plain = _returns_tensors(found.function)
    eager = _protecting(plain, dtype)
    oracle = in_float64(eager)
    try:
        made, given, traits = user_cells(found.names, found.examples, eager, oracle, profile)
        given.changed = _changed(found, plain, eager, dtype)
    except Unusable as error:
        raise UserReferenceError(str(error)) from None
    if not any(prod(spec.shape) for cell in made for spec in cell.outputs):
        raise UserReferenceError("the reference returns no elements at any example, so every kernel would be right: make them larger")
    description = inspect.cleandoc(vars(chosen).get("__doc__") or "") if isinstance(chosen, type) else inspect.getdoc(chosen)
    op = Op(
        name=title, kind="user", family="user", title=title, formula=(description or f"the same as {title}").splitlines()[0],
        difficulty="hard", origin="user", arguments=found.names,
    )
    return Task(op, made, eager, oracle, dict(PUBLIC), rowwise=False, given=given, traits=traits, timed=plain)


def _found(chosen: Any, module: Any) -> _Reference:
    examples = examples_of(module)
    if not (isinstance(chosen, type) and issubclass(chosen, torch.nn.Module)):
        return _of_function(chosen, examples)
    init = example_of(module.get_init_inputs) if hasattr(module, "get_init_inputs") else []
    try:
        model = chosen(*init)
    except (Exception, SystemExit) as error:
        raise UserReferenceError(f"{chosen.__name__}({len(init)} arguments) failed: {told(error)}") from error
    return _of_module(model, examples)

"""A user's reference file: imported, asked for its examples, and left without a trace in torch's settings.

The file is the user's own trusted code and runs in the judge's process. What it sets for good (default dtype, default device, gradients,
the state of random numbers) is put back, because other tasks are judged in the same process; its examples are the same every time.
Limits: it is one file, whose digest stands for it in receipts, so modules that lie beside it are not found.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import torch
from torch import Tensor

_HELPERS = frozenset({"get_inputs", "get_init_inputs"})
_EXAMPLE_SEED = 0


class UserReferenceError(ValueError):
    """The file cannot serve as a reference; the message says what is missing in one line."""


@contextmanager
def torch_as_it_was() -> Iterator[None]:
    """Whatever is set for good within is put back at the end; random numbers within are the same every time."""
    dtype, device, gradients = torch.get_default_dtype(), torch.get_default_device(), torch.is_grad_enabled()
    with torch.random.fork_rng():
        torch.manual_seed(_EXAMPLE_SEED)
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)
            if torch.get_default_device() != device:
                torch.set_default_device(None if device.type == "cpu" else device)
            torch.set_grad_enabled(gradients)


class _AsItStands(SourceFileLoader):
    """Neither reads nor leaves bytecode beside a file: it counts as the file's where size and second of change are the same."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def import_file(path: Path) -> ModuleType:
    """The file as a module. Raises UserReferenceError."""
    name = f"kmint_user_reference_{abs(hash(path.resolve()))}"
    spec = importlib.util.spec_from_file_location(name, path, loader=_AsItStands(name, str(path)))
    if path.suffix != ".py" or spec is None or spec.loader is None:
        raise UserReferenceError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    # Registered while it runs: dataclasses and pickling look their module up by name.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise UserReferenceError(f"{path} failed on import: {told(error)}{_beside(path, error)}") from error
    return module


def _beside(path: Path, error: BaseException) -> str:
    """What to do where a module is not found that lies in the file's folder."""
    name = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if not name or not any((path.parent / found).exists() for found in (name, f"{name}.py")):
        return ""
    why = "a reference is one file, which a receipt names by its digest"
    return f"; {name} lies beside it, and {why}: copy in what it needs, or install {name}"


def examples_of(module: ModuleType) -> list[list[Any]]:
    """`EXAMPLES`, or the one list of `get_inputs()`; each has at least one tensor. Raises UserReferenceError."""
    listed = getattr(module, "EXAMPLES", None)
    if listed is not None:
        examples = [list(example) if isinstance(example, Sequence) else [example] for example in listed]
    elif callable(getattr(module, "get_inputs", None)):
        examples = [example_of(module.get_inputs)]
    else:
        raise UserReferenceError("the file defines neither get_inputs() nor EXAMPLES")
    for number, value in ((number, value) for example in examples for number, value in enumerate(example)):
        if isinstance(value, (list, tuple, dict, set)) and any(isinstance(held, Tensor) for held in _held(value)):
            kind = type(value).__name__
            raise UserReferenceError(f"argument {number} holds tensors in a {kind}: give each as an argument of its own")
    if not examples or not all(any(isinstance(value, Tensor) for value in example) for example in examples):
        raise UserReferenceError("every example needs at least one tensor")
    return examples


def _held(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def example_of(make: Callable[[], Any]) -> list[Any]:
    """What `get_inputs` or `get_init_inputs` lists. Raises UserReferenceError."""
    name = getattr(make, "__name__", "get_inputs")
    try:
        found = make()
    except (Exception, SystemExit) as error:
        raise UserReferenceError(f"{name}() failed: {told(error)}") from error
    if not isinstance(found, (list, tuple)):
        raise UserReferenceError(f"{name}() must return a list of arguments, not a {type(found).__name__}")
    return list(found)


def chosen_of(module: ModuleType, name: str | None) -> Any:
    """The function of that name, else `Model`, else the only function. Raises UserReferenceError."""
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


def told(error: BaseException) -> str:
    """A failure of the user's code in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())

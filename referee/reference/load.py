"""Loads a `Reference` from a file, a name in it and the texts of `--input` and `--fix`.

The file is the user's own trusted code. It is imported and evaluated on small inputs in the judge's
process. Inputs come from `--input`, else from the file. The file gives `EXAMPLES` (a list of
argument lists) or `get_inputs()` (a list of arguments, a dictionary, or a pair of both). A class is
called with the values of `get_init_inputs()`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from referee.ops.catalogue import UnknownOp, get
from referee.reference.asked import Asked
from referee.reference.building import Builder
from referee.reference.call import Call, argument_names, call_of_inputs, call_with
from referee.reference.choice import Chosen, choose
from referee.reference.grammar import parse_fixed, parse_inputs
from referee.reference.inputs import InputSet
from referee.reference.reference import Reference
from referee.reference.source import source_of
from referee.reference.unusable import InputError, UnusableReference, one_line
from referee.reference.user_file import UserFile, import_file
from referee.reference.user_torch import (
    CudaIsCpu,
    cuda_is_missing,
    nothing_compiled,
    torch_as_it_was,
    user_code,
)
from referee.reference.weight import refuse_too_heavy

_KEPT = 4
_known: dict[Asked, tuple[Reference, UserFile]] = {}


def load_reference(asked: Asked) -> Reference:
    """The reference, loaded again only after its files change.

    Raises UnusableReference with a one-line reason.
    """
    inputs, fixed = parse_inputs(asked.inputs), parse_fixed(asked.fixed)
    with user_code():
        known = _known.get(asked)
        if known is None or known[1].changed:
            known = _loaded(asked, inputs, fixed)
            for oldest in list(_known)[: max(0, len(_known) + 1 - _KEPT)]:
                del _known[oldest]
            _known[asked] = known
        return known[0]


def _loaded(
    asked: Asked, inputs: Sequence[InputSet], fixed: dict[str, object]
) -> tuple[Reference, UserFile]:
    notes: list[str] = []
    moved = CudaIsCpu()
    with torch_as_it_was(), nothing_compiled(notes):
        with moved if cuda_is_missing() else nullcontext():
            file = import_file(Path(asked.file))
            dtype = torch.get_default_dtype()
            listed = getattr(file.module, "get_init_inputs", None)
            init = None if listed is None else partial(_listed, listed, "get_init_inputs()")
            chosen = choose(file.module, asked.function, init, notes)
            calls = _calls(file.module, chosen, inputs)
        names = argument_names([leaf.name for leaf in calls[0][1].leaves], list(chosen.state))
        title = _title(
            file.path.stem, asked.function or chosen.name, named=asked.function is not None
        )
        builder = Builder(chosen, names, calls, inputs, fixed, file, dtype, notes, moved)
        reference = builder.reference(
            title, source_of(chosen.made_of, file.text), _summary(chosen.made_of, title)
        )
    return reference, file


def _summary(made_of: Any, title: str) -> str:
    """The first line of the docstring. For a class only its own counts, not torch's."""
    text = (
        inspect.cleandoc(vars(made_of).get("__doc__") or "")
        if isinstance(made_of, type)
        else inspect.getdoc(made_of)
    )
    return (text or f"the same as {title}").splitlines()[0]


def _calls(
    module: ModuleType, chosen: Chosen, inputs: Sequence[InputSet]
) -> list[tuple[str, Call]]:
    """The calls of the example inputs, with the origin of each."""
    if inputs:
        return [("--input", call_of_inputs(chosen.signature, one)) for one in inputs]
    if (listed := getattr(module, "EXAMPLES", None)) is not None:
        examples = [
            example if isinstance(example, (list, tuple, dict)) else [example] for example in listed
        ]
        if not examples:
            raise UnusableReference("EXAMPLES is empty: list at least one example, or give --input")
        return [
            (f"EXAMPLES[{number}]", call_with(chosen.signature, one, f"EXAMPLES[{number}]"))
            for number, one in enumerate(examples)
        ]
    if callable(make := getattr(module, "get_inputs", None)):
        refuse_too_heavy(make, "get_inputs()")
        return [
            (
                "get_inputs()",
                call_with(chosen.signature, _made(make, "get_inputs()"), "get_inputs()"),
            )
        ]
    first = next(iter(chosen.signature.parameters), "x")
    raise InputError(
        f"no inputs are known: give them, as in --input '{first}=bf16[B,4096]', or define get_inputs() or EXAMPLES in the file"
    )


def _made(make: Callable[[], Any], of: str) -> Any:
    try:
        return make()
    except (Exception, SystemExit) as error:
        raise UnusableReference(f"{of} failed: {one_line(error)}") from error


def _listed(make: Callable[[], Any], of: str) -> list[Any]:
    found = _made(make, of)
    if not isinstance(found, (list, tuple)):
        raise UnusableReference(
            f"{of} must return a list of arguments, not a {type(found).__name__}"
        )
    return list(found)


def _title(stem: str, function: str, *, named: bool) -> str:
    """The file's name, with the function's name if it was requested.

    It is never a name of the catalogue.
    """
    if named and function != stem:
        return f"{stem}:{function}"
    try:
        get(stem)
    except UnknownOp:
        return stem
    return f"{stem}:{function}"

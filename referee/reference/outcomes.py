"""Finds the outcomes of a reference's decisions on values that no test case has.

A reference may replace NaN, clamp at 65504 or choose by `x > 5000`. A kernel without that line is
right at every case whose values never reach it, so the verdict names the line. Limits: decisions
inside one operation of torch, such as the ignored labels of `cross_entropy`, are not visible.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from referee.ops.task import Task
from referee.ops.torch_compat import Mode, as_tuple, computable
from referee.reference.cells import MASKS, width_of
from referee.reference.evaluating import CHECKED_ELEMENTS
from referee.reference.observed import Place

_TRUTHS = frozenset("eq ne lt le gt ge isnan isinf isfinite isposinf isneginf signbit".split())
_CHANGES = frozenset("clamp clamp_min clamp_max hardtanh nan_to_num".split())
_OF_TORCH = os.path.dirname(torch.__file__) + os.sep
_OWN = os.path.dirname(os.path.dirname(__file__)) + os.sep
MOST_SHOWN = 60

Key = tuple[Place, str]
"""A line of the reference, and an outcome in words."""


def unmet_outcomes(task: Task, seed: int) -> tuple[str, ...]:
    """The outcomes that no required cell has, as names of answers that this task would accept."""
    met: dict[Key, bool] = {}
    for cell in task.required:
        inputs = task.inputs(cell, seed)
        with _Deciding(met):
            task.at(cell).eager(*inputs)
    rows = tuple(_rows_left_out(task, seed))
    return rows + tuple(
        f"any answer where `{place.operation}` {words} in {place}"
        for (place, words), is_met in met.items()
        if not is_met
    )


def _rows_left_out(task: Task, seed: int) -> Iterator[str]:
    """The masks without a row of one value, although the reference takes such a row."""
    cell = task.required[0]
    for position, spec in enumerate(cell.inputs):
        recipes = {one.values.split("|")[position] for one in task.required}
        width = width_of(spec)
        if not recipes & set(MASKS) or width == 1 or cell.elements > CHECKED_ELEMENTS:
            continue
        whole = {
            value for one in recipes if one.startswith("rows:") for value in one.split(":")[2:]
        }
        for value in sorted({"0", "1"} - whole):
            inputs = [tensor.clone() for tensor in task.inputs(cell, seed)]
            inputs[position] = inputs[position].contiguous()
            inputs[position].view(-1)[:width] = int(value)
            if all(bool(computable(out).isfinite().all()) for out in as_tuple(task.eager(*inputs))):
                word = "True" if value == "0" else "False"
                yield f"any answer where a row of {spec.name} has no {word}"


class _Deciding(Mode):
    """Notes for each decision whether it had each outcome."""

    def __init__(self, met: dict[Key, bool]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._met = met

    def operation(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        name = str(function.overloadpacket.__name__)
        plain = name.removesuffix("_")
        before: Any = next(iter(args), None)
        if plain in _CHANGES and name != plain:
            before = before.clone()
        result = function(*args, **kwargs)
        if plain in _TRUTHS and isinstance(result, Tensor) and result.dtype == torch.bool:
            self._note(plain, "is true", bool(result.any()))
            self._note(plain, "is false", not bool(result.all()))
        elif plain in _CHANGES:
            for words, changed in _changes(plain, args, before, result).items():
                self._note(plain, words, changed)
        return result

    def _note(self, operation: str, words: str, is_met: bool) -> None:
        place = _place(operation)
        if place is not None:
            self._met[place, words] = self._met.get((place, words), False) or is_met


def _changes(name: str, args: Sequence[Any], before: Tensor, result: Tensor) -> dict[str, bool]:
    """The ways in which the operation can change values, and whether it did."""
    if name == "nan_to_num":
        return {"changes a value": bool((result != before).any())}
    low, high = (*args[1:3], None, None)[:2]
    bounds = {
        "clamp_min": (True, False),
        "clamp_max": (False, True),
        "hardtanh": (True, True),
        "clamp": (low is not None, high is not None),
    }[name]
    found = {"raises a value": (result > before), "lowers a value": (result < before)}
    return {
        words: bool(changed.any())
        for (words, changed), is_bound in zip(found.items(), bounds, strict=True)
        if is_bound
    }


def _place(operation: str) -> Place | None:
    """The line that calls the operation; None if only torch and kmint do, as in a shipped function."""
    for frame in reversed(traceback.extract_stack()):
        if frame.filename == __file__ and frame.name == unmet_outcomes.__name__:
            return None
        if not frame.filename.startswith((_OF_TORCH, _OWN)):
            text = " ".join((frame.line or "").split())[:MOST_SHOWN]
            return Place(operation, frame.lineno or 0, text)
    return None

"""The leaves of a reference's call in all its examples: tensors, numbers, and other values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from referee.reference.call import Call
from referee.reference.inputs import DtypeName, Number, ScalarInput, TensorInput
from referee.reference.unusable import InputError, UnusableReference

Kind = Literal["tensor", "number", "value"]


@dataclass(frozen=True)
class Slot:
    """One leaf. `values` has its value in each example, `wanted` further numbers of the user.

    `why` is the reason of a fixed value. `given` is False for a parameter's default.
    """

    name: str
    kind: Kind
    values: tuple[Any, ...]
    wanted: tuple[Number, ...] = ()
    given: bool = True
    why: str = ""


def slots_of(calls: Sequence[Call], fixed: Mapping[str, object]) -> list[Slot]:
    """The leaves of all calls, with the user's fixed values.

    Raises UnusableReference if the examples differ, or InputError.
    """
    first = [leaf.name for leaf in calls[0].leaves]
    for call in calls[1:]:
        if [leaf.name for leaf in call.leaves] != first:
            raise UnusableReference("the examples differ in which arguments they have")
    found = [
        _slot(call_leaves) for call_leaves in zip(*(call.leaves for call in calls), strict=True)
    ]
    by_name = {slot.name: slot for slot in found}
    for name, value in fixed.items():
        slot = by_name.get(name.replace(".", "_"))
        if slot is None or slot.kind == "tensor":
            others = ", ".join(one.name for one in found if one.kind != "tensor") or "none"
            fault = "is a tensor" if slot else "is no argument"
            raise InputError(
                f"--fix {name}: {name} {fault}; the values that can be fixed are {others}"
            )
        found[found.index(slot)] = Slot(
            slot.name, "value", (resolved(value),) * len(calls), why="--fix"
        )
    return found


def _slot(leaves: Sequence[Any]) -> Slot:
    name, values = leaves[0].name, [leaf.value for leaf in leaves]
    tensors = [isinstance(value, (Tensor, TensorInput)) for value in values]
    if any(tensors):
        if not all(tensors):
            raise UnusableReference(
                f"the examples differ in which arguments are tensors: {name} is one in some"
            )
        return Slot(name, "tensor", tuple(values))
    wanted: tuple[Number, ...] = ()
    plain = []
    for value in values:
        if isinstance(value, ScalarInput):
            wanted += tuple(
                one for one in value.values[1:] if isinstance(one, (int, float)) and is_number(one)
            )
            value = resolved(value.values[0])
        plain.append(value)
    given = any(leaf.given for leaf in leaves)
    if all(map(is_number, plain)):
        return Slot(name, "number", tuple(plain), tuple(dict.fromkeys(wanted)), given)
    if any(_differs(plain[0], value) for value in plain[1:]):
        raise UnusableReference(
            f"the examples differ in {name}, which is no tensor and thus fixed for good"
        )
    return Slot(name, "value", tuple(plain), given=given, why="it is no number")


def is_number(value: object) -> bool:
    """Whether the value can be an argument of a kernel's host function: an int or a float."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def resolved(value: object) -> object:
    """The value of an `--input` or `--fix` text, with a torch dtype for its name.

    Raises InputError.
    """
    if not isinstance(value, DtypeName):
        return value
    found = getattr(torch, value.name, None)
    if not isinstance(found, torch.dtype):
        raise InputError(f"torch.{value.name} is no dtype of torch")
    return found


def _differs(first: Any, other: Any) -> bool:
    try:
        return bool(first != other)
    except Exception:
        return first is not other

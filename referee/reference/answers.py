"""The outputs of a reference: its returned tensors, or else the arguments that it changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten_with_path

from referee.ops.torch_compat import computable
from referee.reference.unusable import UnusableReference


@dataclass(frozen=True)
class Answers:
    """Output names, and the positions of changed arguments if the reference returns nothing."""

    names: tuple[str, ...]
    positions: tuple[int, ...] = ()

    def of(self, result: Any, arguments: Sequence[Any]) -> Tensor | tuple[Tensor, ...]:
        """The outputs of one evaluation.

        Raises UnusableReference if the number of returned tensors differs.
        """
        if self.positions:
            found = tuple(arguments[position] for position in self.positions)
        else:
            found = tuple(value for _, value in _leaves(result) if isinstance(value, Tensor))
        if len(found) != len(self.names):
            before = len(self.names)
            raise UnusableReference(
                f"the reference returned {len(found)} tensors, and {before} before"
            )
        return found[0] if len(found) == 1 else found


def answers_of(
    result: Any, names: Sequence[str], before: Sequence[Any], after: Sequence[Any], notes: list[str]
) -> Answers:
    """The outputs of an evaluation, as a rule for later ones.

    `before` and `after` are the arguments' values, `names` their names. Raises UnusableReference if
    the reference neither returns a tensor nor changes an argument.
    """
    leaves = _leaves(result)
    tensors = [(path, value) for path, value in leaves if isinstance(value, Tensor)]
    if tensors:
        rest = [value for _, value in leaves if not isinstance(value, Tensor)]
        left = [type(value).__name__ for value in rest if value is not None]
        if any(value is None for value in rest):
            notes.append("a returned None is left out")
        if left:
            notes.append(f"returned values that are no tensors are not judged: {', '.join(left)}")
        return Answers(_named([path for path, _ in tensors]))
    pairs = enumerate(zip(before, after, strict=True))
    changed = [number for number, (one, other) in pairs if _differs(one, other)]
    if not changed:
        returned = "" if result is None else f"returned a {type(result).__name__}, and "
        wanted = "return a tensor or a tuple of tensors, or change an argument in place"
        raise UnusableReference(f"the reference must {wanted}: it {returned}changed none in place")
    outputs = tuple(names[number] for number in changed)
    listed = ", ".join(outputs)
    new = "them as new tensors" if len(outputs) > 1 else "a new one"
    notes.append(
        f"it returns None and changes {listed} in place: `run` does so too, or returns {new}"
    )
    return Answers(outputs, tuple(changed))


def _leaves(result: Any) -> list[tuple[tuple[str, ...], Any]]:
    """Every returned value, with the keys that lead to it."""
    if is_dataclass(result) and not isinstance(result, type):
        result = {field.name: getattr(result, field.name) for field in fields(result)}
    if result is None:
        return []
    found, _ = tree_flatten_with_path(result)
    return [(tuple(str(key).strip("[].'\"") for key in path), value) for path, value in found]


def _named(paths: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    if len(paths) == 1:
        return ("out",)
    names = tuple("_".join(path) for path in paths)
    if all(name.isidentifier() for name in names) and len(set(names)) == len(names):
        return names
    return tuple(f"out{number}" for number in range(len(paths)))


def _differs(one: Any, other: Any) -> bool:
    return isinstance(one, Tensor) and not torch.equal(
        *(torch.nan_to_num(computable(each)) for each in (one, other))
    )

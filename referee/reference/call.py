"""Takes the call of a reference apart into named leaves, and puts it together again.

A leaf is a tensor or a plain value: an argument, or an entry of a list, tuple or dictionary. Its
name consists of the parameter and the keys: `batch["mask"]` is `batch_mask`, and `batch.mask` in
the text of `--input`.
"""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils._pytree import TreeSpec, keystr, tree_flatten_with_path, tree_unflatten

from referee.reference.inputs import Entry, InputSet
from referee.reference.unusable import InputError, UnusableReference

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True)
class Leaf:
    """One value of a call. `given` is False for the default of a parameter."""

    name: str
    value: Any
    given: bool


@dataclass(frozen=True)
class Call:
    """A call of a signature: its leaves in the signature's order, and their structure."""

    signature: inspect.Signature
    leaves: tuple[Leaf, ...]
    trees: tuple[tuple[str, TreeSpec, int], ...]
    """For each parameter its name, the tree of its value, and the number of its leaves."""

    def arguments(self, values: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """Positional and named arguments with these values for the leaves."""
        bound: dict[str, Any] = {}
        position = 0
        for name, tree, count in self.trees:
            bound[name] = tree_unflatten(list(values[position : position + count]), tree)
            position += count
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for name, parameter in self.signature.parameters.items():
            if name not in bound:
                continue
            if parameter.kind in _POSITIONAL:
                args.append(bound[name])
            elif parameter.kind is parameter.VAR_POSITIONAL:
                args.extend(bound[name])
            elif parameter.kind is parameter.VAR_KEYWORD:
                kwargs |= bound[name]
            else:
                kwargs[name] = bound[name]
        return args, kwargs


def call_with(signature: inspect.Signature, given: Any, of: str) -> Call:
    """The call of an example: a list of arguments, a dictionary of named ones, or a pair of both.

    `of` names the example's origin in messages. Raises UnusableReference.
    """
    args, kwargs = _args_and_kwargs(signature, given, of)
    return _taken_apart(signature, _bound(signature, args, kwargs, of))


def call_of_inputs(signature: inspect.Signature, inputs: InputSet) -> Call:
    """The call for a text of `--input`; its leaves are entries. Raises InputError."""
    parameters = signature.parameters
    rest = next((name for name, one in parameters.items() if one.kind is one.VAR_KEYWORD), None)
    nested: dict[str, Any] = {}
    for name, entry in inputs.entries:
        first, *keys = name.split(".")
        if first not in parameters and name in inputs.symbols:
            # This entry is the size of a symbol for the timed cell.
            continue
        if first not in parameters or first == rest:
            if rest is None:
                known = ", ".join(parameters) or "none"
                raise InputError(
                    f"--input {inputs.text()!r}: the reference has no argument {first!r}; its arguments are {known}"
                )
            first, keys = rest, [first, *keys]
        _put(nested, [first, *keys], entry, name)
    for name, parameter in parameters.items():
        variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if name not in nested and parameter.default is parameter.empty and not variadic:
            how = f"add {name}=bf16[...] or {name}=VALUE"
            raise InputError(
                f"--input {inputs.text()!r} leaves out {name}, which the reference needs; {how}"
            )
    return _taken_apart(signature, {name: (_lists(value), True) for name, value in nested.items()})


def _put(nested: dict[str, Any], keys: list[str], entry: Entry, name: str) -> None:
    place = nested
    for key in keys[:-1]:
        place = place.setdefault(key, {})
        if not isinstance(place, dict):
            raise InputError(f"--input {name}: {key} is a value and holds no {keys[-1]}")
    if keys[-1] in place:
        raise InputError(
            f"--input {name}: {name} is given as a value and as something that holds values"
        )
    place[keys[-1]] = entry


def _lists(value: Any) -> Any:
    """Dictionaries with the keys 0, 1, 2 and so on as lists."""
    if not isinstance(value, dict):
        return value
    found = {key: _lists(one) for key, one in value.items()}
    if set(found) == {str(number) for number in range(len(found))}:
        return [found[str(number)] for number in range(len(found))]
    return found


def _args_and_kwargs(
    signature: inspect.Signature, given: Any, of: str
) -> tuple[list[Any], dict[str, Any]]:
    names = set(signature.parameters)
    if isinstance(given, Mapping):
        if set(given) <= names:
            return [], dict(given)
        return [given], {}
    if isinstance(given, Tensor):
        return [given], {}
    if not isinstance(given, (list, tuple)):
        raise UnusableReference(f"{of} must give a list of arguments, not a {type(given).__name__}")
    if (
        len(given) == 2
        and isinstance(given[0], (list, tuple))
        and isinstance(given[1], Mapping)
        and set(given[1]) <= names
    ):
        return list(given[0]), dict(given[1])
    return list(given), {}


def _bound(
    signature: inspect.Signature, args: list[Any], kwargs: dict[str, Any], of: str
) -> dict[str, tuple[Any, bool]]:
    parameters = signature.parameters.values()
    positional = [one for one in parameters if one.kind in _POSITIONAL]
    named = [one for one in parameters if one.kind is one.KEYWORD_ONLY and one.name not in kwargs]
    if not any(one.kind is one.VAR_POSITIONAL for one in parameters):
        # A list in the signature's order may continue with keyword-only arguments.
        kwargs = dict(kwargs) | {
            one.name: value for one, value in zip(named, args[len(positional) :], strict=False)
        }
        if len(args) > len(positional) + len(named):
            count = len(positional) + len(named)
            raise UnusableReference(
                f"the reference takes {count} arguments, {of} gives {len(args)}: say which with --input, or name a function that takes them"
            )
        args = args[: len(positional)]
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise UnusableReference(
            f"the reference cannot be called with the arguments of {of}: {error}"
        ) from None
    return {name: (value, True) for name, value in bound.arguments.items()}


def _taken_apart(signature: inspect.Signature, bound: Mapping[str, tuple[Any, bool]]) -> Call:
    leaves: list[Leaf] = []
    trees: list[tuple[str, TreeSpec, int]] = []
    for name, parameter in signature.parameters.items():
        if name in bound:
            value, given = bound[name]
        elif parameter.default is not parameter.empty:
            value, given = parameter.default, False
        else:
            continue
        found, tree = tree_flatten_with_path(value)
        bare = parameter.kind is parameter.VAR_KEYWORD
        leaves += [
            Leaf(_leaf_name("" if bare else name, path), leaf, given) for path, leaf in found
        ]
        trees.append((name, tree, len(found)))
    return Call(signature, tuple(leaves), tuple(trees))


def _leaf_name(parameter: str, path: tuple[Any, ...]) -> str:
    """A Python name from the parameter and the keys of the path."""
    keys = [keystr((key,)).strip("[].'\"") for key in path]
    name = "_".join([*([parameter] if parameter else []), *keys])
    return "".join(
        character if character.isalnum() or character == "_" else "_" for character in name
    )


def argument_names(leaves: Sequence[str], state: Sequence[str]) -> list[str]:
    """Argument names of `run`: those of the leaves, then those of a module's state with dots
    replaced.

    Raises UnusableReference.
    """
    found = list(leaves)
    for name in state:
        new = name.replace(".", "_")
        new = new if new.isidentifier() and not keyword.iskeyword(new) else f"state_{new}"
        found.append(new if new not in found else f"state_{new}")
    for number, name in enumerate(found):
        if not name.isidentifier() or keyword.iskeyword(name):
            raise UnusableReference(f"{name!r} cannot be the name of an argument: rename it")
        if name in found[:number]:
            raise UnusableReference(f"two arguments are called {name!r}: rename one of them")
    return found

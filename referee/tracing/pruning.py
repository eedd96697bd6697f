"""The configurations of an autotuned kernel that may run at a launch, where the kernel prunes them.

A key has the arguments that `key` names, and all dtypes. Triton prunes and compares at the first
launch of each key only. It keeps the picked configuration for every launch of that key, whatever
its other arguments are. So a launch may run each configuration that pruning leaves for its key with
the other arguments of any launch. This holds too for a kernel that prunes by an argument outside
its key. Runs in the trace worker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from referee.triton_compat import autotuner, jit_kernels

_PLAIN = (bool, int, float, str, type(None))


@dataclass(frozen=True)
class _Call:
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    key: tuple[object, ...]


class Pruning:
    """The configurations that are left for each kernel and key, over all launches so far. `grew` is
    True once an earlier key has gained a configuration.
    """

    def __init__(self) -> None:
        self.grew = False
        self._calls: dict[str, dict[object, _Call]] = {}
        self._known: dict[tuple[str, tuple[object, ...]], set[int]] = {}

    def left(
        self,
        kernel: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        facts: autotuner.AutotuneFacts,
    ) -> list[Any]:
        """The configurations that this launch may run, in the autotuner's order."""
        if not autotuner.prunes(kernel):
            return list(facts.configs)
        name = jit_kernels.innermost(kernel).__name__
        calls, this = self._calls.setdefault(name, {}), _Call(args, kwargs, facts.key)
        known = self._known.setdefault((name, facts.key), set())
        self._add(known, kernel, facts.configs, new=not known)
        if calls.setdefault(_shape_of(kernel, this), this) is this:
            for other in list(calls.values()):
                self._add(known, kernel, _left(kernel, this, other))
                self._add(self._known[name, other.key], kernel, _left(kernel, other, this))
        return [config for number, config in enumerate(kernel.configs) if number in known]

    def _add(
        self, known: set[int], kernel: Any, left: tuple[Any, ...], *, new: bool = False
    ) -> None:
        found = {
            number
            for number, config in enumerate(kernel.configs)
            if any(config is one for one in left)
        }
        self.grew = self.grew or (not new and not found <= known)
        known |= found


def _left(kernel: Any, keyed: _Call, rest: _Call) -> tuple[Any, ...]:
    """The configurations for the key of `keyed` with the rest of `rest`; none if pruning fails."""
    names = kernel.arg_names
    others = {**dict(zip(names, rest.args, strict=False)), **rest.kwargs}

    def mixed(name: str, value: Any) -> Any:
        return value if name in kernel.keys else others.get(name, value)

    args = tuple(mixed(name, value) for name, value in zip(names, keyed.args, strict=False))
    try:
        return autotuner.autotune_facts(
            kernel, args, {name: mixed(name, value) for name, value in keyed.kwargs.items()}
        ).configs
    except Exception:
        return ()


def _shape_of(kernel: Any, call: _Call) -> object:
    """The parts of a launch that pruning can see: key, plain values, grid, and shapes."""
    given = {**dict(zip(kernel.arg_names, call.args, strict=False)), **call.kwargs}
    shapes = {
        name: value if isinstance(value, _PLAIN) else getattr(value, "shape", None)
        for name, value in given.items()
    }
    if isinstance(grid := call.kwargs.get("grid"), (tuple, list)):
        shapes["grid"] = tuple(grid)
    return call.key, tuple((name, repr(shape)) for name, shape in shapes.items())

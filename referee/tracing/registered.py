"""Operators that a file registers with torch. A call of an operator is a call of its function, as
on a GPU.

`wrap_triton` returns the kernel. Functions for fake tensors, for gradients and for other devices do
not matter for launches. Runs in the trace worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from referee.tracing.circumstances import caller, is_torch

_FOR_OTHERS = (
    "register_fake",
    "register_autograd",
    "register_vmap",
    "register_torch_dispatch",
    "register_autocast",
)
_GPU = frozenset({None, "cuda"})


def answers() -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    """Yield the module, the name and the replacement of each function that registers operators."""
    for name, instead in _INSTEAD.items():
        if hasattr(torch.library, name):
            yield torch.library, name, _unless_torch(getattr(torch.library, name), instead)


def _unless_torch(original: Callable[..., Any], instead: Callable[..., Any]) -> Callable[..., Any]:
    """Give torch the original function, because its compiler registers operators too."""

    def answered(*given: Any, **named: Any) -> Any:
        return (original if is_torch(caller(1)) else instead)(*given, **named)

    return answered


def _same(kernel: Any) -> Any:
    return kernel


def _registering(name: str, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    if function is None:
        return lambda one: _operator(name, one)
    return _operator(name, function)


def _operator(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    implementations = [function]

    def operator(*given: Any, **named: Any) -> Any:
        return implementations[-1](*given, **named)

    def register_kernel(devices: Any, other: Callable[..., Any] | None = None, /) -> Any:
        def chosen(one: Callable[..., Any]) -> Callable[..., Any]:
            if _GPU.intersection(devices if isinstance(devices, (list, tuple)) else [devices]):
                implementations.append(one)
            return one

        return chosen if other is None else chosen(other)

    made: Any = operator
    made.register_kernel = register_kernel
    for one in _FOR_OTHERS:
        setattr(made, one, _ignored)
    space, _, short = name.partition("::")
    vars(getattr(torch.ops, space))[short] = _packet(made)
    return operator


def _packet(operator: Callable[..., Any]) -> Any:
    def packet(*given: Any, **named: Any) -> Any:
        return operator(*given, **named)

    made: Any = packet
    made.default = operator
    return made


def _ignored(*given: Any, **named: Any) -> Any:
    """Return the given function, or a decorator that returns it."""
    functions = [one for one in given if callable(one)]
    return functions[-1] if functions else lambda one: one


_INSTEAD: dict[str, Callable[..., Any]] = {
    "custom_op": _registering,
    "triton_op": _registering,
    "wrap_triton": _same,
    **dict.fromkeys(
        ("register_fake", "register_autograd", "register_vmap", "impl_abstract"), _ignored
    ),
}

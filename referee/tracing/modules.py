"""`torch.nn.Module`, which takes a parameter otherwise than a plain tensor: what a module of the file is given tells the file which it is.

Calling a module tells nothing, so that only what one is given counts as the file's question. Runs in the trace worker only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from referee.tracing.training import Training

# Of what a module has, all that looks at a tensor which it does not hold yet.
_TAKING = ("__setattr__", "register_parameter", "register_buffer")


def answers(training: Training) -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    """What modules take tensors with, and what stands in for it."""
    for name in _TAKING:
        yield torch.nn.Module, name, _noting(getattr(torch.nn.Module, name), training)


def _noting(original: Callable[..., Any], training: Training) -> Callable[..., Any]:
    @functools.wraps(original)
    def taking(*args: Any, **kwargs: Any) -> Any:
        for value in (*args, *kwargs.values()):
            if isinstance(value, torch.Tensor):
                training.ask_kind(value)
        return original(*args, **kwargs)

    return taking

"""Refuses references whose answers depend on chance, or whose shapes depend on values."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from referee.ops.torch_compat import as_tuple, computable
from referee.reference.observed import Observed
from referee.reference.reference import Example, Function
from referee.reference.unusable import UnusableReference

SEEDS = 3


def refuse_random(
    function: Function, tensors: Sequence[Tensor], found: Sequence[Tensor], seen: Observed
) -> None:
    for seed in (0, 1):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            again = as_tuple(function(*(tensor.clone() for tensor in tensors)))
        if [out.shape for out in again] == [out.shape for out in found] and all(
            map(same_values, found, again)
        ):
            continue
        if seen.random is None:
            raise UnusableReference(
                "the reference gives different answers to the same inputs: random numbers, or state that it keeps"
            )
        dropout = "dropout" in f"{seen.random} {seen.random.operation}"
        fault = "uses dropout in training mode" if dropout else "draws random numbers"
        raise UnusableReference(
            f"the reference {fault} at {seen.random}, so that no answer is right: pass training=False, or give the mask as an argument"
        )


def refuse_dynamic(
    function: Function, example: Example, found: Sequence[Tensor], seen: Observed
) -> None:
    for seed in range(1, SEEDS if seen.dynamic else 1):
        try:
            again = as_tuple(function(*example.tensors(seed=seed)))
        except Exception:
            # Values that the reference refuses say nothing about shapes.
            continue
        if [out.shape for out in again] != [out.shape for out in found]:
            raise UnusableReference(
                f"the shape of an output depends on values, at {seen.dynamic}: a kernel's launches follow shapes only"
            )


def same_values(first: Tensor, second: Tensor) -> bool:
    return torch.equal(*(torch.nan_to_num(computable(tensor)) for tensor in (first, second)))

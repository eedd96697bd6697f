"""Finds outputs that consist of a few tensors side by side; each part is judged as its own output.

It sees a `cat` or `stack` of at most MOST_PARTS tensors along the last dimension, returned as it is
or copied. More parts are usually the steps of one calculation. Limits: parts that are written into
an existing tensor are not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

from referee.ops.torch_compat import Mode

MOST_PARTS = 8
_SAME = frozenset("alias detach clone contiguous _to_copy".split())


def with_parts(
    function: Callable[..., Any], inputs: Sequence[Tensor]
) -> tuple[tuple[Tensor, ...], list[list[int]]]:
    """The outputs as a tuple, and for each the widths of its parts: one if it is not joined."""
    with _Joined() as joined:
        result = function(*inputs)
    outputs = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    return outputs, [
        joined.widths.get(output) or [output.shape[-1] if output.dim() else 1] for output in outputs
    ]


class _Joined(Mode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.widths: Any = WeakTensorKeyDictionary()

    def operation(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        result = func(*args, **kwargs)
        name = str(func).removeprefix("aten.").partition(".")[0]
        if name in ("cat", "stack"):
            tensors = args[0]
            along = args[1] if len(args) > 1 else kwargs.get("dim", 0)
            if along in (-1, result.dim() - 1) and 1 < len(tensors) <= MOST_PARTS:
                self.widths[result] = [
                    tensor.shape[-1] if name == "cat" else 1 for tensor in tensors
                ]
        elif name in _SAME and args[0] in self.widths:
            self.widths[result] = self.widths[args[0]]
        elif func._schema.is_mutable:
            # A tensor that is written afterwards no longer consists of its parts.
            for tensor in tree_leaves(result):
                self.widths.pop(tensor, None)
        return result

"""A PyTorch function captured as ATen operations, by `make_fx` on tensors without values.

Every node remembers the line of the user's code that it comes from.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import GraphModule, Node, traceback
from torch.overrides import TorchFunctionMode

from kmint_tui.graph.aten import TABLE
from kmint_tui.graph.program import OutOfScope

Mode = Literal["symbolic", "fake"]
"""Whether sizes are symbols or the numbers of the example."""

_ROOT = Path(__file__).parents[2]
_NOT_THE_USERS = (
    str(Path(torch.__file__).parent),
    str(_ROOT / "kmint_tui"),
    str(_ROOT / "referee"),
    "<",
)
"""Prefixes of files whose frames are skipped on the way to the user's line."""
_MOST_WORDS = 200


@dataclass(frozen=True)
class Argument:
    """One parameter of the function: a tensor at an example's shape and dtype, or a number."""

    name: str
    value: Tensor | float | int


class NotTraced(OutOfScope):
    """PyTorch could not trace the function."""


def capture(function: Callable[..., Any], arguments: Sequence[Argument], mode: Mode) -> GraphModule:
    """The function's graph, with a placeholder for each tensor argument. Raises NotTraced."""
    from torch.func import functionalize
    from torch.fx.experimental.proxy_tensor import make_fx

    def on_tensors(*given: Tensor) -> Any:
        pending = iter(given)
        values = (
            next(pending) if isinstance(one.value, Tensor) else one.value for one in arguments
        )
        with _Lines():
            return function(*values)

    whole = functionalize(on_tensors, remove="mutations")
    examples = [one.value.detach() for one in arguments if isinstance(one.value, Tensor)]
    try:
        with torch.no_grad(), traceback.preserve_node_meta():
            made = make_fx(whole, _decompositions(), tracing_mode=mode)(*examples)
    except Exception as error:
        raise NotTraced(_reason(error)) from error
    made.graph.eliminate_dead_code()
    return made


def operation(node: Node) -> str:
    """The name of a node's operation, without the namespace and the overload."""
    schema = getattr(node.target, "_schema", None)
    if schema is not None:
        return _short(str(schema.name))
    return str(getattr(node.target, "__name__", node.target))


def place(node: Node) -> str:
    """The line of the user's code in brackets; empty if it is not known."""
    return f" ({node.stack_trace})" if node.stack_trace else ""


class _Lines(TorchFunctionMode):
    """Notes for every node the line of the user's code that it comes from."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_filename.startswith(_NOT_THE_USERS):
            frame = frame.f_back
        file, line = frame.f_code.co_filename, frame.f_lineno
        if not file.startswith(_NOT_THE_USERS):
            code = linecache.getline(file, line).strip()
            traceback.set_stack_trace([f"{Path(file).name}, line {line}: `{code}`"])
        return _OPEN.get(func, func)(*args, **(kwargs or {}))


def _one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """`one_hot` whose number of classes stays a symbol, which PyTorch's own makes a number."""
    if isinstance(num_classes, int) and num_classes < 0:
        return F.one_hot(tensor)
    return (tensor.unsqueeze(-1) == torch.arange(num_classes, device=tensor.device)).long()


_OPEN: dict[Callable[..., Any], Callable[..., Any]] = {F.one_hot: _one_hot}
"""Forms that keep sizes open, in place of functions that fix the sizes of the example."""


def _reason(error: Exception) -> str:
    words = " ".join((str(error).splitlines() or [""])[0].split())
    kind = type(error).__name__
    if "DataDependent" in kind or "data-dependent" in words or "item()" in words:
        return "values decide what the function does or which shape its result has"
    if "DynamicOutputShape" in kind:
        return f"values decide the shape of a result ({words.split(':')[-1].strip()[:80]})"
    return f"it cannot be traced: {kind}: {words[:_MOST_WORDS]}"


@lru_cache(maxsize=1)
def _decompositions() -> dict[Any, Callable[..., Any]]:
    """PyTorch's own decompositions of every operation that the table lacks."""
    from torch._decomp import core_aten_decompositions

    table: dict[Any, Callable[..., Any]] = dict(core_aten_decompositions())
    return {
        overload: made
        for overload, made in table.items()
        if not hasattr(overload, "_schema") or _short(overload._schema.name) not in TABLE
    }


def _short(name: str) -> str:
    return name.rpartition("::")[2]

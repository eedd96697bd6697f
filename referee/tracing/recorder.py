"""Records the operations of `run` on tensors as plan steps: allocation, views, fills and copies. It
refuses every other operation.

A dispatch mode sees every ATen operation; `launch_recorder.py` adds the launches. Runs in the trace
worker only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from referee.ops.spec import TensorSpec
from referee.ops.torch_compat import Mode
from referee.plans.plan import (
    MAX_BUFFERS,
    MAX_STEPS,
    Buffer,
    Copy,
    Fill,
    LaunchPlan,
    Step,
    View,
    views_of,
    with_views,
)
from referee.plans.plan_check import SCRATCH_FACTOR, SCRATCH_FREE_BYTES, input_nbytes
from referee.tracing.pretended_cuda import META
from referee.tracing.violation import Violation, Violations

IN_TRITON = "the answer must be computed in Triton"

_ALLOCATE = frozenset(
    {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}
)
_FILLED = {"zeros": 0, "zeros_like": 0, "new_zeros": 0, "ones": 1, "ones_like": 1, "new_ones": 1}
# Operation -> position of the fill value among the arguments.
_FILL_VALUE_AT = {"full": 1, "full_like": 1, "new_full": 2, "scalar_tensor": 0}
_COPIES = frozenset({"clone", "_to_copy"})
_IN_PLACE = frozenset({"aten.copy_.default", "aten.zero_.default", "aten.fill_.Scalar"})
_OF_DTYPES = frozenset({"promote_types", "can_cast"})
_READS_VALUES = frozenset(
    {"_local_scalar_dense", "equal", "nonzero", "is_nonzero", "item", "masked_select", "allclose"}
)
_NOT_COMPUTE = frozenset(
    {"set_", "resize_", "resize_as_", "lift_fresh", "lift", "_pin_memory", "record_stream"}
)


@dataclass(frozen=True)
class _Layout:
    """A tensor's storage (identity and bytes), its window on it in elements, and its dtype's name.
    `on_device` is True on the pretended GPU; `lazy` if torch negates or conjugates the values when
    it reads them.
    """

    storage: int
    nbytes: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    on_device: bool
    lazy: bool


def _layout(tensor: torch.Tensor) -> _Layout:
    # With torch functions off, the tensor reports its true device instead of the pretended one.
    with torch._C.DisableTorchFunction():
        storage = tensor.untyped_storage()
        return _Layout(
            storage=storage._cdata,
            nbytes=storage.nbytes(),
            offset=int(tensor.storage_offset()),
            shape=tuple(tensor.shape),
            strides=tuple(tensor.stride()),
            dtype=str(tensor.dtype).removeprefix("torch."),
            on_device=tensor.device == META,
            lazy=tensor.is_conj() or tensor.is_neg(),
        )


def make_input(spec: TensorSpec) -> torch.Tensor:
    """A tensor without data that has the spec's shape, strides and offset."""
    dtype: torch.dtype = getattr(torch, spec.dtype)
    with torch._C.DisableTorchFunction():
        storage = torch.empty(input_nbytes(spec), dtype=torch.uint8, device=META).untyped_storage()
        return torch.empty(0, dtype=dtype, device=META).set_(
            storage, spec.offset, spec.shape, spec.strides
        )


class Recorder(Mode):
    """The steps of one call of `run`, in order."""

    def __init__(self, violations: Violations, inputs: Sequence[TensorSpec]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.violations = violations
        self._specs = tuple(inputs)
        self.inputs = tuple(make_input(spec) for spec in inputs)
        self._kept: list[torch.Tensor] = []
        self._buffers: list[Buffer] = []
        self._by_storage: dict[int, int] = {}
        self._steps: list[Step] = []
        for index, tensor in enumerate(self.inputs):
            self._add_buffer(tensor, index)
        self._input_views = tuple(self.view(tensor) for tensor in self.inputs)

    def copy_of(self, place: int) -> torch.Tensor:
        """A copy of the input at this position, in the same layout. The plan makes it."""
        copy = make_input(self._specs[place])
        self._add_buffer(copy, None)
        self.add(Copy(self.view(copy), self._input_views[place]))
        return copy

    def view(self, tensor: torch.Tensor) -> View:
        """The tensor as a view of one of this call's buffers. Raises Violation for others."""
        layout = _layout(tensor)
        if not layout.on_device:
            reason = "a CPU tensor is used; pass device=x.device when allocating"
            raise self.violations.add("device", reason)
        if layout.lazy:
            raise self._compute(f"a tensor that torch negates when it is read: {IN_TRITON}")
        if layout.storage not in self._by_storage:
            reason = "`run` uses a tensor that was not made in this call"
            raise self.violations.add("state", f"{reason}; keep nothing between calls")
        offset = layout.offset * tensor.element_size()
        return View(
            self._by_storage[layout.storage], offset, layout.shape, layout.strides, layout.dtype
        )

    @property
    def used(self) -> bool:
        """True when any tensor was made or any step recorded."""
        return bool(self._buffers or self._steps)

    @property
    def done(self) -> tuple[int, int]:
        """The number of tensors made and the number of steps recorded."""
        return len(self._buffers), len(self._steps)

    def add(self, step: Step) -> None:
        """Append a step."""
        if len(self._steps) >= MAX_STEPS:
            raise self.violations.add("plan_size", f"`run` takes more than {MAX_STEPS} steps")
        self._steps.append(step)

    def plan(self, outputs: Iterable[torch.Tensor]) -> LaunchPlan:
        """The plan so far, with these tensors as outputs and without buffers that nothing uses."""
        views = tuple(self.view(tensor) for tensor in outputs)
        used = {view.buffer for step in self._steps for view in views_of(step)}
        used |= {view.buffer for view in views}
        numbered = enumerate(self._buffers)
        kept = [index for index, one in numbered if one.input is not None or index in used]
        needed = sum(self._buffers[index].nbytes for index in kept)
        unused = sum(buffer.nbytes for buffer in self._buffers) - needed
        if unused > SCRATCH_FREE_BYTES + SCRATCH_FACTOR * needed:
            reason = "`run` makes far larger tensors, which nothing uses"
            raise self.violations.add("plan_size", f"{reason}, than its inputs and outputs are")
        number = {old: new for new, old in enumerate(kept)}

        def renumber(view: View) -> View:
            return replace(view, buffer=number[view.buffer])

        return LaunchPlan(
            buffers=tuple(self._buffers[index] for index in kept),
            inputs=self._input_views,
            steps=tuple(with_views(step, renumber) for step in self._steps),
            outputs=tuple(renumber(view) for view in views),
        )

    def operation(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Record or refuse an ATen operation."""
        name = function.overloadpacket.__name__
        if name in _READS_VALUES:
            reason = f"`aten.{name}` needs a tensor's values"
            raise self.violations.add(
                "needs_value", f"{reason}; plans depend on shapes and dtypes only"
            )
        if name in _NOT_COMPUTE:
            raise self._compute(f"`aten.{name}` is not allowed; allocate with torch.empty")
        if str(function._overloadname).endswith("out"):
            raise self._compute("`out=` is not allowed; use `fill_` or `copy_`")
        if not _is_known(function, name):
            raise self._compute(f"`aten.{name}`: {IN_TRITON}")
        result = function(*args, **kwargs)
        if isinstance(result, torch.Tensor):
            self._record(name, args, kwargs, result)
        return result

    def _record(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: torch.Tensor
    ) -> None:
        if name == "copy_":
            self.add(Copy(self.view(args[0]), self.view(args[1])))
        elif name == "zero_":
            self.add(Fill(self.view(args[0]), 0))
        elif name == "fill_":
            self.add(Fill(self.view(args[0]), self._number(args[1])))
        elif name in _COPIES:
            source = self.view(args[0])
            self._add_buffer(result, None)
            self.add(Copy(self.view(result), source))
        elif name in _ALLOCATE:
            self._add_buffer(result, None)
        elif name in _FILLED:
            self._add_buffer(result, None)
            self.add(Fill(self.view(result), _FILLED[name]))
        elif name in _FILL_VALUE_AT:
            position = _FILL_VALUE_AT[name]
            self._add_buffer(result, None)
            value = args[position] if len(args) > position else kwargs.get("fill_value")
            self.add(Fill(self.view(result), self._number(value)))
        else:
            self.view(result)

    def _number(self, value: Any) -> int | float | bool:
        if isinstance(value, (bool, int, float)):
            return value
        kind = type(value).__name__
        raise self._compute(f"a tensor is filled with a {kind}; use a plain number")

    def _compute(self, reason: str) -> Violation:
        return self.violations.add("torch_compute", reason)

    def _add_buffer(self, tensor: torch.Tensor, owner: int | None) -> None:
        layout = _layout(tensor)
        if not layout.on_device:
            raise self.violations.add("device", "a tensor is made on the CPU; pass device=x.device")
        if layout.storage in self._by_storage:
            raise self._compute("an operation that makes a tensor gives one that was there before")
        if len(self._buffers) >= MAX_BUFFERS:
            raise self.violations.add("plan_size", f"`run` makes more than {MAX_BUFFERS} tensors")
        # Kept alive, so that no later storage can take this one's identity.
        self._kept.append(tensor)
        self._by_storage[layout.storage] = len(self._buffers)
        self._buffers.append(Buffer(layout.nbytes, owner))


def _is_known(function: Any, name: str) -> bool:
    if function.namespace == "prim":
        return name == "device"
    if function.namespace != "aten":
        return False
    if name in _OF_DTYPES:
        return True
    makes = name in _ALLOCATE or name in _FILLED or name in _FILL_VALUE_AT or name in _COPIES
    return makes or str(function) in _IN_PLACE or name == "_unsafe_view" or bool(function.is_view)

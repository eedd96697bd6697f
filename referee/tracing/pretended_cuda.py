"""torch as it would look on the target's GPU, in a process that has none.

Tensors are torch's own "meta" tensors, which have no data. A function mode answers for their device
and turns the device that a candidate asks for into "meta". The target answers the queries of
`torch.cuda` (`cuda_answers.py`), and `TorchAnswers` those about the running call. Works the same in CPU
and CUDA builds of torch. Runs in the trace worker only.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.overrides import TorchFunctionMode

from referee.target import Target
from referee.tracing import registered
from referee.tracing.circumstances import TorchAnswers
from referee.tracing.cuda_answers import answers_of, check_device
from referee.tracing.violation import Violations

META = torch.device("meta")

_TENSOR: Any = torch.Tensor
_ANSWERS: dict[Any, Any] = {
    _TENSOR.is_cuda.__get__: True,
    _TENSOR.is_cpu.__get__: False,
    _TENSOR.is_meta.__get__: False,
    _TENSOR.is_pinned: False,
    # Memory on a GPU counts as shared.
    _TENSOR.is_shared: True,
}
_CUDA_BUILD = "13.0"
"""Version of CUDA that torch reports in a trace if it is built for the CPU only."""

_ALIGNED_BYTES = 512
_ADDRESS_BITS = 36
_DEVICE = _TENSOR.device.__get__
_VALUE_READERS = {
    _TENSOR.item: "item()",
    _TENSOR.tolist: "tolist()",
    _TENSOR.numpy: "numpy()",
    _TENSOR.cpu: "cpu()",
    _TENSOR.__bool__: "a truth value",
    _TENSOR.__int__: "int()",
    _TENSOR.__float__: "float()",
    _TENSOR.__index__: "an index",
    _TENSOR.__array__: "an array",
    _TENSOR.__dlpack__: "DLPack",
    _TENSOR.__repr__: "a text",
    _TENSOR.__format__: "a text",
    torch.equal: "torch.equal",
    _TENSOR.equal: "equal()",
    torch.allclose: "torch.allclose",
    _TENSOR.allclose: "allclose()",
    torch.is_nonzero: "torch.is_nonzero",
}
_ADDRESS_READERS = {
    _TENSOR.untyped_storage: "untyped_storage()",
    _TENSOR.storage: "storage()",
    _TENSOR.set_: "set_()",
    _TENSOR.record_stream: "record_stream()",
    _TENSOR.share_memory_: "share_memory_()",
    _TENSOR.pin_memory: "pin_memory()",
}
_HOST_DATA = {
    torch.tensor: "torch.tensor",
    torch.as_tensor: "torch.as_tensor",
    torch.from_numpy: "torch.from_numpy",
}


class PretendedDevice(TorchFunctionMode):
    """Answers for the device of tensors, and refuses to read a tensor's values or address."""

    def __init__(self, violations: Violations, torch_answers: TorchAnswers) -> None:
        super().__init__()
        self._violations = violations
        self._torch_answers = torch_answers

    def __torch_function__(
        self,
        function: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Answer a torch function or tensor property. torch calls this while the mode is on."""
        if function in _ANSWERS:
            return _ANSWERS[function]
        if function == _DEVICE:
            return self._torch_answers.device
        if function is _TENSOR.get_device:
            return self._torch_answers.device.index
        if function is torch.device:
            return function(*args, **(kwargs or {}))
        if function is _TENSOR.cuda:
            function, args, kwargs = _TENSOR.to, *_as_to(*args, **(kwargs or {}))
        if function is _TENSOR.data_ptr:
            return self._address(args[0])
        self._refuse(function)
        if function is _TENSOR.type and len(args) == 1 and not kwargs:
            name: str = function(args[0])
            return name.replace(".meta.", ".cuda.")
        named = dict(kwargs or {})
        if isinstance(named.get("device"), int):
            named["device"] = torch.device("cuda", named["device"])
        if function is _TENSOR.to and isinstance(args[1:] and args[1], int):
            args = (args[0], torch.device("cuda", args[1]), *args[2:])
        return function(
            *(self._meta(value) for value in args),
            **{name: self._meta(value) for name, value in named.items()},
        )

    def _refuse(self, function: Any) -> None:
        """Raise Violation for a function that needs a tensor's values or address."""
        if function in _VALUE_READERS:
            reason = f"{_VALUE_READERS[function]} reads a tensor's values"
            raise self._violations.add(
                "needs_value", f"{reason}; plans depend on shapes and dtypes only"
            )
        if function in _ADDRESS_READERS:
            reason = f"{_ADDRESS_READERS[function]} has no meaning in a trace"
            raise self._violations.add("needs_value", f"{reason}; pass tensors to the kernel")
        if function in _HOST_DATA:
            reason = f"{_HOST_DATA[function]} builds data on the host"
            instead = "use torch.full or pass the number as an argument"
            raise self._violations.add("torch_compute", f"{reason}; {instead}")

    def _address(self, tensor: torch.Tensor) -> int:
        """The address of a tensor's first element, aligned as by PyTorch; it changes per call."""
        with torch._C.DisableTorchFunction():
            if tensor.numel() == 0:
                return 0
            # The hash of a tuple would give two tensors the same distance in many calls.
            where = f"{self._torch_answers.handle} {tensor.untyped_storage()._cdata}"
            place = random.Random(where).getrandbits(_ADDRESS_BITS)
            offset = int(tensor.storage_offset()) * tensor.element_size()
            return (place + 1) * _ALIGNED_BYTES + offset

    def _meta(self, value: Any) -> Any:
        """`value` with cuda devices replaced by the meta device; other devices are refused."""
        if isinstance(value, str):
            value = _device_named(value) or value
        if isinstance(value, torch.device):
            check_device(value, self._violations, self._torch_answers)
            return META
        return value


def _as_to(
    tensor: Any,
    device: Any = None,
    non_blocking: bool = False,
    memory_format: Any = torch.preserve_format,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with which `.to` does the same as `.cuda` with these."""
    return (tensor, "cuda" if device is None else device), {
        "non_blocking": non_blocking,
        "memory_format": memory_format,
    }


def _device_named(text: str) -> torch.device | None:
    try:
        return torch.device(text)
    except RuntimeError:
        return None


@contextmanager
def pretended_cuda(target: Target, violations: Violations) -> Iterator[TorchAnswers]:
    """Let tensors, `torch.cuda` and torch answer for the target while the context lasts."""
    torch_answers = TorchAnswers()
    answers: list[tuple[Any, str, object]] = [
        (torch.cuda, name, answer)
        for name, answer in answers_of(target, violations, torch_answers).items()
    ]
    answers += [*torch_answers.answers(), *registered.answers()]
    if torch.version.cuda is None:
        answers.append((torch.version, "cuda", _CUDA_BUILD))
    with ExitStack() as stack:
        for module, name, answer in answers:
            stack.enter_context(patch.object(module, name, answer, create=True))
        stack.enter_context(PretendedDevice(violations, torch_answers))
        yield torch_answers

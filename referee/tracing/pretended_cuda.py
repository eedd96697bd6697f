"""torch as it would look on the target's GPU, in a process that has none: tensors without data that say they are on cuda:0.

Tensors are torch's own "meta" tensors. A function mode answers for their device and turns the device that candidates
ask for into "meta"; `torch.cuda`'s queries are answered from the target. Works the same in CPU and CUDA builds of torch. What torch
says of training, compilation and streams it says as `Training` (training.py) has it; nothing that it does is different. It is one
function that answers either way, so that a file that keeps torch's functions under names of its own is answered so, too.
Limits: there is one device, so that what a candidate does on another GPU of the same host is not seen. Runs in the trace worker only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from referee.target import Target
from referee.tracing import cuda_version, lasting, modules
from referee.tracing.training import FOR_A_MODULE, Training, caller, is_torch
from referee.tracing.violation import Violations

CUDA = torch.device("cuda", 0)
META = torch.device("meta")

_TENSOR: Any = torch.Tensor
_ANSWERS: dict[Any, Any] = {
    _TENSOR.device.__get__: CUDA,
    _TENSOR.is_cuda.__get__: True,
    _TENSOR.is_cpu.__get__: False,
    _TENSOR.is_meta.__get__: False,
    _TENSOR.get_device: 0,
    _TENSOR.is_pinned: False,
    # Memory on a GPU counts as shared.
    _TENSOR.is_shared: True,
}
_REQUIRES_GRAD = _TENSOR.requires_grad.__get__
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
    _TENSOR.data_ptr: "data_ptr()",
    _TENSOR.untyped_storage: "untyped_storage()",
    _TENSOR.storage: "storage()",
    _TENSOR.set_: "set_()",
    _TENSOR.record_stream: "record_stream()",
    _TENSOR.share_memory_: "share_memory_()",
    _TENSOR.pin_memory: "pin_memory()",
}
# Of a tensor without data this is a clone; on a GPU it keeps offset and strides, and of what was computed with gradients it raises.
_DEEP_COPY = _TENSOR.__deepcopy__
# What they make is of the default dtype, where none is named and it is not of integers.
_MAKERS = {torch.empty, torch.empty_strided, torch.empty_permuted, torch.zeros, torch.ones, torch.full, torch.scalar_tensor}
_HOST_DATA = {torch.tensor: "torch.tensor", torch.as_tensor: "torch.as_tensor", torch.from_numpy: "torch.from_numpy"}


class PretendedDevice(TorchFunctionMode):
    """Answers device queries with cuda:0 and refuses what would need a tensor's values or address."""

    def __init__(self, violations: Violations, training: Training) -> None:
        super().__init__()
        self._violations = violations
        self._training = training

    def __torch_function__(self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        """Called for every torch function and tensor property while the mode is on."""
        if function in _ANSWERS:
            return _ANSWERS[function]
        if function == _REQUIRES_GRAD:
            self._check_asked_of_given(args[0])
        if function is torch.device:
            return function(*args, **(kwargs or {}))
        if function is _TENSOR.cuda:
            function, args, kwargs = _TENSOR.to, *_as_to(*args, **(kwargs or {}))
        if function in _VALUE_READERS:
            reason = f"{_VALUE_READERS[function]} reads a tensor's values; plans depend on shapes and dtypes only"
            raise self._violations.add("needs_value", reason)
        if function in _ADDRESS_READERS:
            reason = f"{_ADDRESS_READERS[function]} has no meaning in a trace; pass tensors to the kernel"
            raise self._violations.add("needs_value", reason)
        if function is _DEEP_COPY:
            reason = "`copy.deepcopy` of a tensor keeps its layout on a GPU, and may fail in training; write `.clone()`"
            raise self._violations.add("torch_compute", reason)
        if function in _HOST_DATA:
            reason = f"{_HOST_DATA[function]} builds data on the host; use torch.full or pass the number as an argument"
            raise self._violations.add("torch_compute", reason)
        if function is _TENSOR.type and len(args) == 1 and not kwargs:
            name: str = function(args[0])
            return name.replace(".meta.", ".cuda.")
        named = dict(kwargs or {})
        if isinstance(named.get("device"), int):
            named["device"] = torch.device("cuda", named["device"])
        if function is _TENSOR.to and isinstance(args[1:] and args[1], int):
            args = (args[0], torch.device("cuda", args[1]), *args[2:])
        if function is torch.result_type:
            self._check_not_of_default(args, named)
        result = function(*(self._meta(value) for value in args), **{name: self._meta(value) for name, value in named.items()})
        if function in _MAKERS and named.get("dtype") is None and (result.is_floating_point() or result.is_complex()):
            reason = "a tensor made without a dtype is of the default dtype, which `torch.set_default_dtype` changes; name the dtype"
            raise self._violations.add("state", reason)
        return result

    def _check_asked_of_given(self, tensor: Any) -> None:
        """Note that somebody asks whether a tensor requires gradients."""
        # Called for the mode by C: what asks is the frame outside of it.
        asking = caller(2)
        if asking in FOR_A_MODULE:
            self._training.ask_kind(tensor)
        elif not is_torch(asking) and not self._training.ask_kind(tensor):
            raise self._violations.add("state", "`.requires_grad` of a tensor that `run` makes depends on how it is called")

    def _check_not_of_default(self, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Refuse `torch.result_type` of what has no dtype, such as 2.5."""
        if not any(isinstance(one, torch.Tensor) and (one.is_floating_point() or one.is_complex()) for one in (*args, *named.values())):
            if any(isinstance(one, (float, complex)) for one in (*args, *named.values())):
                raise self._violations.add("state", "`torch.result_type` of a number is the default dtype, which a user may change")

    def _meta(self, value: Any) -> Any:
        """`value` with cuda devices replaced by the meta device; other devices are refused."""
        if isinstance(value, str):
            value = _device_named(value) or value
        if isinstance(value, torch.device):
            _check_device(value, self._violations)
            return META
        return value


def _as_to(
    tensor: Any, device: Any = None, non_blocking: bool = False, memory_format: Any = torch.preserve_format
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of `.to` that does what `.cuda` does with these."""
    return (tensor, CUDA if device is None else device), {"non_blocking": non_blocking, "memory_format": memory_format}


def _device_named(text: str) -> torch.device | None:
    """The device of that name, "meta" too; None for any other text."""
    try:
        return torch.device(text)
    except RuntimeError:
        return None


def _check_device(device: Any, violations: Violations) -> None:
    """Note a violation unless `device` (as torch takes it: None, a number, a string, a torch.device) is cuda:0."""
    if device is None or (isinstance(device, int) and device == 0):
        return
    try:
        wanted = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    except (RuntimeError, TypeError):
        raise violations.add("device", "not a device; use device=x.device") from None
    if wanted.type != "cuda" or wanted.index not in (None, 0):
        raise violations.add("device", f"`{wanted}` is used; everything must stay on the inputs' device (device=x.device)")


class Stream:
    """A stream, the null stream where it is 0, with what torch's own have."""

    priority = 0

    device_index = 0
    device = CUDA

    def __init__(self, violations: Violations, handle: int = 0) -> None:
        self._violations = violations
        self.cuda_stream = self.stream_id = handle

    def __getattr__(self, name: str) -> Any:
        raise self.__dict__["_violations"].add("state", f"`.{name}` of a stream is not known in a trace")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.cuda_stream == self.cuda_stream

    def __hash__(self) -> int:
        return self.cuda_stream

    def query(self) -> bool:
        """Nothing is ever queued."""
        return True

    def synchronize(self) -> None:
        """There is nothing to wait for."""


class _CudaDeviceProperties:
    """Under the name that torch's own have, and equal to themselves only, as those. Which others a real GPU has differs from torch to
    torch."""

    def __init__(self, **found: Any) -> None:
        vars(self).update(found)

    def __getattr__(self, name: str) -> Any:
        raise self.__dict__["_violations"].add("state", f"the device property `{name}` is not known in a trace")


def _answers(target: Target, violations: Violations, training: Training) -> dict[str, Any]:
    found = target.properties
    major, minor = target.capability
    properties = _CudaDeviceProperties(
        _violations=violations,
        name=found.name,
        major=major,
        minor=minor,
        total_memory=found.total_memory,
        multi_processor_count=found.multi_processor_count,
        warp_size=target.warp_size,
        regs_per_multiprocessor=found.regs_per_multiprocessor,
        max_threads_per_multi_processor=found.max_threads_per_multi_processor,
        max_threads_per_block=1024,
        shared_memory_per_block=found.shared_memory_per_block,
        shared_memory_per_block_optin=found.shared_memory_per_block_optin,
        shared_memory_per_multiprocessor=found.shared_memory_per_multiprocessor,
        L2_cache_size=found.L2_cache_size,
        gcnArchName=found.name,
        uuid="GPU-00000000-0000-0000-0000-000000000000",
        pci_bus_id=0,
        pci_device_id=0,
        pci_domain_id=0,
        is_integrated=0,
        is_multi_gpu_board=0,
        clock_rate=found.clock_rate,
        memory_clock_rate=found.memory_clock_rate,
        memory_bus_width=found.memory_bus_width,
    )

    class DeviceContext:
        """`with torch.cuda.device(...)` for the only device."""

        def __init__(self, device: Any = None) -> None:
            _check_device(device, violations)

        def __enter__(self) -> None:
            return None

        def __exit__(self, *error: object) -> None:
            return None

    class ContextOf(DeviceContext):
        """`with torch.cuda.device_of(...)` for the only device."""

        def __init__(self, obj: Any) -> None:
            super().__init__(obj.get_device())

    def on_device(answer: Callable[[], Any]) -> Callable[..., Any]:
        def answered(device: Any = None) -> Any:
            _check_device(device, violations)
            return answer()

        return answered

    def current_stream(device: Any = None) -> Stream:
        _check_device(device, violations)
        return Stream(violations, training.stream(caller(1)))

    def set_device(device: Any) -> None:
        raise violations.add("state", "torch.cuda.set_device outlasts the call; write `with torch.cuda.device(x.device):`")

    def refuse(name: str) -> Callable[..., Any]:
        def refused(*args: Any, **kwargs: Any) -> Any:
            raise violations.add("launch_feature", f"torch.cuda.{name} is not supported: plans run on one stream, in order")

        return refused

    return {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "init": lambda: None,
        "_lazy_init": lambda: None,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": set_device,
        "get_device_name": on_device(lambda: found.name),
        "get_device_capability": on_device(lambda: (major, minor)),
        "get_device_properties": on_device(lambda: properties),
        "is_bf16_supported": lambda *args, **kwargs: target.arch >= 80,
        "get_arch_list": lambda: [target.name],
        "device": DeviceContext,
        "device_of": ContextOf,
        "synchronize": on_device(lambda: None),
        "manual_seed": lambda seed: None,
        "manual_seed_all": lambda seed: None,
        "current_stream": current_stream,
        "default_stream": on_device(lambda: Stream(violations)),
        **{name: refuse(name) for name in ("Stream", "stream", "Event", "CUDAGraph", "graph", "ExternalStream", "mem_get_info")},
    }


def _limits_of(violations: Violations) -> type:
    """`torch.finfo` that takes no default: what it would tell then is of the default dtype."""
    original = torch.finfo

    class Kind(type):
        """Its class is torch's own to everybody who asks."""

        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            if (*args, *kwargs.values()) in ((), (None,)) and not is_torch(caller(1)):
                raise violations.add("state", "`torch.finfo()` tells of the default dtype, which a user may change; name the dtype")
            return original(*args, **kwargs)

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, original)

        def __eq__(cls, other: object) -> bool:
            return other is cls or other is original

        def __hash__(cls) -> int:
            return hash(original)

    return Kind("finfo", (), {"__module__": "torch"})


def _identity_for(violations: Violations) -> Callable[[Any], int]:
    """`hash` of tensors, which are members of no set and keys of no dict: one that is given twice would count once."""

    def identity(tensor: Any) -> int:
        if is_torch(caller(1)):
            return id(tensor)
        raise violations.add("state", "a tensor is put in a set, or made a key, which tells whether it is another's; keep it in a list")

    return identity


@contextmanager
def pretended_cuda(target: Target, violations: Violations, cuda: str = "") -> Iterator[Training]:
    """Let tensors, `torch.cuda` and torch itself answer for the target while the context lasts, as in training where that is on.

    `cuda` is the version of CUDA that torch says it is built for, its own if not given.
    """
    training = Training(violations)
    answers: list[tuple[Any, str, object]] = [(torch.cuda, *answer) for answer in _answers(target, violations, training).items()]
    answers += [*training.answers(), *cuda_version.answers(cuda or cuda_version.installed())]
    answers += [(torch, "finfo", _limits_of(violations)), (torch.Tensor, "__hash__", _identity_for(violations))]
    answers += [*lasting.answers(violations), *modules.answers(training)]
    missing = object()
    saved = [(module, name, getattr(module, name, missing)) for module, name, _ in answers]
    for module, name, answer in answers:
        setattr(module, name, answer)
    try:
        with PretendedDevice(violations, training):
            yield training
    finally:
        for module, name, original in saved:
            if original is missing:
                delattr(module, name)
            else:
                setattr(module, name, original)

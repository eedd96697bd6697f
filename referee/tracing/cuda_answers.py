"""Answers of `torch.cuda` for the target's GPU. Runs in the trace worker only.

The inputs lie on the current GPU: the first one, or the second of two where `TorchAnswers` says so.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from typing import Any

import torch

from referee.target import Target
from referee.tracing.circumstances import TorchAnswers
from referee.tracing.violation import Violations


def check_device(device: Any, violations: Violations, torch_answers: TorchAnswers) -> None:
    """Check a device as torch takes it: None, a number, a string or a torch.device.

    Raises RuntimeError for the first GPU where the inputs lie on the second one, and Violation for
    any other device than a GPU of these.
    """
    if device is None:
        return
    try:
        wanted = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    except (RuntimeError, TypeError):
        raise violations.add("device", "not a device; use device=x.device") from None
    current = torch_answers.device.index
    if wanted.type != "cuda" or wanted.index not in (None, 0, current):
        raise violations.add(
            "device",
            f"`{wanted}` is used; everything must stay on the inputs' device (device=x.device)",
        )
    if wanted.index not in (None, current):
        raise RuntimeError(f"{wanted} is used where the inputs are on cuda:{current}")


_REFUSED = "Stream stream Event CUDAGraph graph ExternalStream mem_get_info".split()


class Stream:
    """A stream with the attributes of torch's own. Its handle is 0 for the null stream."""

    priority = 0
    device_index = 0

    def __init__(self, handle: int = 0) -> None:
        self.cuda_stream = self.stream_id = handle

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.cuda_stream == self.cuda_stream

    def __hash__(self) -> int:
        return self.cuda_stream

    def query(self) -> bool:
        """Nothing is ever queued, so that there is nothing to wait for either."""
        return True

    synchronize = query


class _CudaDeviceProperties:
    """Properties of the device, under the name of torch's own class."""

    def __init__(self, **found: Any) -> None:
        vars(self).update(found)

    def __getattr__(self, name: str) -> Any:
        raise self.__dict__["_violations"].add(
            "state", f"the device property `{name}` is not known in a trace"
        )


def answers_of(
    target: Target, violations: Violations, torch_answers: TorchAnswers
) -> dict[str, Any]:
    """Names of functions and classes of `torch.cuda`, and those that answer for the target."""
    found = target.properties
    major, minor = target.capability
    properties = _CudaDeviceProperties(
        **asdict(found),
        _violations=violations,
        major=major,
        minor=minor,
        warp_size=target.warp_size,
        max_threads_per_block=1024,
        gcnArchName=found.name,
        uuid="GPU-00000000-0000-0000-0000-000000000000",
        pci_bus_id=0,
        pci_device_id=0,
        pci_domain_id=0,
        is_integrated=0,
        is_multi_gpu_board=0,
    )

    def on(device: Any = None) -> AbstractContextManager[None]:
        check_device(device, violations, torch_answers)
        return nullcontext()

    def on_device(answer: Callable[[], Any]) -> Callable[..., Any]:
        def answered(device: Any = None) -> Any:
            if device != 0:
                check_device(device, violations, torch_answers)
            return answer()

        return answered

    def current_stream(device: Any = None) -> Stream:
        check_device(device, violations, torch_answers)
        return Stream(torch_answers.stream())

    def set_device(device: Any) -> None:
        raise violations.add(
            "state",
            "torch.cuda.set_device outlasts the call; write `with torch.cuda.device(x.device):`",
        )

    def refuse(name: str) -> Callable[..., Any]:
        def refused(*args: Any, **kwargs: Any) -> Any:
            raise violations.add(
                "launch_feature",
                f"torch.cuda.{name} is not supported: plans run on one stream, in order",
            )

        return refused

    return {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "init": lambda: None,
        "_lazy_init": lambda: None,
        "device_count": lambda: torch_answers.device.index + 1,
        "current_device": lambda: torch_answers.device.index,
        "set_device": set_device,
        "get_device_name": on_device(lambda: found.name),
        "get_device_capability": on_device(lambda: (major, minor)),
        "get_device_properties": on_device(lambda: properties),
        "is_bf16_supported": lambda *args, **kwargs: target.arch >= 80,
        "get_arch_list": lambda: [target.name],
        "device": on,
        "device_of": lambda obj: on(obj.get_device()),
        "synchronize": on_device(lambda: None),
        "manual_seed": lambda seed: None,
        "manual_seed_all": lambda seed: None,
        "current_stream": current_stream,
        "default_stream": on_device(lambda: Stream()),
        **{name: refuse(name) for name in _REFUSED},
    }

"""Triton's driver: a stand-in for a process without a GPU, and handles of the real one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from referee.target import Target


class StandInDriver:
    """An active driver for a process without a GPU, with the target's properties.

    `stream` and `device` give the handle of the current stream and the number of the current GPU.
    """

    def __init__(
        self,
        target: Target,
        stream: Callable[[], int],
        refuse: Callable[[str], BaseException],
        device: Callable[[], int] = lambda: 0,
    ) -> None:
        self._target, self._stream, self._refuse, self._device = target, stream, refuse, device
        self.utils = _Utilities(target, self.set_current_device)

    def get_current_device(self) -> int:
        """The number of the GPU that holds the tensors."""
        return self._device()

    def set_current_device(self, device: object) -> None:
        """Refuses any device except the first and the current one."""
        known = {number for one in (0, self._device()) for number in (str(one), f"cuda:{one}")}
        if device is not None and str(device) not in {*known, "cuda"}:
            raise self._refuse(
                f"Triton's driver is asked about device {str(device)[:40]}; ask about "
                "the one of the tensors"
            )

    def get_current_stream(self, device: int | None = None) -> int:
        """The handle of the current stream."""
        self.set_current_device(device)
        return self._stream()

    def get_current_target(self) -> Any:
        """The target, as Triton's GPUTarget."""
        from triton.backends.compiler import GPUTarget

        return GPUTarget(self._target.backend, self._target.arch, self._target.warp_size)

    def get_device_capability(self, device: int | None = None) -> tuple[int, int]:
        """Major and minor compute capability."""
        self.set_current_device(device)
        return self._target.capability

    def get_active_torch_device(self) -> Any:
        """The current GPU, as torch names it."""
        import torch

        return torch.device("cuda", self._device())

    def get_device_interface(self) -> Any:
        """torch.cuda."""
        import torch

        return torch.cuda


class _Utilities:
    def __init__(self, target: Target, check: Callable[[object], None]) -> None:
        self._target, self._check = target, check

    def get_device_properties(self, device: int = 0) -> dict[str, int]:
        """The dictionary that Triton's CUDA driver returns."""
        self._check(device)
        found = self._target.properties
        return {
            "max_shared_mem": found.shared_memory_per_block_optin,
            "max_num_regs": found.regs_per_multiprocessor,
            "multiprocessor_count": found.multi_processor_count,
            "warpSize": self._target.warp_size,
            "sm_clock_rate": found.clock_rate,
            "mem_clock_rate": found.memory_clock_rate,
            "mem_bus_width": found.memory_bus_width,
        }


@contextmanager
def active_driver(
    target: Target,
    stream: Callable[[], int] = lambda: 0,
    refuse: Callable[[str], BaseException] = ValueError,
    device: Callable[[], int] = lambda: 0,
) -> Iterator[StandInDriver]:
    """Makes a stand-in driver the active one, and restores the previous state at the end.

    `refuse` makes the exception for questions about another device.
    """
    from triton.runtime.driver import driver

    stand_in = StandInDriver(target, stream, refuse, device)
    before = driver.__dict__.copy()
    driver.set_active(stand_in)
    try:
        yield stand_in
    finally:
        driver.__dict__.clear()
        driver.__dict__.update(before)


def loaded_function(kernel: Any) -> int:
    """The driver's handle of a CompiledKernel that has been launched."""
    return int(kernel.function)


def stream_reader() -> Callable[[], int]:
    """A function that returns the handle of the current stream, as Triton reads it."""
    from triton.runtime.driver import driver

    return partial(driver.active.get_current_stream, driver.active.get_current_device())

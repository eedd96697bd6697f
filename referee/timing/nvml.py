"""NVIDIA's management library (the `nvidia-ml-py` package): the GPU that this process uses, the number
of GPUs, and the GPU's state during a measurement.

NVML is part of every NVIDIA driver. Starting it creates no CUDA context, and nothing here changes a
setting. Without NVML `Clocks.open` returns the reason, and the timing report carries that sentence.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pynvml


def first_visible() -> str:
    """The GPU that CUDA takes: the first number or UUID in CUDA_VISIBLE_DEVICES, else "0".

    CUDA and the driver count GPUs the same way only when all GPUs are equal, or with
    CUDA_DEVICE_ORDER=PCI_BUS_ID.
    """
    return os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip() or "0"


def all_hidden() -> bool:
    """True when CUDA_VISIBLE_DEVICES hides every GPU."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1")


def open_gpu(pci_bus_id: str | None = None) -> Any:
    """Start NVML and return its handle of one GPU: the one at this PCI address, or CUDA's.

    Raises pynvml.NVMLError without a driver, and for a GPU that the driver does not know.
    """
    pynvml.nvmlInit()
    if pci_bus_id is not None:
        return pynvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id)
    name = first_visible()
    if name.isdecimal():
        return pynvml.nvmlDeviceGetHandleByIndex(int(name))
    return pynvml.nvmlDeviceGetHandleByUUID(name)


def count_gpus() -> int | str:
    """Number of GPUs that the driver shows this process, or a sentence with the reason for none."""
    if all_hidden():
        return "CUDA_VISIBLE_DEVICES hides every GPU"
    try:
        pynvml.nvmlInit()
        return int(pynvml.nvmlDeviceGetCount())
    except pynvml.NVMLError_LibraryNotFound:
        return "no NVIDIA driver is installed (its NVML library is missing)"
    except pynvml.NVMLError as error:
        return f"the NVIDIA driver does not answer (NVML error {error.value})"


SLOWDOWNS = {
    pynvml.nvmlClocksThrottleReasonHwSlowdown: "hardware slowdown",
    pynvml.nvmlClocksThrottleReasonSwThermalSlowdown: "software thermal slowdown",
    pynvml.nvmlClocksThrottleReasonHwThermalSlowdown: "hardware thermal slowdown",
    pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown: "power brake",
}
POWER_CAP = pynvml.nvmlClocksThrottleReasonSwPowerCap


@dataclass(frozen=True)
class Sample:
    """One reading: clocks in MHz, degrees Celsius, watts, and the reasons for lowered clocks.

    A value is None where the device does not report it. A power cap is a separate field, because
    large GPUs run at their power cap all the time.
    """

    sm: int | None
    memory: int | None
    temperature: int | None
    power: float | None
    slowdowns: tuple[str, ...]
    power_capped: bool


@dataclass(frozen=True)
class Neighbour:
    """Another process that holds memory on the GPU."""

    pid: int
    name: str
    bytes: int | None


class Clocks:
    """An open NVML handle of one GPU. `Clocks.open` makes it."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    @staticmethod
    def open(pci_bus_id: str | None = None) -> Clocks | str:
        """The GPU at this PCI address (default: CUDA's), or a sentence with the reason for none."""
        lost = "clocks, temperature and other users of the GPU are not watched"
        try:
            return Clocks(open_gpu(pci_bus_id))
        except pynvml.NVMLError_LibraryNotFound:
            return f"the driver's NVML library is missing: {lost}"
        except pynvml.NVMLError as error:
            name = pci_bus_id or first_visible()
            return f"NVML does not open the GPU {name} (error {error.value}): {lost}"

    def sample(self) -> Sample:
        """One reading; it takes well under a millisecond."""
        reasons = self._number(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons) or 0
        power = self._number(pynvml.nvmlDeviceGetPowerUsage)
        return Sample(
            sm=self._number(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM),
            memory=self._number(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_MEM),
            temperature=self._number(pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU),
            power=None if power is None else power / 1000,
            slowdowns=tuple(name for bit, name in SLOWDOWNS.items() if reasons & bit),
            power_capped=bool(reasons & POWER_CAP),
        )

    def neighbours(self) -> tuple[Neighbour, ...]:
        """Every other process on this GPU that the driver shows this process."""
        try:
            found = pynvml.nvmlDeviceGetComputeRunningProcesses(self._handle)
        except pynvml.NVMLError:
            return ()
        others = [entry for entry in found if entry.pid != os.getpid()]
        return tuple(
            Neighbour(entry.pid, _name(entry.pid), entry.usedGpuMemory) for entry in others
        )

    def _number(self, query: Callable[..., int], *arguments: int) -> int | None:
        try:
            return int(query(self._handle, *arguments))
        except pynvml.NVMLError:
            return None


def _name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return "?"

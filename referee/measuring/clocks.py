"""What the GPU was doing while it was measured: clocks, temperature, power, throttling, and who else uses it.

Read through NVML (`libnvidia-ml`, part of every NVIDIA driver) by ctypes; opening it starts no CUDA context. Nothing
here changes a setting. Where NVML is missing `Clocks.open` says why, and the timing report carries that sentence.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass

LIBRARY = "libnvidia-ml.so.1"

# Enumerators of nvml.h.
CLOCK_SM, CLOCK_MEMORY, TEMPERATURE_GPU = 1, 2, 0
SUCCESS, INSUFFICIENT_SIZE = 0, 7
REASONS = {
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
POWER_CAP = 0x4


@dataclass(frozen=True)
class Sample:
    """One reading: clocks in MHz, degrees Celsius, watts; `slowdowns` are the reasons for which clocks are held down.

    None where the device does not report a value. A power cap is told apart: big chips work at theirs all the time.
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


class _ProcessInfo(ctypes.Structure):
    """nvmlProcessInfo_v2_t, which the v3 call fills."""

    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("instance", ctypes.c_uint), ("compute", ctypes.c_uint)]


class Clocks:
    """An open NVML handle on one GPU. Build it with `Clocks.open`."""

    def __init__(self, library: ctypes.CDLL, handle: ctypes.c_void_p) -> None:
        self._library, self._handle = library, handle

    @staticmethod
    def open(pci_bus_id: str | None = None) -> Clocks | str:
        """The GPU with this PCI address (or the one CUDA takes), or one sentence that says why it cannot be watched."""
        try:
            library = ctypes.CDLL(LIBRARY)
        except OSError:
            return f"{LIBRARY} is not here: clocks, temperature and other users of the GPU are not watched"
        if code := library.nvmlInit_v2():
            return f"NVML did not start (error {code}): clocks, temperature and other users of the GPU are not watched"
        handle = ctypes.c_void_p()
        if pci_bus_id is None:
            code = find(library, handle)
        else:
            code = library.nvmlDeviceGetHandleByPciBusId_v2(ctypes.c_char_p(pci_bus_id.encode()), ctypes.byref(handle))
        if code:
            return f"NVML does not know the GPU {pci_bus_id or first_visible()} (error {code}): its clocks are not watched"
        return Clocks(library, handle)

    def sample(self) -> Sample:
        """One reading, well under a millisecond."""
        reasons = self._number(ctypes.c_ulonglong, "nvmlDeviceGetCurrentClocksThrottleReasons") or 0
        power = self._number(ctypes.c_uint, "nvmlDeviceGetPowerUsage")
        return Sample(
            sm=self._number(ctypes.c_uint, "nvmlDeviceGetClockInfo", ctypes.c_uint(CLOCK_SM)),
            memory=self._number(ctypes.c_uint, "nvmlDeviceGetClockInfo", ctypes.c_uint(CLOCK_MEMORY)),
            temperature=self._number(ctypes.c_uint, "nvmlDeviceGetTemperature", ctypes.c_uint(TEMPERATURE_GPU)),
            power=None if power is None else power / 1000,
            slowdowns=tuple(name for bit, name in REASONS.items() if reasons & bit),
            power_capped=bool(reasons & POWER_CAP),
        )

    def neighbours(self) -> tuple[Neighbour, ...]:
        """Every other process on this GPU, as far as this one may see."""
        room = 64
        while True:
            count, table = ctypes.c_uint(room), (_ProcessInfo * room)()
            code = self._library.nvmlDeviceGetComputeRunningProcesses_v3(self._handle, ctypes.byref(count), table)
            if code != INSUFFICIENT_SIZE:
                break
            room *= 2
        if code != SUCCESS:
            return ()
        unknown = ctypes.c_ulonglong(-1).value
        others = [entry for entry in table[: count.value] if entry.pid != os.getpid()]
        return tuple(Neighbour(entry.pid, _name(entry.pid), None if entry.used == unknown else entry.used) for entry in others)

    def _number(self, kind: type[ctypes.c_uint] | type[ctypes.c_ulonglong], name: str, *arguments: object) -> int | None:
        value = kind()
        function = getattr(self._library, name, None)
        if function is None or function(self._handle, *arguments, ctypes.byref(value)) != SUCCESS:
            return None
        return int(value.value)


def first_visible() -> str:
    """The GPU that CUDA takes: what CUDA_VISIBLE_DEVICES names first, a number or a UUID; "0" where it names none.

    A number means the same to the driver only where CUDA counts as it does: among equal GPUs, or with
    CUDA_DEVICE_ORDER=PCI_BUS_ID.
    """
    return os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip() or "0"


def find(library: ctypes.CDLL, handle: ctypes.c_void_p) -> int:
    """Let `handle` be NVML's for the GPU that CUDA takes. Returns NVML's error code, 0 when it was found."""
    wanted = first_visible()
    if wanted.isdecimal():
        return int(library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(int(wanted)), ctypes.byref(handle)))
    return int(library.nvmlDeviceGetHandleByUUID(ctypes.c_char_p(wanted.encode()), ctypes.byref(handle)))


def count_gpus() -> int | str:
    """How many GPUs the driver has for this process, or one sentence that says why that cannot be asked."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1"):
        return "CUDA_VISIBLE_DEVICES hides every GPU"
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        return f"no NVIDIA driver is installed ({LIBRARY} is missing)"
    if code := library.nvmlInit_v2():
        return f"the NVIDIA driver does not answer (NVML error {code})"
    number = ctypes.c_uint()
    code = library.nvmlDeviceGetCount_v2(ctypes.byref(number))
    return f"the NVIDIA driver does not answer (NVML error {code})" if code else number.value


def _name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return "?"

"""The CUDA driver calls that replay a launch plan, through ctypes.

The module loads compiled kernels, compares a plan's parameters with those that a kernel declares,
and launches. Every return code is checked and named. It works in the current context of the calling
thread (torch's primary context in the replay worker); NVIDIA only. Nothing here interprets a plan.
"""

from __future__ import annotations

import ctypes
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

LIBRARY = "libcuda.so.1"

# Enumerators of cuda.h.
FUNC_MAX_THREADS, FUNC_STATIC_SHARED, FUNC_LOCAL_BYTES, FUNC_REGISTERS = 0, 1, 3, 4
FUNC_MAX_DYNAMIC_SHARED = 8
DEVICE_SHARED_OPTIN, DEVICE_PAGEABLE_ACCESS = 97, 88
LIMIT_PERSISTING_L2 = 6
INVALID_VALUE, UNSUPPORTED_LIMIT, NOT_READY = 1, 215, 600
ILLEGAL_ADDRESS, OUT_OF_RESOURCES, NOT_SUPPORTED = 700, 701, 801

SPIN_SECONDS, NAP_SECONDS = 0.02, 0.0005

# CUresult codes after which the context is lost and the process must end.
STICKY = {214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 999}

MEANING = {
    700: "the kernel read or wrote outside the memory it was given",
    701: "the kernel needs more registers, shared memory or threads than the chip has",
    715: "the kernel executed a trap or an illegal instruction",
    716: "the kernel accessed memory at an address that is not a multiple of the access size",
    719: "the kernel stopped with an exception",
}

SCALARS: dict[str, type[ctypes._SimpleCData[Any]]] = {
    "i1": ctypes.c_int8,
    "i8": ctypes.c_int8,
    "i16": ctypes.c_int16,
    "i32": ctypes.c_int32,
    "i64": ctypes.c_int64,
    "u1": ctypes.c_uint8,
    "u8": ctypes.c_uint8,
    "u16": ctypes.c_uint16,
    "u32": ctypes.c_uint32,
    "u64": ctypes.c_uint64,
    "fp32": ctypes.c_float,
    "f32": ctypes.c_float,
    "fp64": ctypes.c_double,
}

Packed: TypeAlias = "ctypes._SimpleCData[Any]"


class CudaError(RuntimeError):
    """A driver call failed. `code` is its CUresult, `sticky` says that the context is lost."""

    def __init__(self, call: str, code: int, name: str) -> None:
        meaning = MEANING.get(code)
        super().__init__(f"{call}: {name} ({code})" + (f": {meaning}" if meaning else ""))
        self.call, self.code, self.name, self.meaning = call, code, name, meaning
        self.sticky = code in STICKY


class ParameterError(ValueError):
    """The given parameters differ from those that the kernel declares."""


@dataclass(frozen=True)
class Kernel:
    """One kernel of a loaded module. `shared` is dynamic shared memory in bytes, `local` spills per
    thread.

    `parameters` are the sizes of its declared parameters in bytes; None if the driver is older than
    CUDA 12.4.
    """

    name: str
    module: int
    function: int
    num_warps: int
    shared: int
    registers: int
    local: int
    max_threads: int
    parameters: tuple[int, ...] | None


def pack(kind: str, value: int | float | None) -> Packed:
    """One kernel parameter as a C value. `kind` is Triton's signature type; None is a null pointer.

    Raises ParameterError for a kind that no launch can pass (tensor descriptors) or a value that
    does not fit.
    """
    if kind.startswith("*"):
        return ctypes.c_uint64(int(value or 0))
    if value is None:
        raise ParameterError(f"a parameter of type {kind} has no value")
    if kind in ("fp16", "bf16"):
        return ctypes.c_uint16(_half_bits(kind, float(value)))
    scalar = SCALARS.get(kind)
    if scalar is None:
        raise ParameterError(f"a parameter of type {kind} cannot be passed by a plan")
    if scalar in (ctypes.c_float, ctypes.c_double):
        return scalar(float(value))
    if value != int(value):
        raise ParameterError(f"{value!r} is not an integer, as type {kind} needs")
    packed = scalar(int(value))
    if int(packed.value) != int(value) and kind not in ("i1", "u1"):
        raise ParameterError(f"{value} does not fit type {kind}")
    return packed


def _half_bits(kind: str, value: float) -> int:
    try:
        word = struct.unpack("<I", struct.pack("<f", value))[0]
        if kind == "fp16":
            return int(struct.unpack("<H", struct.pack("<e", value))[0])
    except OverflowError:
        raise ParameterError(f"{value} does not fit type {kind}") from None
    return (word + 0x7FFF + ((word >> 16) & 1)) >> 16 if value == value else 0x7FC0


class Driver:
    """The driver library, loaded once. Raises OSError if there is none."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(LIBRARY)

    def call(self, name: str, *arguments: object) -> None:
        """Calls a driver function by name. Raises CudaError unless it returned CUDA_SUCCESS."""
        code = getattr(self.library, name)(*arguments)
        if code:
            raise CudaError(name, code, self.error_name(code))

    def error_name(self, code: int) -> str:
        """The name of a CUresult."""
        text = ctypes.c_char_p()
        self.library.cuGetErrorName(ctypes.c_int(code), ctypes.byref(text))
        return text.value.decode() if text.value else "unknown error"

    def device_attribute(self, attribute: int, device: int = 0) -> int:
        """The result of cuDeviceGetAttribute."""
        value = ctypes.c_int()
        self.call(
            "cuDeviceGetAttribute",
            ctypes.byref(value),
            ctypes.c_int(attribute),
            ctypes.c_int(device),
        )
        return value.value

    def pci_bus_id(self, device: int = 0) -> str:
        """The device's PCI address, which NVML uses too."""
        text = ctypes.create_string_buffer(32)
        self.call("cuDeviceGetPCIBusId", text, ctypes.c_int(32), ctypes.c_int(device))
        return text.value.decode()

    def version(self) -> int:
        """The CUDA version of the driver, e.g. 13000."""
        value = ctypes.c_int()
        self.call("cuDriverGetVersion", ctypes.byref(value))
        return value.value

    def synchronize(self) -> None:
        """Waits for all work on the default stream and its dependencies. Raises a kernel's
        CudaError.

        It polls, because a blocking wait took at least 2.4 ms on a virtual machine.
        """
        started = time.monotonic()
        while code := self.library.cuStreamQuery(None):
            if code != NOT_READY:
                raise CudaError("cuStreamQuery", code, self.error_name(code))
            if time.monotonic() - started > SPIN_SECONDS:
                time.sleep(NAP_SECONDS)

    def reset_persisting_l2(self) -> bool:
        """Clears the part of L2 that survives a flush. False if the chip has no such feature."""
        try:
            self.call("cuCtxSetLimit", ctypes.c_int(LIMIT_PERSISTING_L2), ctypes.c_size_t(0))
            self.call("cuCtxResetPersistingL2Cache")
        except CudaError as error:
            if error.code in (INVALID_VALUE, UNSUPPORTED_LIMIT, NOT_SUPPORTED):
                return False
            raise
        return True

    def load(self, image: bytes, name: str, *, num_warps: int, shared: int) -> Kernel:
        """Loads a cubin and finds kernel `name`. Raises CudaError if it is refused."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(image))
        try:
            self.call(
                "cuModuleGetFunction",
                ctypes.byref(function),
                module,
                ctypes.c_char_p(name.encode()),
            )
            most = self._function_attribute(FUNC_MAX_THREADS, function)
            if num_warps * 32 > most:
                raise CudaError(
                    "cuFuncGetAttribute",
                    OUT_OF_RESOURCES,
                    f"{num_warps} warps, and the kernel can run with {most // 32}",
                )
            if shared > 48 * 1024:
                room = self.device_attribute(DEVICE_SHARED_OPTIN) - self._function_attribute(
                    FUNC_STATIC_SHARED, function
                )
                if shared > room:
                    raise CudaError(
                        "cuFuncSetAttribute",
                        OUT_OF_RESOURCES,
                        f"{shared} bytes of shared memory, and the chip has {room}",
                    )
                self.call(
                    "cuFuncSetAttribute",
                    function,
                    ctypes.c_int(FUNC_MAX_DYNAMIC_SHARED),
                    ctypes.c_int(shared),
                )
            registers, local = (
                self._function_attribute(FUNC_REGISTERS, function),
                self._function_attribute(FUNC_LOCAL_BYTES, function),
            )
            parameters = self._parameter_sizes(function)
        except BaseException:
            self.call("cuModuleUnload", module)
            raise
        return Kernel(
            name,
            module.value or 0,
            function.value or 0,
            num_warps,
            shared,
            registers,
            local,
            most,
            parameters,
        )

    def unload(self, kernel: Kernel) -> None:
        """Unloads a kernel's module."""
        self.call("cuModuleUnload", ctypes.c_void_p(kernel.module))

    def prepare(
        self, kernel: Kernel, grid: tuple[int, int, int], parameters: Sequence[Packed]
    ) -> PreparedLaunch:
        """Packs one launch for repetition. Raises ParameterError for other parameters."""
        offered = tuple(ctypes.sizeof(parameter) for parameter in parameters)
        if kernel.parameters is not None and offered != kernel.parameters:
            raise ParameterError(
                f"{kernel.name} declares parameters of {kernel.parameters} bytes and "
                f"the plan passes {offered}"
            )
        return PreparedLaunch(self, kernel, grid, tuple(parameters))

    def _parameter_sizes(self, function: ctypes.c_void_p) -> tuple[int, ...] | None:
        if not hasattr(self.library, "cuFuncGetParamInfo"):
            return None
        sizes: list[int] = []
        offset, size = ctypes.c_size_t(), ctypes.c_size_t()
        while True:
            arguments = (
                function,
                ctypes.c_size_t(len(sizes)),
                ctypes.byref(offset),
                ctypes.byref(size),
            )
            code = self.library.cuFuncGetParamInfo(*arguments)
            if code == INVALID_VALUE:
                return tuple(sizes)
            if code:
                raise CudaError("cuFuncGetParamInfo", code, self.error_name(code))
            sizes.append(size.value)

    def _function_attribute(self, attribute: int, function: ctypes.c_void_p) -> int:
        value = ctypes.c_int()
        self.call("cuFuncGetAttribute", ctypes.byref(value), ctypes.c_int(attribute), function)
        return value.value


class PreparedLaunch:
    """A kernel, its grid and its packed parameters. A grid with a zero launches nothing."""

    def __init__(
        self,
        driver: Driver,
        kernel: Kernel,
        grid: tuple[int, int, int],
        parameters: tuple[Packed, ...],
    ) -> None:
        self._driver, self._parameters, self._empty = driver, parameters, 0 in grid
        addresses = [ctypes.addressof(parameter) for parameter in parameters]
        self._array = (ctypes.c_void_p * max(1, len(addresses)))(*addresses)
        block = (32 * kernel.num_warps, 1, 1)
        self._function = ctypes.c_void_p(kernel.function)
        self._shape = [ctypes.c_uint(size) for size in (*grid, *block, kernel.shared)]

    def launch(self, stream: int) -> None:
        """Queues the launch on a stream (its handle, 0 for the default one)."""
        if not self._empty:
            self._driver.call(
                "cuLaunchKernel",
                self._function,
                *self._shape,
                ctypes.c_void_p(stream),
                self._array,
                None,
            )

"""The device that a candidate is judged for: an architecture, and properties that host code may
read.

On a GPU, `Target.of_device` describes that GPU. Without one, `--target sm_89` means a typical card
of that architecture. NVIDIA only.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields
from typing import Any

MIB = 1024 * 1024
GIB = 1024 * MIB


@dataclass(frozen=True)
class DeviceProperties:
    """Sizes in bytes, clocks in kHz, names as in `torch.cuda.get_device_properties`."""

    name: str
    multi_processor_count: int
    total_memory: int
    shared_memory_per_block_optin: int
    shared_memory_per_multiprocessor: int
    max_threads_per_multi_processor: int
    L2_cache_size: int
    regs_per_multiprocessor: int = 65536
    shared_memory_per_block: int = 49152
    clock_rate: int = 1_500_000
    memory_clock_rate: int = 1_000_000
    memory_bus_width: int = 384


# One card for each architecture, from NVIDIA's tuning guides and product pages.
_TYPICAL = {
    75: DeviceProperties("Tesla T4", 40, 15 * GIB, 65536, 65536, 1024, 4 * MIB),
    80: DeviceProperties("NVIDIA A100-SXM4-80GB", 108, 80 * GIB, 166912, 167936, 2048, 40 * MIB),
    86: DeviceProperties("NVIDIA GeForce RTX 3090", 82, 24 * GIB, 101376, 102400, 1536, 6 * MIB),
    87: DeviceProperties("Orin", 16, 32 * GIB, 166912, 167936, 1536, 4 * MIB),
    89: DeviceProperties("NVIDIA GeForce RTX 4090", 128, 24 * GIB, 101376, 102400, 1536, 72 * MIB),
    90: DeviceProperties("NVIDIA H200", 132, 139 * GIB, 232448, 233472, 2048, 50 * MIB),
    100: DeviceProperties("NVIDIA B200", 148, 178 * GIB, 232448, 233472, 2048, 126 * MIB),
    103: DeviceProperties("NVIDIA B300", 148, 267 * GIB, 232448, 233472, 2048, 126 * MIB),
    120: DeviceProperties("NVIDIA GeForce RTX 5090", 170, 32 * GIB, 101376, 102400, 1536, 96 * MIB),
    121: DeviceProperties("NVIDIA GB10", 48, 119 * GIB, 101376, 102400, 1536, 24 * MIB),
}


_CLOCKS = ("clock_rate", "memory_clock_rate", "memory_bus_width")


class UnknownTarget(ValueError):
    """Triton cannot compile for this target; the message lists the known ones."""


@dataclass(frozen=True)
class Target:
    """The compilation target. `arch` is 90 for 9.0; `device` None means a typical card."""

    backend: str = "cuda"
    arch: int = 90
    warp_size: int = 32
    device: DeviceProperties | None = None

    @property
    def name(self) -> str:
        """The architecture as "sm_90"."""
        return f"sm_{self.arch}"

    @property
    def capability(self) -> tuple[int, int]:
        """Major and minor compute capability."""
        return divmod(self.arch, 10)

    @property
    def properties(self) -> DeviceProperties:
        """The device's own properties, or those of a typical card of the architecture."""
        return (
            self.device
            or _TYPICAL[max(arch for arch in _TYPICAL if arch <= max(self.arch, min(_TYPICAL)))]
        )

    @staticmethod
    def parse(name: str) -> Target:
        """The target named "sm_89". Raises UnknownTarget."""
        match = re.fullmatch(r"sm_?(\d{2,3})a?", name)
        if match is None or int(match[1]) not in _TYPICAL:
            known = ", ".join(f"sm_{arch}" for arch in _TYPICAL)
            raise UnknownTarget(f"unknown target {name!r}; use one of {known}")
        return Target(arch=int(match[1]))

    def to_json(self) -> dict[str, Any]:
        """The target as plain data."""
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> Target:
        """The inverse of `to_json`."""
        device = data["device"]
        return Target(**{**data, "device": device and DeviceProperties(**device)})

    @staticmethod
    def of_device(index: int = 0) -> Target:
        """The CUDA device `index` of this process. Raises torch's errors without one."""
        import torch

        found: Any = torch.cuda.get_device_properties(index)
        # Some versions of torch do not show the clocks.
        usual = {name: getattr(DeviceProperties, name) for name in _CLOCKS}
        given = {
            field.name: getattr(found, field.name, usual[field.name])
            if field.name in usual
            else getattr(found, field.name)
            for field in fields(DeviceProperties)
        }
        device = DeviceProperties(**given)
        return Target(arch=found.major * 10 + found.minor, warp_size=found.warp_size, device=device)

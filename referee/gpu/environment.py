"""The environment of a measurement as plain data: device, driver and library versions."""

from __future__ import annotations

import platform
import sys
from typing import Any

import torch

from referee.replaying.driver import DEVICE_PAGEABLE_ACCESS, CudaError, Driver
from referee.target import Target
from referee.versions import describe_triton, rerouting


def describe_device(driver: Driver | None) -> dict[str, Any]:
    """The environment as JSON; without a driver only the versions and the processor are known."""
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        **describe_triton(),
        "platform": f"{platform.system()} {platform.release()}",
        "executable": sys.executable,
        "device": platform.processor() or platform.machine(),
    }
    if driver is None:
        return found
    properties = torch.cuda.get_device_properties(0)
    return found | {
        "device": properties.name,
        "target": _target(),
        "arch": properties.major * 10 + properties.minor,
        "multiprocessors": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
        "l2_bytes": properties.L2_cache_size,
        "cuda": str(torch.version.cuda),
        "cuda_driver": driver.version(),
        "pci": driver.pci_bus_id(),
        "rerouting": rerouting(),
        # A kernel's stray pointer could reach host memory if this is true.
        "pageable_access": _pageable(driver),
    }


def _target() -> dict[str, Any] | None:
    try:
        return Target.of_device().to_json()
    except AttributeError:
        # This torch names device properties in another way; the judge then compiles for a typical
        # card.
        return None


def _pageable(driver: Driver) -> bool | None:
    try:
        return bool(driver.device_attribute(DEVICE_PAGEABLE_ACCESS))
    except CudaError:
        return None

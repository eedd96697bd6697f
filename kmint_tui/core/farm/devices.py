"""The GPUs of this host, and the reading of `--gpus`. Neither torch nor CUDA is loaded."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kmint_tui.errors import EnvironmentUnfit, UsageError

CPU = "cpu"
"""The name of the device where no GPU is used."""
_FIX = "give `all`, a number of cards such as 2, or several cards such as 0,2"


@dataclass(frozen=True)
class Device:
    """One device: its place among the visible ones, its product name, and CUDA's name for it.

    `visible` is the value of CUDA_VISIBLE_DEVICES that shows this device alone.
    """

    index: int
    name: str
    visible: str

    @property
    def title(self) -> str:
        """`GPU 0`, or `cpu 0`."""
        return f"{CPU if self.name == CPU else 'GPU'} {self.index}"


Wanted = Literal["all"] | int | tuple[int, ...]
"""All cards, the first N, or the cards of these numbers."""


def parse_gpus(text: str) -> Wanted:
    """The meaning of `--gpus`. Raises UsageError for any other text."""
    if text == "all":
        return "all"
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() and len(part) <= 6 for part in parts):
        raise UsageError(f"--gpus {text[:40]!r} names no cards", fix=_FIX)
    numbers = tuple(int(part) for part in parts)
    if len(set(numbers)) < len(numbers):
        raise UsageError(f"--gpus {text[:40]} names a card twice", fix=_FIX)
    if len(numbers) > 1:
        return numbers
    if numbers[0] == 0:
        fix = "give the number of cards; CUDA_VISIBLE_DEVICES=0 chooses one card"
        raise UsageError("--gpus 0 asks for no card", fix=fix)
    return numbers[0]


def chosen(wanted: Wanted, present: Sequence[Device]) -> tuple[Device, ...]:
    """The wanted devices, all of one kind.

    Raises EnvironmentUnfit for a card that is not there, and for cards of several kinds.
    """
    if isinstance(wanted, tuple):
        known = {device.index: device for device in present}
        if missing := [number for number in wanted if number not in known]:
            raise _absent(f"GPU {missing[0]} is not there", present)
        found = tuple(known[number] for number in wanted)
    else:
        count = len(present) if wanted == "all" else wanted
        if count > len(present):
            raise _absent(f"{count} GPUs are not there", present)
        found = tuple(present[:count])
    kinds: dict[str, list[str]] = {}
    for device in found:
        kinds.setdefault(device.name, []).append(str(device.index))
    if len(kinds) > 1:
        said = "; ".join(f"{','.join(numbers)} {name}" for name, numbers in kinds.items())
        raise EnvironmentUnfit(
            f"these GPUs are of different kinds: {said}",
            title="kinds are not mixed",
            fix="name cards of one kind, for example --gpus 0,1",
        )
    return found


def gpus() -> tuple[Device, ...]:
    """The GPUs that this process may use, in the driver's order.

    Raises EnvironmentUnfit where there is none.
    """
    from referee.gpu.replayer import Replayer

    if (reason := Replayer.available()) is not None:
        raise EnvironmentUnfit(
            f"there is no GPU here: {reason}", title="no GPU", fix="leave --gpus out"
        )
    import pynvml

    from referee.timing.nvml import open_gpu

    try:
        open_gpu()
        given = [part.strip() for part in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
        names = [part for part in given if part] or [
            str(number) for number in range(pynvml.nvmlDeviceGetCount())
        ]
        found = []
        for index, name in enumerate(names):
            handle = (
                pynvml.nvmlDeviceGetHandleByIndex(int(name))
                if name.isdecimal()
                else pynvml.nvmlDeviceGetHandleByUUID(name)
            )
            product, uuid = pynvml.nvmlDeviceGetName(handle), pynvml.nvmlDeviceGetUUID(handle)
            found.append(Device(index, str(product), str(uuid)))
        return tuple(found)
    except pynvml.NVMLError as error:
        raise EnvironmentUnfit(
            f"the NVIDIA driver does not describe its GPUs (NVML error {error.value})",
            title="no GPU",
            fix="run nvidia-smi to see the driver's own report",
        ) from error


def _absent(what: str, present: Sequence[Device]) -> EnvironmentUnfit:
    here = ", ".join(f"{device.index} {device.name}" for device in present)
    return EnvironmentUnfit(f"{what}: this host has {here}", title="no such GPU", fix=_FIX)

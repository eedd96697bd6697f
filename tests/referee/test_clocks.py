"""Which GPU is asked about where there are several: the one that CUDA takes."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from referee.measuring import clocks


class Driver:
    """Answers like NVML, and keeps what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[int | bytes] = []

    def nvmlInit_v2(self) -> int:
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: ctypes.c_uint, handle: object) -> int:
        self.asked.append(index.value)
        return 0

    def nvmlDeviceGetHandleByUUID(self, name: ctypes.c_char_p, handle: object) -> int:
        assert name.value is not None
        self.asked.append(name.value)
        return 6

    def nvmlDeviceGetHandleByPciBusId_v2(self, name: ctypes.c_char_p, handle: object) -> int:
        assert name.value is not None
        self.asked.append(name.value)
        return 0


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    loaded: Any = made
    monkeypatch.setattr(ctypes, "CDLL", lambda name: loaded)
    return made


@pytest.mark.parametrize(
    ("variable", "asked"),
    [(None, 0), ("", 0), ("0", 0), ("3", 3), (" 2 , 0", 2), ("GPU-8932f937-d72c", b"GPU-8932f937-d72c")],
)
def test_the_gpu_that_cuda_takes(driver: Driver, monkeypatch: pytest.MonkeyPatch, variable: str | None, asked: int | bytes) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if variable is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    opened = clocks.Clocks.open()
    assert driver.asked == [asked]
    assert isinstance(opened, clocks.Clocks) == isinstance(asked, int)
    if isinstance(opened, str):
        assert "GPU-8932f937-d72c (error 6)" in opened


def test_an_address_is_taken_as_it_is(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    assert isinstance(clocks.Clocks.open("0000:19:00.0"), clocks.Clocks)
    assert driver.asked == [b"0000:19:00.0"]

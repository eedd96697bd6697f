"""The GPU that NVML opens on a machine with several: the one that CUDA takes."""

from __future__ import annotations

import pynvml
import pytest

from referee.timing import nvml


class Driver:
    """Answers like pynvml, and records each GPU that it is asked for."""

    def __init__(self) -> None:
        self.asked: list[int | str] = []

    def by_index(self, index: int) -> object:
        self.asked.append(index)
        return object()

    def by_uuid(self, name: str) -> object:
        self.asked.append(name)
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)

    def by_address(self, name: str) -> object:
        self.asked.append(name)
        return object()


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", made.by_index)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", made.by_uuid)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByPciBusId", made.by_address)
    return made


@pytest.mark.parametrize(
    ("variable", "asked"),
    [
        (None, 0),
        ("", 0),
        ("0", 0),
        ("3", 3),
        (" 2 , 0", 2),
        ("GPU-8932f937-d72c", "GPU-8932f937-d72c"),
    ],
)
def test_the_gpu_that_cuda_takes(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, variable: str | None, asked: int | str
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if variable is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    opened = nvml.Clocks.open()
    assert driver.asked == [asked]
    assert isinstance(opened, nvml.Clocks) == isinstance(asked, int)
    if isinstance(opened, str):
        assert "GPU-8932f937-d72c (error 6)" in opened


def test_an_address_is_taken_as_it_is(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    assert isinstance(nvml.Clocks.open("0000:19:00.0"), nvml.Clocks)
    assert driver.asked == ["0000:19:00.0"]


def test_a_machine_without_a_driver(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def missing() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", missing)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    opened = nvml.Clocks.open()
    assert isinstance(opened, str) and "NVML library is missing" in opened
    assert nvml.count_gpus() == "no NVIDIA driver is installed (its NVML library is missing)"
    assert capfd.readouterr() == ("", "")


def test_readings_that_a_device_lacks_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*arguments: object) -> int:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetPowerUsage", unsupported)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetTemperature", lambda *_: 41)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetClockInfo", lambda handle, kind: 1980 + kind)
    reasons = pynvml.nvmlClocksThrottleReasonHwSlowdown | pynvml.nvmlClocksThrottleReasonSwPowerCap
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCurrentClocksThrottleReasons", lambda _: reasons)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetComputeRunningProcesses", unsupported)
    watched = nvml.Clocks(object())
    assert watched.sample() == nvml.Sample(
        sm=1980 + pynvml.NVML_CLOCK_SM,
        memory=1980 + pynvml.NVML_CLOCK_MEM,
        temperature=41,
        power=None,
        slowdowns=("hardware slowdown",),
        power_capped=True,
    )
    assert watched.neighbours() == ()

"""Inductor's autotuner measures with kmint's clock, and with its own where that one cannot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from referee.ops.task import load
from referee.timing import baselines
from referee.timing.baselines import CACHE_VARIABLE
from referee.timing.rounds import Flush
from referee.timing.tuner_clock import change, device_clock, tune_by

OWN = 7.0


def broken() -> None:
    raise RuntimeError("too many registers")


@pytest.fixture
def benchmarker(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    return SimpleNamespace(benchmark=lambda fn, *given, **options: OWN)


@pytest.mark.parametrize(
    ("call", "given", "device", "micros", "expected"),
    [
        (int, (), "cuda", 33.0, 0.033),
        (int, (), "cpu", 33.0, OWN),
        (int, ((), {}), "cuda", 33.0, OWN),
        (broken, (), "cuda", 33.0, OWN),
        (int, (), "cuda", None, OWN),
    ],
    ids=["measured", "another device", "with arguments", "does not run", "no sample"],
)
def test_the_clock_counts_where_it_can_measure(
    benchmarker: Any,
    call: Callable[[], object],
    given: tuple[object, ...],
    device: str,
    micros: float | None,
    expected: float,
) -> None:
    change(benchmarker, lambda call: micros)
    assert benchmarker.benchmark(call, *given, device=device, rep=40) == pytest.approx(expected)


def test_a_later_clock_takes_the_place_of_the_first(benchmarker: Any) -> None:
    change(benchmarker, lambda call: 1.0)
    change(benchmarker, lambda call: None)
    assert benchmarker.benchmark(int, device="cuda") == OWN


def test_inductor_has_the_object(monkeypatch: pytest.MonkeyPatch, benchmarker: Any) -> None:
    from torch._inductor.runtime import benchmarking, triton_heuristics

    assert vars(triton_heuristics)["benchmarker"] is benchmarking.benchmarker
    monkeypatch.setattr(benchmarking.benchmarker, "benchmark", benchmarker.benchmark, raising=False)
    tune_by(lambda call: 5.0)
    assert benchmarking.benchmarker.benchmark(int, device="cuda") == pytest.approx(0.005)


@pytest.mark.gpu
def test_an_autotuned_baseline_is_tuned_by_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    flush = Flush(torch.cuda.get_device_properties(0).L2_cache_size)
    clock, found = device_clock(lambda: flush), list[float | None]()

    def noted(call: Callable[[], object]) -> float | None:
        found.append(clock(call))
        return found[-1]

    tune_by(noted)
    task = load("rmsnorm", "gpu")
    mode = "max-autotune-no-cudagraphs"
    inputs = [
        torch.randn(512, 4096, device="cuda"),
        torch.randn(4096, device="cuda"),
    ]
    baselines.compiled(task, mode)(*inputs)
    assert len(found) > 1 and all(one is not None and one > 0 for one in found)

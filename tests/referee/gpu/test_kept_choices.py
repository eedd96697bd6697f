"""Inductor's stored choices: a kernel that was tuned is not tuned again in the next process."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bench.handmade import bench_cell
from referee.ops.task import load
from referee.timing import baselines
from referee.timing.baselines import CACHE_VARIABLE, BaselineStore
from referee.timing.kept_choices import SETTLED, change, keep_choices
from referee.timing.measurement import AUTOTUNE
from referee.timing.rounds import Flush


def config(block: int, *, settled: bool = False) -> SimpleNamespace:
    found = SimpleNamespace(block=block)
    return SimpleNamespace(**vars(found), **{SETTLED: True}) if settled else found


def tuners(of_torch: Callable[[Any], None]) -> Any:
    """A class of kernels as Inductor's, whose own look at the stored choice is `of_torch`."""

    class Tuner:
        filename, inductor_meta = "kernel.py", {"coordinate_descent_tuning": True}

        def __init__(self, *blocks: int) -> None:
            self.compile_results = [SimpleNamespace(config=config(block)) for block in blocks]
            self.fn = SimpleNamespace(fn=None)

        def recheck_autotune_cache(self, reload_kernel_from_src: Callable[[], Any]) -> None:
            of_torch(self)

        def _precompile_config(self, wanted: Any) -> Any:
            assert self.fn.fn == "loaded"
            return SimpleNamespace(config=wanted)

    return Tuner


def loaded() -> Any:
    return SimpleNamespace(fn=SimpleNamespace(fn="loaded"))


def looked_up(best: Any) -> Callable[..., Any]:
    return lambda configs, filename, meta: ([best] if best else list(configs), None, {})


def first_alone(tuner: Any) -> None:
    """torch 2.11 keeps the configuration, but not the mark."""
    del tuner.compile_results[1:]


@pytest.mark.parametrize("blocks", [(64,), (64, 128)])
@pytest.mark.parametrize("best", [64, 256])
def test_a_stored_choice_is_taken_with_its_mark(blocks: tuple[int, ...], best: int) -> None:
    kernels = tuners(first_alone)
    change(kernels, looked_up(config(best, settled=True)), lambda one: one.block)
    tuner = kernels(*blocks)
    tuner.recheck_autotune_cache(loaded)
    (kept,) = tuner.compile_results
    assert kept.config.block == best and getattr(kept.config, SETTLED)


@pytest.mark.parametrize("best", [None, config(64)])
def test_a_kernel_without_a_settled_choice_is_tuned(best: Any) -> None:
    kernels = tuners(lambda tuner: None)
    change(kernels, looked_up(best), lambda one: one.block)
    tuner = kernels(64, 128)
    tuner.recheck_autotune_cache(loaded)
    assert [one.config.block for one in tuner.compile_results] == [64, 128]
    assert not any(hasattr(one.config, SETTLED) for one in tuner.compile_results)


def test_another_inductor_is_left_as_it_is() -> None:
    def fails(*_: object) -> Any:
        raise TypeError("other arguments")

    kernels = tuners(lambda tuner: None)
    change(kernels, fails, lambda one: one.block)
    changed = kernels.recheck_autotune_cache
    change(kernels, fails, lambda one: one.block)
    assert kernels.recheck_autotune_cache is changed
    tuner = kernels(64, 128)
    tuner.recheck_autotune_cache(loaded)
    assert [one.config.block for one in tuner.compile_results] == [64, 128]


def test_inductor_here_has_the_parts_that_are_changed() -> None:
    from torch._inductor.runtime import triton_heuristics

    keep_choices()
    tuners = triton_heuristics.CachingAutotuner
    assert getattr(tuners.recheck_autotune_cache, "keeps_choices", False)
    stored = inspect.signature(triton_heuristics.check_autotune_cache)
    assert list(stored.parameters)[:3] == ["configs", "filename", "inductor_meta"]
    assert hasattr(tuners, "_precompile_config")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_the_next_load_tunes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second load from the folder, with an empty memory, as in the next process."""
    from torch._dynamo.utils import counters
    from torch._inductor.codecache import PyCodeCache

    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "inductor"))
    flush = Flush(torch.cuda.get_device_properties(0).L2_cache_size)
    tuned = []
    for _ in range(2):
        torch._dynamo.reset()
        PyCodeCache.cache_clear()
        counters.clear()
        store = BaselineStore(lambda text, seconds: None, lambda: flush)
        store.get(load("softmax", "gpu"), "softmax", bench_cell("softmax"))
        tuned.append(counters["inductor"]["coordesc_tuning_bench"])
    assert baselines.MODES[AUTOTUNE] and tuned[0] > 0 and tuned[1] == 0

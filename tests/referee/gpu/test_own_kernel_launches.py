"""Later launches of a compiled kernel: what they pass, and how a dead context is reported."""

from __future__ import annotations

import ctypes
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton

from referee.replaying import own_kernel
from referee.replaying.own_kernel import OwnKernel, Pointer, Repeated, Series
from referee.target import Target
from referee.timing import fingerprint
from referee.timing.streaming import SHAPES, _launch, _stream
from referee.triton_compat.stand_in_driver import active_driver
from tests.referee.gpu.test_own_kernel import WHOLE


class Launches:
    """Stands in for the driver's cuLaunchKernel: reads what a launch passes, `widths` bytes of each
    parameter.
    """

    def __init__(self, widths: tuple[int, ...], code: int = 0) -> None:
        self._widths, self._code = widths, code
        self.seen: list[tuple[Any, ...]] = []

    def __call__(self, *given: Any) -> int:
        function, *shape, stream, parameters, extra = given
        kinds = [ctypes.c_void_p, *[ctypes.c_uint] * 7, ctypes.c_void_p]
        assert [type(one) for one in (function, *shape, stream)] == kinds
        assert len(parameters) == len(self._widths) and extra is None
        passed = [
            ctypes.string_at(at, width) for at, width in zip(parameters, self._widths, strict=True)
        ]
        numbers = [int.from_bytes(each, "little", signed=True) for each in passed]
        self.seen.append((function.value, tuple(one.value for one in shape), stream.value, numbers))
        return self._code


def warmed_up(*arguments: Any) -> Any:
    """The referee's kernel for fingerprints, compiled by Triton's own way to a launch, for a chip
    that is not here, and not loaded.
    """
    with active_driver(Target.parse("sm_90")):
        compiled = fingerprint._add_up.run(
            *arguments, **fingerprint.CONSTANTS, STRIDE=1, num_warps=8, grid=(1,), warmup=True
        )
    compiled.function = 1234
    return compiled


@pytest.fixture
def adding(monkeypatch: pytest.MonkeyPatch) -> Any:
    """As it is compiled for one tensor."""
    monkeypatch.setattr(own_kernel, "stream_reader", lambda: lambda: 77)
    return warmed_up(
        Pointer(4096, torch.int64), None, 1, 2**40, 2**62, Pointer(32, torch.int64), -(2**62)
    )


def launched(repeated: Repeated, grid: tuple[int, ...], *arguments: Any) -> None:
    repeated.change(grid, arguments)
    repeated.queue()


def test_a_later_launch_leaves_out_compiled_in_arguments(
    adding: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Launches((8, 8, 8, 8, 8, 8, 8))
    monkeypatch.setattr(own_kernel, "launcher", lambda: driver)
    repeated = Repeated(adding, 7)
    shared = adding.metadata.shared
    launched(repeated, (5, 2), Pointer(4096, torch.int64), None, 1, 2**40, -3, WHOLE, 2**62)
    launched(
        repeated,
        (1,),
        Pointer(64, torch.int64),
        None,
        1,
        5,
        2**63 - 1,
        Pointer(32, torch.int64),
        -(2**63),
    )
    assert driver.seen == [
        (1234, (5, 2, 1, 256, 1, 1, shared), 77, [4096, 2**40, -3, WHOLE.data_ptr(), 2**62, 0, 0]),
        (1234, (1, 1, 1, 256, 1, 1, shared), 77, [64, 5, 2**63 - 1, 32, -(2**63), 0, 0]),
    ]
    driver = Launches((8, 8, 4, 4, 8, 8, 8, 8))
    several = warmed_up(
        Pointer(4096, torch.int64), Pointer(64, torch.int64), 40, 7, 2**62, WHOLE, None
    )
    launched(
        Repeated(several, 7),
        (3,),
        Pointer(16, torch.int64),
        Pointer(8, torch.int64),
        24,
        9,
        5,
        Pointer(80, torch.int64),
        None,
    )
    assert [passed for *_, passed in driver.seen] == [[16, 8, 24, 9, 5, 80, 0, 0]]


def adding_up(compiled: Any) -> tuple[OwnKernel, list[tuple[Any, ...]]]:
    """The kernel whose every first launch is `compiled`, and grid and arguments of those launches."""
    first: list[tuple[Any, ...]] = []

    class Function:
        def __getitem__(self, grid: tuple[int, ...]) -> Any:
            def launch(*arguments: Any, **_: int) -> Any:
                first.append((grid, arguments))
                return compiled

            return launch

    return OwnKernel(Function(), warps=8, any_number=(4, 6)), first


def series(kernel: OwnKernel, grid: tuple[int, ...] = (5,)) -> Series:
    arguments = (Pointer(16, torch.int64), None, 1, 2**40, 2**62, Pointer(16, torch.int64), 2**62)
    return Series(kernel, grid, arguments, fingerprint.CONSTANTS, (0, 4, 5, 6))


def test_the_launches_of_a_series_differ_in_what_they_are_given(
    adding: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of one kernel do not change each other's, nor do launches that are no series'."""
    driver = Launches((8, 8, 8, 8, 8, 8, 8))
    monkeypatch.setattr(own_kernel, "launcher", lambda: driver)
    kernel, first = adding_up(adding)
    one, other = series(kernel), series(kernel, (6, 2))
    one.launch(256, 2**61 + 1, 512, -5 - 2**40)
    assert first == [
        (
            (5,),
            (
                Pointer(256, torch.int64),
                None,
                1,
                2**40,
                2**61 + 1,
                Pointer(512, torch.int64),
                -5 - 2**40,
            ),
        )
    ]
    other.launch(32, 2**61, 48, 2**50)
    one.launch(64, 3, 80, -9)
    kernel.launch(
        (9,),
        (Pointer(96, torch.int64), None, 1, 2**41, 2**60, Pointer(112, torch.int64), 2**59),
        fingerprint.CONSTANTS,
    )
    other.launch(128, 4, 144, 2)
    one.launch(160, 2**63 - 1, 176, -(2**63))
    assert len(first) == 1
    assert [(shape[:3], passed[:5]) for _, shape, _, passed in driver.seen] == [
        ((6, 2, 1), [32, 2**40, 2**61, 48, 2**50]),
        ((5, 1, 1), [64, 2**40, 3, 80, -9]),
        ((9, 1, 1), [96, 2**41, 2**60, 112, 2**59]),
        ((6, 2, 1), [128, 2**40, 4, 144, 2]),
        ((5, 1, 1), [160, 2**40, 2**63 - 1, 176, -(2**63)]),
    ]


def test_a_series_with_a_small_first_number_is_not_all_small(
    adding: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Triton compiles for 32 bits where a number fits them, and the next one need not."""
    monkeypatch.setattr(own_kernel, "launcher", lambda: Launches((8, 8, 8, 8, 8, 8, 8)))
    kernel, first = adding_up(adding)
    one = series(kernel)
    for key in (7, 2**61, 2**60):
        one.launch(256, key, 512, 2**50)
    assert [arguments[4] for _, arguments in first] == [7, 2**61]


def test_a_launch_of_a_series_needs_every_number_that_changes(
    adding: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Launches((8, 8, 8, 8, 8, 8, 8))
    monkeypatch.setattr(own_kernel, "launcher", lambda: driver)
    one = series(adding_up(adding)[0])
    for _ in range(2):
        with pytest.raises(ValueError, match="zip"):
            one.launch(256, 2**61, 512)
        one.launch(256, 2**61, 512, 2**50)
    assert len(driver.seen) == 1


def test_every_launch_asks_for_the_stream_of_now(
    adding: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, now = Launches((8, 8, 8, 8, 8, 8, 8)), [77]
    monkeypatch.setattr(own_kernel, "launcher", lambda: driver)
    monkeypatch.setattr(own_kernel, "stream_reader", lambda: lambda: now[-1])
    kernel = adding_up(adding)[0]
    one = series(kernel)
    for stream in (5, 78, 79):
        now.append(stream)
        one.launch(256, 2**61, 512, 2**50)
        kernel.launch(
            (9,),
            (Pointer(96, torch.int64), None, 1, 2**41, 2**60, Pointer(112, torch.int64), 2**59),
            fingerprint.CONSTANTS,
        )
    assert [stream for _, _, stream, _ in driver.seen] == [5, 78, 78, 79, 79]


def test_a_launch_has_the_warps_that_its_kernel_was_compiled_for(
    adding: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Launches((8, 8, 8, 8, 8, 8, 8))
    monkeypatch.setattr(own_kernel, "launcher", lambda: driver)
    with active_driver(Target.parse("sm_90")):
        words = (
            Pointer(4096, torch.int64),
            None,
            1,
            2**40,
            2**62,
            Pointer(32, torch.int64),
            -(2**62),
        )
        fewer = fingerprint._add_up.run(
            *words, **fingerprint.CONSTANTS, STRIDE=1, num_warps=2, grid=(1,), warmup=True
        )
    fewer.function = 4321
    for compiled in (adding, fewer):
        launched(Repeated(compiled, 7), (1,), *words)
    assert [(function, shape[3]) for function, shape, _, _ in driver.seen] == [
        (1234, 256),
        (4321, 64),
    ]


@pytest.mark.parametrize(
    ("code", "becomes"),
    [(700, torch.AcceleratorError), (719, torch.AcceleratorError), (2, RuntimeError)],
)
def test_a_later_launch_in_a_dead_context_fails_as_in_torch(
    code: int, becomes: type[Exception], adding: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error's type makes it the fault of that kernel, and not of the referee."""
    monkeypatch.setattr(own_kernel, "launcher", lambda: Launches((8, 8, 8, 8, 8, 8, 8), code))
    monkeypatch.setattr(
        own_kernel,
        "Driver",
        lambda: SimpleNamespace(error_name=lambda code: "CUDA_ERROR_OF_THIS_TEST"),
    )
    with pytest.raises(RuntimeError, match=rf"CUDA_ERROR_OF_THIS_TEST \({code}\)") as caught:
        launched(Repeated(adding, 7), (1,), WHOLE, None, 1, 5, 6, WHOLE, 7)
    assert type(caught.value) is becomes


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_first_launch_and_later_ones_do_the_same() -> None:
    for (block, warps), read in ((SHAPES[0], 3 * 4099), (SHAPES[1], 4096)):
        source = torch.randint(-1000, 1000, (read,), dtype=torch.int32, device="cuda")
        written = 4099 if read % 4099 == 0 else 4096
        expected = source.view(-1, written).sum(0)
        for _ in range(3):
            target = torch.zeros(written, dtype=torch.int32, device="cuda")
            _launch(source, target, block, warps)
            assert torch.equal(target, expected.to(torch.int32))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("op", ["rmsnorm", "softmax"])
def test_timing_a_prepared_cell_compiles_nothing(
    op: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bench.handmade import bench_cell, direct
    from bench.smoke import Smoke
    from referee.ops.task import load
    from referee.timing.baselines import Baselines
    from referee.timing.measurement import COMPILE
    from referee.timing.own_kernels import compile_own

    with torch.enable_grad():
        # It turns gradients off for its process.
        smoke = Smoke(tmp_path)
    compile_own(load(op, "gpu"), bench_cell(op))
    names: list[str] = []
    monkeypatch.setattr(
        triton.knobs.runtime,
        "jit_post_compile_hook",
        lambda **given: names.append(given["fn"].name),
    )
    smoke.timing(
        op, op, Baselines({COMPILE: direct(op)}, {}, {}), 7, least_rounds=40, most_rounds=80
    )
    own = ("_mix", "_add_up", "_stream")
    assert [name for name in names if name.endswith(own)] == []
    # The hook works: no other test uses this block size, so Triton compiles this kernel now.
    block = {"rmsnorm": 16, "softmax": 32}[op]
    OwnKernel(_stream, warps=1).launch(
        (1,),
        (torch.zeros(4, dtype=torch.int32, device="cuda"),) * 2 + (4, 4),
        {"SLABS": 1, "BLOCK": block},
    )
    assert len([name for name in names if name.endswith(own)]) == 1

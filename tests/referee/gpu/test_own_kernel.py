"""The referee's own kernels: compiled once for each kind of arguments that Triton tells apart, and launched with all of them."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton

from referee.measuring import fingerprint, mixing
from referee.measuring.streaming import SHAPES, _launch, _stream
from referee.replaying import own_kernel
from referee.replaying.own_kernel import OwnKernel, Pointer, Repeated, Series
from referee.target import Target
from referee.triton_private import active_driver

WHOLE = torch.zeros(64, dtype=torch.int64)


class Compiler:
    """Stands in for a Triton function: notes what it was first launched with, and compiles to itself."""

    def __init__(self) -> None:
        self.compiled: list[tuple[Any, ...]] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def first(*arguments: Any, num_warps: int, **constants: int) -> Compiler:
            self.compiled.append((grid, arguments, constants, num_warps))
            return self

        return first


@pytest.fixture
def again(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What was launched later: grid and arguments."""
    launched: list[tuple[Any, ...]] = []

    class Repeated:
        def __init__(self, compiled: Compiler, arguments: int) -> None:
            assert len(compiled.compiled[-1][1]) == arguments
            self.given: tuple[Any, ...] = ()

        def change(self, *given: Any) -> None:
            self.given = given

        def queue(self) -> None:
            launched.append(self.given)

        def another(self) -> SimpleNamespace:
            return SimpleNamespace(change=lambda *_: None, numbers=dict.fromkeys(range(7)))

    monkeypatch.setattr(own_kernel, "Repeated", Repeated)
    return launched


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (3, 5, True),
        (16, 4096, True),
        (3, 16, False),
        (3, 1, False),
        (0, 16, True),
        (3, 2**31 + 3, False),
        (2**31 + 3, 2**63 - 1, True),
        (-5, 3, True),
        (WHOLE, WHOLE[2:], True),
        (WHOLE, WHOLE[1:], False),
        (WHOLE, WHOLE.to(torch.int32), False),
        (WHOLE, None, False),
        (None, None, True),
    ],
)
def test_a_kernel_is_compiled_for_every_kind_of_argument_and_once(one: Any, other: Any, same: bool, again: list[tuple[Any, ...]]) -> None:
    made = Compiler()
    kernel = OwnKernel(made, warps=4)
    kernel.launch((7,), (one, 3), {"BLOCK": 8, "TURNS": 2})
    kernel.launch((9, 5), (other, 3), {"BLOCK": 8, "TURNS": 2})
    assert made.compiled[0] == ((7,), (one, 3), {"BLOCK": 8, "TURNS": 2}, 4)
    assert len(made.compiled) == (1 if same else 2)
    if same:
        ((grid, arguments),) = again
        assert grid == (9, 5) and arguments[0] is other and arguments[1:] == (3,)


def test_a_pointer_is_of_the_kind_of_a_tensor_there(again: list[tuple[Any, ...]]) -> None:
    made = Compiler()
    kernel = OwnKernel(made, warps=4)
    kernel.launch((7,), (WHOLE,), {})
    for address in (256, 512, 264):
        kernel.launch((7,), (Pointer(address, torch.int64),), {})
    kernel.launch((7,), (Pointer(256, torch.int32),), {})
    assert [given for _, given, _, _ in made.compiled] == [(WHOLE,), (Pointer(264, torch.int64),), (Pointer(256, torch.int32),)]
    assert [given for _, (given,) in again] == [Pointer(256, torch.int64), Pointer(512, torch.int64)]


def test_other_constants_are_another_kernel(again: list[tuple[Any, ...]]) -> None:
    made = Compiler()
    kernel = OwnKernel(made, warps=4)
    for block in (8, 16, 8):
        kernel.launch((7,), (3,), {"BLOCK": block})
    assert [constants for _, _, constants, _ in made.compiled] == [{"BLOCK": 8}, {"BLOCK": 16}]
    assert again == [((7,), (3,))]


@pytest.mark.parametrize(("one", "other", "same"), [(3, 16, True), (1, -7, True), (3, 2**31, False), (2**62, 2**62 + 5, True)])
def test_of_a_number_that_is_not_specialized_for_only_the_width_counts(
    one: int, other: int, same: bool, again: list[tuple[Any, ...]]
) -> None:
    made = Compiler()
    kernel = OwnKernel(made, warps=4, any_number=(1,))
    kernel.launch((7,), (3, one), {})
    kernel.launch((7,), (3, other), {})
    kernel.launch((7,), (16, one), {})
    assert len(made.compiled) == (2 if same else 3) and len(again) == (1 if same else 0)


@pytest.mark.parametrize("kernel", [fingerprint._ADD_UP, mixing._MIX])
def test_the_numbers_that_may_be_any_are_those_that_triton_is_told_not_to_look_at(kernel: OwnKernel) -> None:
    parameters = kernel._function.params
    assert kernel.any_number == tuple(parameter.num for parameter in parameters if parameter.do_not_specialize)


def test_a_fingerprint_is_launched_with_what_it_is_of(again: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    made = Compiler()
    monkeypatch.setattr(fingerprint, "_ADD_UP", OwnKernel(made, warps=8, any_number=(4, 6)))
    for word, aligned, place in ((8, True, 48), (2, False, 50)):
        fingerprint._alone.__wrapped__(2 * fingerprint.BLOCK + 1, word, aligned).launch(place, 2**61 + 1, 32, -(2**50))
        grid, arguments, constants, warps = made.compiled[-1]
        words = Pointer(place, {8: torch.int64, 2: torch.int16}[word])
        assert arguments == (words, None, 1, 2 * fingerprint.BLOCK + 1, 2**61 + 1, Pointer(32, torch.int64), -(2**50))
        assert (grid, constants, warps) == ((3, 1), {**fingerprint.CONSTANTS, "STRIDE": 1}, 8)


def test_a_mixture_is_launched_with_what_it_is_of(again: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    made = Compiler()
    monkeypatch.setattr(mixing, "_MIX", OwnKernel(made, warps=4, any_number=(4,)))
    program = 4 * mixing.BITS * mixing.BLOCK
    mixing._mixtures.__wrapped__(program + 1, 2, (True, False, True)).launch(32, 50, 64, 2**61 + 1)
    ((grid, arguments, constants, _),) = made.compiled
    assert arguments == (*(Pointer(place, torch.int16) for place in (32, 50, 64)), program + 1, 2**61 + 1)
    assert grid == (2,) and constants == {"BLOCK": mixing.BLOCK, "BITS": mixing.BITS, "ROUNDS": mixing.ROUNDS}


class Launches:
    """Stands in for the driver's cuLaunchKernel: reads what a launch passes, `widths` bytes of each parameter."""

    def __init__(self, widths: tuple[int, ...], code: int = 0) -> None:
        self._widths, self._code = widths, code
        self.seen: list[tuple[Any, ...]] = []

    def __call__(self, *given: Any) -> int:
        function, *shape, stream, parameters, extra = given
        kinds = [ctypes.c_void_p, *[ctypes.c_uint] * 7, ctypes.c_void_p]
        assert [type(one) for one in (function, *shape, stream)] == kinds
        assert len(parameters) == len(self._widths) and extra is None
        passed = [ctypes.string_at(at, width) for at, width in zip(parameters, self._widths, strict=True)]
        numbers = [int.from_bytes(each, "little", signed=True) for each in passed]
        self.seen.append((function.value, tuple(one.value for one in shape), stream.value, numbers))
        return self._code


def warmed_up(*arguments: Any) -> Any:
    """The referee's kernel for fingerprints, compiled by Triton's own way to a launch, for a chip that is not here, and not loaded."""
    with active_driver(Target.parse("sm_90")):
        compiled = fingerprint._add_up.run(*arguments, **fingerprint.CONSTANTS, STRIDE=1, num_warps=8, grid=(1,), warmup=True)
    compiled.function = 1234
    return compiled


@pytest.fixture
def adding(monkeypatch: pytest.MonkeyPatch) -> Any:
    """As it is compiled for one tensor."""
    monkeypatch.setattr(own_kernel, "stream_reader", lambda: lambda: 77)
    return warmed_up(Pointer(4096, torch.int64), None, 1, 2**40, 2**62, Pointer(32, torch.int64), -(2**62))


def launched(repeated: Repeated, grid: tuple[int, ...], *arguments: Any) -> None:
    repeated.change(grid, arguments)
    repeated.queue()


def test_a_later_launch_passes_what_it_is_given_and_leaves_out_what_is_compiled_in(adding: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Launches((8, 8, 8, 8, 8, 8, 8))
    monkeypatch.setattr(own_kernel, "launcher", lambda: driver)
    repeated = Repeated(adding, 7)
    shared = adding.metadata.shared
    launched(repeated, (5, 2), Pointer(4096, torch.int64), None, 1, 2**40, -3, WHOLE, 2**62)
    launched(repeated, (1,), Pointer(64, torch.int64), None, 1, 5, 2**63 - 1, Pointer(32, torch.int64), -(2**63))
    assert driver.seen == [
        (1234, (5, 2, 1, 256, 1, 1, shared), 77, [4096, 2**40, -3, WHOLE.data_ptr(), 2**62, 0, 0]),
        (1234, (1, 1, 1, 256, 1, 1, shared), 77, [64, 5, 2**63 - 1, 32, -(2**63), 0, 0]),
    ]
    driver = Launches((8, 8, 4, 4, 8, 8, 8, 8))
    several = warmed_up(Pointer(4096, torch.int64), Pointer(64, torch.int64), 40, 7, 2**62, WHOLE, None)
    launched(Repeated(several, 7), (3,), Pointer(16, torch.int64), Pointer(8, torch.int64), 24, 9, 5, Pointer(80, torch.int64), None)
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


def test_the_launches_of_a_series_differ_in_what_they_are_given(adding: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of one kernel do not change each other's, nor do launches that are no series'."""
    driver = Launches((8, 8, 8, 8, 8, 8, 8))
    monkeypatch.setattr(own_kernel, "launcher", lambda: driver)
    kernel, first = adding_up(adding)
    one, other = series(kernel), series(kernel, (6, 2))
    one.launch(256, 2**61 + 1, 512, -5 - 2**40)
    assert first == [((5,), (Pointer(256, torch.int64), None, 1, 2**40, 2**61 + 1, Pointer(512, torch.int64), -5 - 2**40))]
    other.launch(32, 2**61, 48, 2**50)
    one.launch(64, 3, 80, -9)
    kernel.launch((9,), (Pointer(96, torch.int64), None, 1, 2**41, 2**60, Pointer(112, torch.int64), 2**59), fingerprint.CONSTANTS)
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


def test_a_series_whose_first_number_is_small_is_not_taken_for_one_of_small_numbers(adding: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton compiles for 32 bits where a number fits them, and the next one need not."""
    monkeypatch.setattr(own_kernel, "launcher", lambda: Launches((8, 8, 8, 8, 8, 8, 8)))
    kernel, first = adding_up(adding)
    one = series(kernel)
    for key in (7, 2**61, 2**60):
        one.launch(256, key, 512, 2**50)
    assert [arguments[4] for _, arguments in first] == [7, 2**61]


@pytest.mark.parametrize(("number", "any_number"), [(2**40, ()), (3, (0,))])
def test_a_series_changes_no_number_that_is_compiled_in_or_of_32_bits(number: int, any_number: tuple[int, ...]) -> None:
    with pytest.raises(AssertionError):
        Series(OwnKernel(Compiler(), warps=4, any_number=any_number), (1,), (number,), {}, (0,))


def test_a_launch_of_a_series_needs_every_number_that_changes(adding: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Launches((8, 8, 8, 8, 8, 8, 8))
    monkeypatch.setattr(own_kernel, "launcher", lambda: driver)
    one = series(adding_up(adding)[0])
    for _ in range(2):
        with pytest.raises(ValueError, match="zip"):
            one.launch(256, 2**61, 512)
        one.launch(256, 2**61, 512, 2**50)
    assert len(driver.seen) == 1


def test_every_launch_asks_for_the_stream_of_now(adding: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    driver, now = Launches((8, 8, 8, 8, 8, 8, 8)), [77]
    monkeypatch.setattr(own_kernel, "launcher", lambda: driver)
    monkeypatch.setattr(own_kernel, "stream_reader", lambda: lambda: now[-1])
    kernel = adding_up(adding)[0]
    one = series(kernel)
    for stream in (5, 78, 79):
        now.append(stream)
        one.launch(256, 2**61, 512, 2**50)
        kernel.launch((9,), (Pointer(96, torch.int64), None, 1, 2**41, 2**60, Pointer(112, torch.int64), 2**59), fingerprint.CONSTANTS)
    assert [stream for _, _, stream, _ in driver.seen] == [5, 78, 78, 79, 79]


def test_a_launch_has_the_warps_that_its_kernel_was_compiled_for(adding: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Launches((8, 8, 8, 8, 8, 8, 8))
    monkeypatch.setattr(own_kernel, "launcher", lambda: driver)
    with active_driver(Target.parse("sm_90")):
        words = Pointer(4096, torch.int64), None, 1, 2**40, 2**62, Pointer(32, torch.int64), -(2**62)
        fewer = fingerprint._add_up.run(*words, **fingerprint.CONSTANTS, STRIDE=1, num_warps=2, grid=(1,), warmup=True)
    fewer.function = 4321
    for compiled in (adding, fewer):
        launched(Repeated(compiled, 7), (1,), *words)
    assert [(function, shape[3]) for function, shape, _, _ in driver.seen] == [(1234, 256), (4321, 64)]


@pytest.mark.parametrize(("code", "becomes"), [(700, torch.AcceleratorError), (719, torch.AcceleratorError), (2, RuntimeError)])
def test_a_later_launch_in_a_context_that_a_kernel_has_ended_is_told_as_torch_tells_it(
    code: int, becomes: type[Exception], adding: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So whoever judges takes it for that kernel's fault, and not for the referee's."""
    monkeypatch.setattr(own_kernel, "launcher", lambda: Launches((8, 8, 8, 8, 8, 8, 8), code))
    monkeypatch.setattr(own_kernel, "Driver", lambda: SimpleNamespace(error_name=lambda code: "CUDA_ERROR_OF_THIS_TEST"))
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
def test_once_a_cell_is_prepared_timing_it_compiles_nothing_of_the_referees(
    op: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bench.handmade import bench_cell, direct
    from bench.smoke import Smoke
    from referee.measuring.baselines import Baselines
    from referee.measuring.measurement import COMPILE
    from referee.measuring.own_kernels import compile_own
    from referee.ops.task import load

    smoke = Smoke(tmp_path)
    compile_own(load(op, "gpu"), bench_cell(op))
    names: list[str] = []
    monkeypatch.setattr(triton.knobs.runtime, "jit_post_compile_hook", lambda **given: names.append(given["fn"].name))
    smoke.timing(op, op, Baselines({COMPILE: direct(op)}, {}, {}), 7, least_rounds=40, most_rounds=80)
    own = ("_mix", "_add_up", "_stream")
    assert [name for name in names if name.endswith(own)] == []
    # Nothing is told of only where nothing is compiled: this block is no other test's, so Triton has not compiled it yet.
    block = {"rmsnorm": 16, "softmax": 32}[op]
    OwnKernel(_stream, warps=1).launch((1,), (torch.zeros(4, dtype=torch.int32, device="cuda"),) * 2 + (4, 4), {"SLABS": 1, "BLOCK": block})
    assert len([name for name in names if name.endswith(own)]) == 1


@pytest.mark.parametrize(
    ("says", "becomes"),
    [
        ("Triton Error [CUDA]: an illegal memory access was encountered", torch.AcceleratorError),
        ("Triton Error [CUDA]: out of memory", RuntimeError),
        ("something else", RuntimeError),
    ],
)
def test_a_first_launch_in_a_context_that_a_kernel_has_ended_is_told_as_torch_tells_it(says: str, becomes: type[Exception]) -> None:
    kernel = OwnKernel(Compiler(), warps=4)

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError(says)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Compiler, "__getitem__", lambda *_: fails)
        with pytest.raises(RuntimeError, match=re.escape(says)) as caught:
            kernel.launch((7,), (WHOLE,), {})
    assert type(caught.value) is becomes

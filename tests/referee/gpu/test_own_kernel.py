"""The referee's own kernels: compiled once for each kind of arguments that Triton tells apart, and
launched with all of them.
"""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from referee.replaying import own_kernel
from referee.replaying.own_kernel import OwnKernel, Pointer, Series
from referee.timing import fingerprint, mixing

WHOLE = torch.zeros(64, dtype=torch.int64)


class Compiler:
    """Stands in for a Triton function: notes what it was first launched with, and compiles to
    itself.
    """

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
def test_a_kernel_is_compiled_once_for_every_argument_kind(
    one: Any, other: Any, same: bool, again: list[tuple[Any, ...]]
) -> None:
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
    assert [given for _, given, _, _ in made.compiled] == [
        (WHOLE,),
        (Pointer(264, torch.int64),),
        (Pointer(256, torch.int32),),
    ]
    assert [given for _, (given,) in again] == [
        Pointer(256, torch.int64),
        Pointer(512, torch.int64),
    ]


def test_other_constants_are_another_kernel(again: list[tuple[Any, ...]]) -> None:
    made = Compiler()
    kernel = OwnKernel(made, warps=4)
    for block in (8, 16, 8):
        kernel.launch((7,), (3,), {"BLOCK": block})
    assert [constants for _, _, constants, _ in made.compiled] == [{"BLOCK": 8}, {"BLOCK": 16}]
    assert again == [((7,), (3,))]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [(3, 16, True), (1, -7, True), (3, 2**31, False), (2**62, 2**62 + 5, True)],
)
def test_an_unspecialized_number_counts_by_its_width_only(
    one: int, other: int, same: bool, again: list[tuple[Any, ...]]
) -> None:
    made = Compiler()
    kernel = OwnKernel(made, warps=4, any_number=(1,))
    kernel.launch((7,), (3, one), {})
    kernel.launch((7,), (3, other), {})
    kernel.launch((7,), (16, one), {})
    assert len(made.compiled) == (2 if same else 3) and len(again) == (1 if same else 0)


@pytest.mark.parametrize("kernel", [fingerprint._ADD_UP, mixing._MIX])
def test_free_numbers_are_those_triton_does_not_specialize(kernel: OwnKernel) -> None:
    parameters = kernel._function.params
    assert kernel.any_number == tuple(
        parameter.num for parameter in parameters if parameter.do_not_specialize
    )


def test_a_fingerprint_is_launched_with_what_it_is_of(
    again: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Compiler()
    monkeypatch.setattr(fingerprint, "_ADD_UP", OwnKernel(made, warps=8, any_number=(4, 6)))
    for word, aligned, place in ((8, True, 48), (2, False, 50)):
        fingerprint._alone.__wrapped__(2 * fingerprint.BLOCK + 1, word, aligned).launch(
            place, 2**61 + 1, 32, -(2**50)
        )
        grid, arguments, constants, warps = made.compiled[-1]
        words = Pointer(place, {8: torch.int64, 2: torch.int16}[word])
        assert arguments == (
            words,
            None,
            1,
            2 * fingerprint.BLOCK + 1,
            2**61 + 1,
            Pointer(32, torch.int64),
            -(2**50),
        )
        assert (grid, constants, warps) == ((3, 1), {**fingerprint.CONSTANTS, "STRIDE": 1}, 8)


def test_a_mixture_is_launched_with_what_it_is_of(
    again: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Compiler()
    monkeypatch.setattr(mixing, "_MIX", OwnKernel(made, warps=4, any_number=(4,)))
    program = 4 * mixing.BITS * mixing.BLOCK
    mixing._mixtures.__wrapped__(program + 1, 2, (True, False, True)).launch(32, 50, 64, 2**61 + 1)
    ((grid, arguments, constants, _),) = made.compiled
    assert arguments == (
        *(Pointer(place, torch.int16) for place in (32, 50, 64)),
        program + 1,
        2**61 + 1,
    )
    assert grid == (2,) and constants == {
        "BLOCK": mixing.BLOCK,
        "BITS": mixing.BITS,
        "ROUNDS": mixing.ROUNDS,
    }


@pytest.mark.parametrize(("number", "any_number"), [(2**40, ()), (3, (0,))])
def test_a_series_changes_no_compiled_in_or_32_bit_number(
    number: int, any_number: tuple[int, ...]
) -> None:
    with pytest.raises(AssertionError):
        Series(OwnKernel(Compiler(), warps=4, any_number=any_number), (1,), (number,), {}, (0,))


@pytest.mark.parametrize(
    ("says", "becomes"),
    [
        ("Triton Error [CUDA]: an illegal memory access was encountered", torch.AcceleratorError),
        ("Triton Error [CUDA]: out of memory", RuntimeError),
        ("something else", RuntimeError),
    ],
)
def test_a_first_launch_in_a_dead_context_fails_as_in_torch(
    says: str, becomes: type[Exception]
) -> None:
    kernel = OwnKernel(Compiler(), warps=4)

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError(says)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Compiler, "__getitem__", lambda *_: fails)
        with pytest.raises(RuntimeError, match=re.escape(says)) as caught:
            kernel.launch((7,), (WHOLE,), {})
    assert type(caught.value) is becomes

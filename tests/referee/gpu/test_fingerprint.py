"""Fingerprints: they follow from every bit, its place and the key, and are the same numbers on the
CPU and on a GPU.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from referee.timing.fingerprint import (
    MANY,
    DigestBuffer,
    Noted,
    _apart,
    fingerprint,
    fingerprints,
    read,
)
from tests.referee.gpu.interpreted import in_interpreter

GPU = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
DEVICES = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=GPU)])
KEY = 2**62 + 3


def number(noted: Noted) -> int:
    (found,) = read([noted])
    return found


def test_the_kernel_in_triton_s_interpreter() -> None:
    assert in_interpreter("fingerprint_interpreted.py") == (0, "")


@pytest.mark.parametrize(
    "dtype",
    [
        torch.bool,
        torch.int8,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
        torch.int64,
    ],
)
@pytest.mark.parametrize(("start", "length"), [(0, 1), (0, 64), (1, 63), (3, 9001)])
@DEVICES
def test_one_changed_element_tells_wherever_it_lies(
    device: str, dtype: torch.dtype, start: int, length: int
) -> None:
    whole = torch.zeros(start + length, dtype=dtype, device=device)
    tensor = whole[start:]
    before = number(fingerprint(tensor, KEY))
    assert (
        before
        == number(fingerprint(tensor.clone() if start == 0 else tensor, KEY))
        != number(fingerprint(tensor, KEY + 1))
    )
    for at in {0, length // 2, length - 1}:
        tensor[at] = 1
        assert number(fingerprint(tensor, KEY)) != before
        tensor[at] = 0
    if start:
        whole[start - 1] = 1
        assert number(fingerprint(tensor, KEY)) == before


@DEVICES
def test_changes_that_cancel_in_a_sum_are_seen(device: str) -> None:
    words = torch.arange(1000, dtype=torch.int64, device=device)
    before = number(fingerprint(words, KEY))
    for change in ((1, -1), (1 << 32, -(1 << 32)), (-(1 << 63), -(1 << 63))):
        other = words.clone()
        other[3] += change[0]
        other[700] += change[1]
        assert int(other.sum()) == int(words.sum()) and number(fingerprint(other, KEY)) != before
    assert number(fingerprint(words.flip(0), KEY)) != before


@pytest.mark.parametrize(
    "places", [(0, 512, 256), (0, 520, 248), (0, 513, 7), (0, 128, 256, 384, 512, 640, 768, 0, 128)]
)
@pytest.mark.parametrize("dtype", [torch.int8, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("shape", [(40, 3), (7,), (0, 3)])
@DEVICES
def test_many_at_once_have_the_fingerprints_that_they_have_alone(
    device: str, shape: tuple[int, ...], dtype: torch.dtype, places: tuple[int, ...]
) -> None:
    whole = torch.randint(-100, 100, (1000,)).to(device, dtype)
    count = math.prod(shape)
    several = [whole[place : place + count].view(shape) for place in places]
    assert read([fingerprints(several, KEY)]) == [
        number(fingerprint(each, KEY)) for each in several
    ]
    across = [each.t() if each.dim() > 1 else each for each in several]
    assert read([fingerprints(across, KEY)]) == [number(fingerprint(each, KEY)) for each in across]


@pytest.mark.parametrize(
    ("places", "word", "step"),
    [((512, 0, 1024, 528), 8, 16), ((4096, 4104, 8192), 8, 8), ((7, 23, 24), 1, 1), ((64,), 4, 16)],
)
def test_offsets_lead_from_the_first_place_to_each(
    places: tuple[int, ...], word: int, step: int
) -> None:
    offsets, stride = _apart(places, word)
    assert [places[0] + offset * stride * word for offset in offsets] == list(
        places
    ) and stride * word == step


@DEVICES
def test_what_lies_on_the_device_does_not_tell_what_is_alike(device: str) -> None:
    tensor = torch.arange(1000, device=device)
    noted = [fingerprint(tensor, KEY) for _ in range(50)] + [fingerprints([tensor] * 50, KEY)]
    assert (
        len(
            {
                int(one)
                for each in noted
                for one in each.sums[each.first : each.first + len(each.pads)]
            }
        )
        == 100
    )
    assert len(set(read(noted))) == 1


@DEVICES
def test_gaps_do_not_count_and_nothing_has_a_fingerprint_too(device: str) -> None:
    base = torch.randn(8, 10, device=device)
    part = base[:, :3]
    before = number(fingerprint(part, KEY))
    assert before == number(fingerprint(part.contiguous(), KEY))
    base[:, 3:] = 0.0
    assert number(fingerprint(part, KEY)) == before
    assert number(fingerprint(base[:0], KEY)) == 0


@DEVICES
def test_room_for_many_holds_each_by_itself(device: str) -> None:
    room, tensors = (
        DigestBuffer(device),
        list(torch.arange(3 * (2 * MANY + 5), device=device).view(-1, 3)),
    )
    noted = [fingerprint(tensor, KEY, room) for tensor in tensors]
    assert read(noted) == [number(fingerprint(tensor, KEY)) for tensor in tensors]
    assert len(set(read(noted[::-1]))) == len(tensors)


def test_room_is_taken_once() -> None:
    room = DigestBuffer("cpu")
    taken = [room.take() for _ in range(2 * MANY + 1)]
    assert len({id(noted.sums) for noted, _ in taken}) == 3 and len(
        {address for _, address in taken}
    ) == len(taken)
    assert all(address % 16 == 0 and int(noted.sums[noted.first]) == 0 for noted, address in taken)
    assert all(address == noted.sums[noted.first :].data_ptr() for noted, address in taken)


def test_no_two_places_have_one_pad() -> None:
    """A pad that is used twice would tell which tensors are alike."""
    room = DigestBuffer("cpu")
    pads = [pad for noted, _ in (room.take() for _ in range(3 * MANY)) for pad in noted.pads]
    assert len(set(pads)) == len(pads) and min(pads) < -(2**60) and max(pads) > 2**60


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.int8, torch.float16, torch.float32, torch.int64])
def test_the_numbers_on_a_gpu_are_those_of_the_cpu(dtype: torch.dtype) -> None:
    tensor = torch.randint(-100, 100, (300, 1001)).to(dtype)
    assert number(fingerprint(tensor.cuda(), KEY)) == number(fingerprint(tensor, KEY))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_it_comes_behind_what_is_queued_on_the_stream_of_now() -> None:
    tensor = torch.zeros(1 << 20, device="cuda")
    before, expected = (
        number(fingerprint(tensor, KEY)),
        number(fingerprint(torch.ones(1 << 20), KEY)),
    )
    cuda: Any = torch.cuda
    side = cuda.Stream()
    cuda.synchronize()
    with cuda.stream(side):
        cuda._sleep(100_000_000)
        tensor.fill_(1.0)
        found = fingerprint(tensor, KEY)
    side.synchronize()
    assert number(found) == expected != before

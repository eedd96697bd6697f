"""A number from a tensor's bits and a secret key: without the key, nothing can write other bits
with the same number.

The function is NH of UMAC (Black, Halevi, Krawczyk, Krovetz and Rogaway, UMAC: fast and secure
message authentication, 1999). Each half of a word is added to that of a number for its place. The
products of both sums are added up, so words can be taken in any order. Two different tensors have
one fingerprint with a chance of at most 2^-32 over random numbers. Here the numbers are the output
of splitmix64 for the key (Steele, Lea and Flood, Fast splittable pseudorandom number generators,
2014), which is no cryptography.

The device holds the sum of the fingerprint and a random number that the host uses once (a one-time
pad). A candidate that finds it learns neither the key nor which tensors are equal, and cannot
exchange them. On a GPU a kernel of the referee computes it, on the CPU torch. Limits: key and pads
are arguments of launches, so a kernel that could read the driver's queue would know both.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from referee.replaying.own_kernel import OwnKernel, Pointer, Series
from referee.replaying.replay import INTEGERS, widest

BLOCK, WARPS = 2048, 8
"""Words per program, and warps per program."""
TOGETHER = 4
"""Tensors per program; it adds the same number to their words at one place."""
ALIGNED = 16
"""Bytes per read of a program, if every tensor lies at a multiple of them."""
MANY, APART = 256, 2
"""Fingerprints per allocation, and their distance in numbers (ALIGNED bytes)."""
NUMBER = 8
"""Bytes of a sum, a key or a pad."""
KINDS = 256
"""Maximum number of tensor kinds with prepared launches."""
FIRST, SECOND, STEP = 0x7FEB352D8B5AD3C9, 0x46685257BDD640FB, 0x1E3779B97F4A7C15
"""Odd numbers with evenly distributed bits."""
HALF = (1 << 32) - 1
CONSTANTS = {"BLOCK": BLOCK, "TOGETHER": TOGETHER, "FIRST": FIRST, "SECOND": SECOND, "STEP": STEP}


@triton.jit  # type: ignore[untyped-decorator]
def _finalized(word, FIRST: tl.constexpr, SECOND: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, N803
    word = (word ^ (word >> 30)) * FIRST
    word = (word ^ (word >> 27)) * SECOND
    return word ^ (word >> 31)


@triton.jit(do_not_specialize=["key", "pad"])  # type: ignore[untyped-decorator]
def _add_up(  # type: ignore[no-untyped-def]  # noqa: ANN202
    words,  # noqa: ANN001
    offsets,  # noqa: ANN001
    tensors,  # noqa: ANN001
    count,  # noqa: ANN001
    key,  # noqa: ANN001
    sums,  # noqa: ANN001
    pad,  # noqa: ANN001
    BLOCK: tl.constexpr,  # noqa: N803
    TOGETHER: tl.constexpr,  # noqa: N803
    FIRST: tl.constexpr,  # noqa: N803
    SECOND: tl.constexpr,  # noqa: N803
    STEP: tl.constexpr,  # noqa: N803
    STRIDE: tl.constexpr,  # noqa: N803
):
    start = tl.program_id(0).to(tl.int64) * BLOCK
    lane = tl.arange(0, BLOCK)
    inside = lane < count - start
    mask = _finalized(
        (lane.to(tl.int64) * STEP + (start * STEP + key)).to(tl.uint64, bitcast=True), FIRST, SECOND
    )
    mask = tl.where(inside, mask, 0)
    low_mask, high_mask = mask.to(tl.uint32), (mask >> 32).to(tl.uint32)
    first = tl.program_id(1) * TOGETHER
    for tensor in range(first, tl.minimum(first + TOGETHER, tensors)):
        place = words + start
        if offsets is not None:
            place += tl.load(offsets + tensor) * STRIDE
        word = tl.load(place + lane, mask=inside, other=0).to(tl.int64).to(tl.uint64, bitcast=True)
        low, high = word.to(tl.uint32) + low_mask, (word >> 32).to(tl.uint32) + high_mask
        total = tl.sum(low.to(tl.uint64) * high.to(tl.uint64)).to(tl.int64, bitcast=True)
        if pad is not None:
            total += tl.where(start == 0, pad, 0)
        tl.atomic_add(sums + tensor, total)


_ADD_UP = OwnKernel(_add_up, warps=WARPS, any_number=(4, 6))


@dataclass(frozen=True)
class Noted:
    """Fingerprints on the device: `sums` (int64) from index `first` on, one per tensor.

    A fingerprint is its sum minus its pad, modulo 2^64.
    """

    sums: Tensor
    pads: tuple[int, ...]
    first: int = 0


class DigestBuffer:
    """Zeroed memory for fingerprints taken one by one, with pads; one allocation serves many."""

    def __init__(self, device: torch.device | str) -> None:
        self._device, self._sums, self._start, self._pads = device, torch.empty(0), 0, list[int]()

    def take(self) -> tuple[Noted, int]:
        """The place of one fingerprint: a zero sum, and its address."""
        if not self._pads:
            self._sums = torch.zeros(MANY * APART, dtype=torch.int64, device=self._device)
            self._start = self._sums.data_ptr()
            self._pads = list(_pads(MANY))
        pad = self._pads.pop()
        first = APART * len(self._pads)
        return Noted(self._sums, (pad,), first), self._start + NUMBER * first


def read(noted: Iterable[Noted]) -> list[int]:
    """The fingerprints in order. Waits for the device."""
    found = list(noted)
    sums = {id(each.sums): each.sums for each in found}
    totals = {name: tensor.tolist() for name, tensor in sums.items()}
    return [
        (totals[id(each.sums)][each.first + number] - pad) % 2**64
        for each in found
        for number, pad in enumerate(each.pads)
    ]


def fingerprint(tensor: Tensor, key: int, room: DigestBuffer | None = None) -> Noted:
    """The fingerprint of one tensor, without waiting. `key` has 63 bits."""
    if not tensor.is_cuda:
        return _noted([_words(tensor)], key)
    tensor = tensor.contiguous()
    noted, total = (room or DigestBuffer(tensor.device)).take()
    size, address = tensor.nbytes, tensor.data_ptr()
    if not size:
        return Noted(noted.sums, (0,), noted.first)
    word = widest(size, address)
    _alone(size // word, word, address % ALIGNED == 0).launch(address, key, total, noted.pads[0])
    return noted


@lru_cache(KINDS)
def _alone(count: int, word: int, aligned: bool) -> Series:
    """Fingerprints of one tensor of this many words, from its address, key, sum and pad."""
    words, any_number = Pointer(ALIGNED if aligned else word, INTEGERS[word]), 1 << 62
    arguments = (words, None, 1, count, any_number, Pointer(ALIGNED, torch.int64), any_number)
    return Series(
        _ADD_UP, (-(-count // BLOCK), 1), arguments, {**CONSTANTS, "STRIDE": 1}, (0, 4, 5, 6)
    )


def fingerprints(tensors: Sequence[Tensor], key: int) -> Noted:
    """The fingerprints of several tensors of one shape, dtype and device. Waits for the device.

    It copies tensors that are not contiguous, one at a time.
    """
    if all(tensor.is_contiguous() for tensor in tensors):
        if tensors[0].is_cuda:
            # Only each tensor's address is read, which costs the host least.
            size, places = tensors[0].nbytes, [tensor.data_ptr() for tensor in tensors]
            if len(words := {widest(size, place) for place in places}) == 1:
                return _noted_there(places, size, words.pop(), key, tensors[0].device)
        else:
            found = [_words(tensor) for tensor in tensors]
            if len({each.dtype for each in found}) == 1:
                return _noted(found, key)
    alone = [fingerprint(tensor, key) for tensor in tensors]
    return Noted(
        torch.stack([each.sums[each.first] for each in alone]),
        tuple(pad for each in alone for pad in each.pads),
    )


def _words(tensor: Tensor) -> Tensor:
    tensor = tensor.contiguous().flatten()
    size = widest(
        tensor.numel() * tensor.element_size(), int(tensor.storage_offset()) * tensor.element_size()
    )
    return tensor.view(INTEGERS[size])


def _noted(tensors: Sequence[Tensor], key: int) -> Noted:
    pads = _pads(len(tensors))
    masks = _mixed(torch.arange(tensors[0].numel(), dtype=torch.int64) * STEP + key)
    found = [_products(words.to(torch.int64), masks).sum() for words in tensors]
    return Noted(torch.tensor(pads, dtype=torch.int64) + torch.stack(found), pads)


def _noted_there(
    places: Sequence[int], size: int, word: int, key: int, device: torch.device
) -> Noted:
    """The fingerprints of tensors of `size` bytes at these addresses, in `word` bytes each."""
    pads = _pads(len(places))
    sums = torch.tensor(pads, dtype=torch.int64, device=device)
    if count := size // word:
        apart, stride = _apart(places, word)
        offsets = torch.tensor(apart, dtype=torch.int64, device=device)
        arguments = (
            Pointer(places[0], INTEGERS[word]),
            offsets,
            len(places),
            count,
            key,
            sums,
            None,
        )
        _ADD_UP.launch(
            (-(-count // BLOCK), -(-len(places) // TOGETHER)),
            arguments,
            {**CONSTANTS, "STRIDE": stride},
        )
    return Noted(sums, pads)


def _apart(places: Sequence[int], word: int) -> tuple[list[int], int]:
    """Each tensor's distance from the first, and the number of words that divides them."""
    apart = [place - places[0] for place in places]
    unit = ALIGNED if all(each % ALIGNED == 0 for each in apart) else word
    return [each // unit for each in apart], unit // word


def _pads(count: int) -> tuple[int, ...]:
    return tuple(np.frombuffer(secrets.token_bytes(NUMBER * count), np.int64).tolist())


def _products(words: Tensor, masks: Tensor) -> Tensor:
    """The summand of each word, modulo 2^64."""
    low = (words + masks) & HALF
    high = ((words >> 32) + (masks >> 32)) & HALF
    return low * high


def _mixed(words: Tensor) -> Tensor:
    """The finalizer on int64, whose right shifts repeat the sign and must not."""
    words = (words ^ (words >> 30 & (1 << 34) - 1)) * FIRST
    words = (words ^ (words >> 27 & (1 << 37) - 1)) * SECOND
    return words ^ (words >> 31 & (1 << 33) - 1)

"""Finds the sizes of a family by trials: which sizes the reference takes, and which are batches."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import lcm, prod

from referee.reference.family import Family
from referee.reference.inputs import Sizes
from referee.reference.unusable import TooLarge, UnusableReference

MOST_ELEMENTS = 1 << 18
"""Maximum number of elements of a tensor in Triton's interpreter."""
FEW_ELEMENTS = 1 << 15
"""Maximum number of elements of a tensor at which every kind of values is judged."""
AROUND_ELEMENTS = 1 << 17
"""Maximum number of elements of a tensor judged at few kinds of values, for speed."""
TRIED_ELEMENTS = 1 << 22
"""Maximum number of elements of a tensor at which the reference is tried."""
MOST_EVALUATED = 1 << 28
"""Maximum number of elements of a tensor at which the reference is evaluated on the CPU."""
TIMED_ELEMENTS = 1 << 25
"""Number of elements of the largest tensor if the user leaves the timed sizes open."""
MOST_TIMED = 1 << 29
"""Maximum number of elements of the largest timed tensor, because of a GPU's memory."""
_BYTES = {"float16": 2, "bfloat16": 2, "int16": 2, "int64": 8, "int8": 1, "uint8": 1, "bool": 1}
MULTIPLES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
LEADING, LAST = (3, 5, 7, 9, 11, 13), (129, 65, 33, 17)
WIDTH, HEAD, BATCHES = 4096, 128, (8, 32, 16)
Trial = Callable[[Sizes], str]
"""Returns the reason why the reference refuses the sizes, or ""."""


def explored(
    family: Family, trial: Trial, is_batch: Callable[[Sizes, str], bool], timed: Sizes
) -> Family:
    """The family with its sizes.

    `is_batch` decides whether each index of a symbol is an independent case. `timed` has the user's
    sizes. Raises UnusableReference if the reference takes no sizes, TooLarge if it takes only very
    large ones.
    """
    base, multiples = _base(family, trial)
    over = _over(family)
    family = replace(
        family,
        base=base,
        multiples={symbol: number * over[symbol] for symbol, number in multiples.items()},
    )
    open_symbols = [*family.declared, *family.reduced]
    batch = frozenset(symbol for symbol in open_symbols if is_batch(base, symbol))
    family = replace(family, batch=batch)
    family = replace(family, timed=_timed(family, timed))
    around = [
        sizes
        for sizes in _around(family, open_symbols)
        if family.elements(sizes) <= AROUND_ELEMENTS and not trial(sizes)
    ]
    unique = {tuple(sorted(sizes.items())): sizes for sizes in around if sizes != base}
    return replace(family, around=tuple(unique.values()))


def _base(family: Family, trial: Trial) -> tuple[Sizes, Sizes]:
    """The least sizes, and the multiples that the declared symbols need."""
    fixed = dict(family.numbers)
    first = _declared(family, dict.fromkeys(family.declared, 1))
    if family.elements({**fixed, **first}) > MOST_ELEMENTS:
        fixed = _reduced(family, fixed, trial)
    if not family.declared:
        if why := trial(fixed):
            raise UnusableReference(why)
        return fixed, {}
    found = None
    why = ""
    for multiple in MULTIPLES:
        multiples = dict.fromkeys(family.declared, multiple)
        sizes = {**fixed, **_declared(family, multiples)}
        if family.elements(sizes) > MOST_EVALUATED:
            break
        refusal = trial(sizes)
        if not refusal:
            found = multiples
            break
        why = why or refusal
    if found is None:
        raise UnusableReference(why or _too_large(family, fixed))
    for symbol in family.declared if found[family.declared[0]] > 1 else ():
        for multiple in MULTIPLES[: MULTIPLES.index(found[symbol])]:
            fewer = {**found, symbol: multiple}
            if not trial({**fixed, **_declared(family, fewer)}):
                found = fewer
                break
    return {**fixed, **_declared(family, found)}, found


def _declared(family: Family, multiples: Sizes) -> dict[str, int]:
    """A different small number for each declared symbol; larger ones in last dimensions."""
    last, over = _last(family), _over(family)
    found: dict[str, int] = {}
    for symbol in family.declared:
        multiple = multiples[symbol] * over[symbol]
        odds = [
            odd for odd in (LAST if symbol in last else LEADING) if odd * multiple <= 2 * LAST[0]
        ]
        # Equal sizes have one symbol, so no two symbols may be equal, nor equal to a fixed size.
        taken = {*found.values(), *family.numbers.values()}
        found[symbol] = next(
            odd * multiple
            for odd in itertools.chain(odds, itertools.count(1, 2))
            if odd * multiple not in taken
        )
    return found


def _over(family: Family) -> dict[str, int]:
    found = dict.fromkeys([*family.declared, *family.numbers], 1)
    for dim in (dim for tensor in family.tensors for dim in tensor.dims if dim.symbol):
        found[dim.symbol] = lcm(found[dim.symbol], dim.over)
    return found


def _last(family: Family) -> set[str]:
    """Symbols of last dimensions. A vector's does not count if it leads in another tensor."""
    leading = {dim.symbol for tensor in family.tensors for dim in tensor.dims[:-1]}
    found = {tensor.dims[-1].symbol for tensor in family.tensors if tensor.dims}
    wide = {tensor.dims[-1].symbol for tensor in family.tensors if len(tensor.dims) > 1}
    return {symbol for symbol in found if symbol in wide or symbol not in leading} - {""}


def _reduced(family: Family, fixed: dict[str, int], trial: Trial) -> dict[str, int]:
    """Fixed sizes, with as few reduced ones as the interpreter's limit needs.

    They stay unchanged if no reduction works.
    """
    declared = _declared(family, dict.fromkeys(family.declared, 1))
    last = _last(family)

    def takes(sizes: dict[str, int]) -> bool:
        return family.elements({**sizes, **declared}) <= TRIED_ELEMENTS and not trial(
            {**sizes, **declared}
        )

    for kept in (
        kept for count in range(len(fixed)) for kept in itertools.combinations(fixed, count)
    ):
        for odd in (True, False):
            found = _small(
                {symbol: size for symbol, size in fixed.items() if symbol not in kept},
                last,
                declared,
                odd=odd,
            )
            while family.elements({**fixed, **found, **declared}) > FEW_ELEMENTS and (
                largest := _halvable(found)
            ):
                found[largest] //= 2
            if not takes({**fixed, **found}):
                continue
            # Row sizes, which kernels are written for, keep their own number if there is room.
            for symbol in sorted(found, key=lambda symbol: (symbol not in last, fixed[symbol])):
                wider = {**fixed, **found, symbol: fixed[symbol]}
                if family.elements({**wider, **declared}) <= 2 * FEW_ELEMENTS and takes(wider):
                    del found[symbol]
            if family.elements({**fixed, **found, **declared}) <= MOST_ELEMENTS:
                return {**fixed, **found}
    if family.elements({**fixed, **declared}) > MOST_EVALUATED:
        raise TooLarge(_too_large(family, fixed))
    return fixed


def _small(sizes: Sizes, last: set[str], declared: Sizes, *, odd: bool) -> dict[str, int]:
    """Small numbers: fractions of the sizes of last dimensions, else odd numbers or fractions."""
    unused = iter([number for number in LEADING if number not in declared.values()])
    found = {}
    for symbol, size in sizes.items():
        number = next(unused, LEADING[-1])
        if odd and symbol not in last:
            found[symbol] = min(number, size)
            continue
        part = size
        while part % 2 == 0 and part > (FEW_ELEMENTS // 8 if symbol in last else 8):
            part //= 2
        found[symbol] = part if part <= FEW_ELEMENTS // 8 else LAST[0]
    return found


def _halvable(sizes: Sizes) -> str | None:
    return max(
        (symbol for symbol, size in sizes.items() if size % 2 == 0 and size > 4),
        key=lambda symbol: sizes[symbol],
        default=None,
    )


def _too_large(family: Family, fixed: Sizes) -> str:
    sizes = {**fixed, **_declared(family, dict.fromkeys(family.declared, 1))}
    most = max(family.at(sizes), key=lambda tensor: prod(dim.plus for dim in tensor.dims))
    count = family.elements(sizes)
    size = f"{count * _BYTES.get(most.dtype, 4) / (1 << 30):.1f} GiB"
    least = f"the smallest sizes that the reference takes have a tensor {most} of {count:,} elements ({size})"
    return f"{least}, and it is evaluated with {MOST_EVALUATED:,} at most: give smaller sizes"


def _timed(family: Family, wanted: Sizes) -> Sizes:
    """The timed sizes: the user's, with open symbols chosen as in a model."""
    sizes = {
        **family.numbers,
        **{symbol: size for symbol, size in wanted.items() if symbol in family.declared},
    }
    free = [symbol for symbol in family.declared if symbol not in sizes]
    deep = max((len(tensor.dims) for tensor in family.tensors), default=0) > 3
    last = _last(family)
    batches = [symbol for symbol in free if symbol in family.batch and symbol not in last] or [
        one for one in free if one in family.batch
    ]
    for symbol in [symbol for symbol in free if symbol not in batches]:
        sizes[symbol] = HEAD if deep else WIDTH
    for symbol, size in zip(
        batches[:-1], itertools.chain(BATCHES, itertools.repeat(4)), strict=False
    ):
        sizes[symbol] = size * family.multiples.get(symbol, 1)
    if batches:
        multiple = family.multiples.get(batches[-1], 1)
        one = family.elements({**sizes, batches[-1]: multiple})
        sizes[batches[-1]] = multiple * max(1, TIMED_ELEMENTS // max(one, 1))
    # Every contestant of a timing has its own memory for each round.
    first = next((tensor.dims[0].symbol for tensor in family.tensors if tensor.dims), "")
    multiple = family.multiples.get(first, 1)
    while (
        first in family.batch
        and family.elements(sizes) > MOST_TIMED
        and sizes[first] >= 2 * multiple
    ):
        sizes[first] = sizes[first] // 2 // multiple * multiple
    return sizes


def _around(family: Family, symbols: Sequence[str]) -> Iterator[Sizes]:
    base, last = dict(family.base), _last(family)
    inner = [
        symbol
        for symbol in symbols
        if symbol in family.declared and (symbol in last or symbol not in family.batch)
    ]
    batch = [symbol for symbol in symbols if symbol in family.batch and symbol not in inner]
    deep = max(len(tensor.dims) for tensor in family.tensors) > 3
    multiple = {symbol: family.multiples.get(symbol, 1) for symbol in symbols}
    widest = max(inner, key=lambda symbol: base[symbol], default=None)
    parts = [
        symbol for symbol in symbols if symbol not in family.batch and symbol not in family.declared
    ]

    def rows(*numbers: int) -> dict[str, int]:
        given = itertools.chain(numbers, itertools.repeat(1))
        return {
            symbol: number * multiple[symbol] for symbol, number in zip(batch, given, strict=False)
        }

    def wide(number: int) -> dict[str, int]:
        return {widest: -(-number // multiple[widest]) * multiple[widest]} if widest else {}

    powers = {symbol: _power(max(base[symbol], multiple[symbol])) for symbol in symbols}
    yield {**base, **powers}
    # Rows of heads are short. Others are as long as in models, or longer than usual blocks.
    widths = (80, 128, 64, 256, 96, 512) if deep else (1000, WIDTH, 96, 8193, 640, 16_385)
    counts = ((1,), (2, 2), (17,), (2,), (8,), (1,))
    for count, width in zip(counts, widths, strict=True):
        yield {**base, **rows(*count), **wide(width)}
    yield {**base, **rows(300)}
    yield {**base, **rows(3), **wide(1)}
    yield {**base, **rows(5), **wide(10)}
    for symbol, number in itertools.product(parts, (1, 2)):
        yield {**base, **rows(2), symbol: number}
    for symbol in parts:
        yield {**base, **rows(2), symbol: min(4 * base[symbol], family.numbers[symbol])}
        yield {**base, **rows(1), symbol: min(16 * base[symbol], family.numbers[symbol])}
        yield {**base, **rows(1), symbol: min(32 * base[symbol], family.numbers[symbol])}
    for symbol in inner:
        if symbol != widest:
            yield {**base, **rows(2), symbol: 2 * base[symbol]}
            yield {**base, symbol: multiple[symbol]}


def _power(size: int) -> int:
    return 1 << (size - 1).bit_length()

"""Views, slices, concatenations and padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kmint_tui.graph import views
from kmint_tui.graph.aten.table import entry, size
from kmint_tui.graph.program import OutOfScope
from kmint_tui.graph.sizes import ONE, ZERO, Size, product
from kmint_tui.graph.values import Value
from kmint_tui.graph.windows import put, rolled

_WHOLE = 2**62
"""PyTorch writes an end from here on for "to the end"."""
_MOST_SPLIT = 64


@entry("view", "reshape", "_unsafe_view", "_reshape_alias", "reshape_copy", "view_copy")
def _view(x: Value, shape: Sequence[Any], *_: Any) -> Value:
    known = [None if one == -1 else size(one) for one in shape]
    rest = product([one for one in known if one is not None])
    return views.reshape(
        x, [product(x.sizes).divided_by(rest) if one is None else one for one in known]
    )


@entry("flatten")
def _flatten(x: Value, start: int = 0, end: int = -1) -> Value:
    first, last = start % len(x.dims), end % len(x.dims)
    total = product(x.sizes[first : last + 1])
    return views.reshape(x, [*x.sizes[:first], total, *x.sizes[last + 1 :]])


@entry("permute")
def _permute(x: Value, order: Sequence[int]) -> Value:
    return views.permute(x, [place % len(x.dims) for place in order])


@entry("transpose", "swapaxes")
def _transpose(x: Value, first: int, second: int) -> Value:
    order = list(range(len(x.dims)))
    if order:
        order[first], order[second] = order[second], order[first]
    return views.permute(x, order)


@entry("diagonal")
def _diagonal(x: Value, offset: int = 0, first: int = 0, second: int = 1) -> Value:
    return views.diagonal(x, offset, first % len(x.dims), second % len(x.dims))


@entry("t")
def _t(x: Value) -> Value:
    return _transpose(x, 0, 1) if len(x.dims) == 2 else x


@entry("unsqueeze")
def _unsqueeze(x: Value, place: int) -> Value:
    at = place % (len(x.dims) + 1)
    return replace(x, dims=(*x.dims[:at], (), *x.dims[at:]))


@entry("squeeze")
def squeeze(x: Value, places: int | Sequence[int] | None = None) -> Value:
    """The tensor without the given dimensions of size one; by default without all of them."""
    chosen = range(len(x.dims)) if places is None else places
    chosen = [chosen] if isinstance(chosen, int) else chosen
    gone = {place % len(x.dims) for place in chosen} if x.dims else set()
    return replace(
        x, dims=tuple(dim for place, dim in enumerate(x.dims) if place not in gone or dim)
    )


@entry("expand")
def _expand(x: Value, sizes: Sequence[Any], **_: Any) -> Value:
    return views.expand(x, [None if one == -1 else size(one) for one in sizes])


@entry("repeat")
def _repeat(x: Value, times: Sequence[Any]) -> Value:
    counts = [size(one) for one in times]
    own = counts[len(counts) - len(x.dims) :]
    if any(one.value != 1 and dim for one, dim in zip(own, x.dims, strict=True)):
        raise OutOfScope("a repeat of a dimension that is longer than one")
    return views.expand(x, [one if one.value != 1 else None for one in counts])


@entry("slice")
def _slice(x: Value, place: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Value:
    whole = x.sizes[place]
    first, last = _bound(start, whole, ZERO), _bound(end, whole, whole)
    if step != 1:
        if not isinstance(step, int) or first.value >= step or last != whole:
            raise OutOfScope("a slice with a step over a part of a dimension")
        return views.every(x, place % len(x.dims), first.value, step)
    return views.part(x, place % len(x.dims), first, last - first)


def _bound(given: Any, whole: Size, otherwise: Size) -> Size:
    """An end of a slice: negative ends count from the end, and larger ones are clamped."""
    if given is None or (isinstance(given, int) and given >= _WHOLE):
        return otherwise
    found = size(given)
    found = whole + found if found.value < 0 else found
    return whole if found.value > whole.value else found


@entry("narrow")
def _narrow(x: Value, place: int, start: Any, length: Any) -> Value:
    return views.part(x, place % len(x.dims), size(start), size(length))


@entry("select")
def _select(x: Value, place: int, position: Any) -> Value:
    at = place % len(x.dims)
    found = size(position)
    return views.select(x, at, x.sizes[at] + found if found.value < 0 else found)


@entry("split_with_sizes")
def _split_with_sizes(x: Value, sizes: Sequence[Any], place: int = 0) -> list[Value]:
    made, start = [], ZERO
    for length in map(size, sizes):
        made.append(views.part(x, place % len(x.dims), start, length))
        start = start + length
    return made


@entry("split")
def _split(x: Value, length: Any, place: int = 0) -> list[Value]:
    if not isinstance(length, (int, Size)):
        return _split_with_sizes(x, length, place)
    each, whole = size(length), x.sizes[place]
    count = -(-whole.value // each.value)
    if count > _MOST_SPLIT:
        raise OutOfScope("a split into many pieces")
    starts = [Size.of(number) * each for number in range(count)]
    return [
        views.part(x, place % len(x.dims), start, _shorter(each, whole - start)) for start in starts
    ]


def _shorter(each: Size, left: Size) -> Size:
    return each if left.value >= each.value else left


@entry("unbind")
def _unbind(x: Value, place: int = 0) -> list[Value]:
    count = x.sizes[place]
    if not count.is_constant or count.value > views.MOST_PIECES:
        raise OutOfScope("an unbind into many pieces")
    return [views.select(x, place % len(x.dims), Size.of(number)) for number in range(count.value)]


@entry("cat", "concat")
def _cat(values: Sequence[Value], place: int = 0) -> Value:
    return views.concatenate(list(values), place % len(values[0].dims))


@entry("stack")
def _stack(values: Sequence[Value], place: int = 0) -> Value:
    return views.stack(list(values), place % (len(values[0].dims) + 1))


@entry("flip")
def _flip(x: Value, places: Sequence[int]) -> Value:
    for place in places:
        x = views.flip(x, place % len(x.dims))
    return x


@entry("roll")
def _roll(x: Value, shifts: Any, places: Any = ()) -> Value:
    pairs = list(zip(_list(shifts), _list(places), strict=False))
    if len(pairs) != len(_list(shifts)) or not all(isinstance(one, int) for one, _ in pairs):
        raise OutOfScope("a roll without a dimension, or by a size that varies")
    for shift, place in pairs:
        x = rolled(x, place % len(x.dims), shift)
    return x


def _list(given: Any) -> list[Any]:
    return list(given) if isinstance(given, (list, tuple)) else [given]


@entry("slice_scatter")
def _slice_scatter(
    x: Value, part: Value, place: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Value:
    whole = x.sizes[place]
    return put(
        x, part, place % len(x.dims), _bound(start, whole, ZERO), _bound(end, whole, whole), step
    )


@entry("select_scatter")
def _select_scatter(x: Value, part: Value, place: int, position: Any) -> Value:
    at, found = place % len(x.dims), size(position)
    start = x.sizes[at] + found if found.value < 0 else found
    wide = replace(part, dims=(*part.dims[:at], (), *part.dims[at:]))
    return put(x, wide, at, start, start + ONE)


@entry("constant_pad_nd")
def _pad(x: Value, amounts: Sequence[Any], fill: float = 0.0) -> Value:
    if not all(isinstance(amount, int) for amount in amounts):
        raise OutOfScope("padding by a size that varies")
    number: float = float(fill) if x.kind == "f" else int(fill)
    for behind in range(len(amounts) // 2):
        before, after = amounts[2 * behind : 2 * behind + 2]
        if before or after:
            x = views.padded(x, len(x.dims) - 1 - behind, before, after, number)
    return x

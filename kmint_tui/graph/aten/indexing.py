"""Reading and writing at computed places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kmint_tui.graph import values as v
from kmint_tui.graph import views
from kmint_tui.graph.aten.pointwise import binary, where
from kmint_tui.graph.aten.table import entry
from kmint_tui.graph.program import OutOfScope
from kmint_tui.graph.values import Value


@entry("gather")
def _gather(x: Value, place: int, index: Value, **_: Any) -> Value:
    return views.take(x, place % max(1, len(x.dims)), index)


@entry("embedding")
def _embedding(weight: Value, index: Value, *_: Any) -> Value:
    return views.take(weight, 0, replace(index, dims=(*index.dims, ())))


@entry("index_select")
def _index_select(x: Value, place: int, index: Value) -> Value:
    at = place % len(x.dims)
    behind = len(x.dims) - at - 1
    return views.take(x, at, replace(index, dims=(*index.dims, *((),) * behind)))


@entry("index")
def _index(x: Value, indices: Sequence[Value | None]) -> Value:
    given = [number for number, index in enumerate(indices) if index is not None]
    chosen = [index for index in indices if index is not None]
    if any(index.kind == "b" for index in chosen):
        raise OutOfScope("a selection by a mask, whose size values decide")
    if given != list(range(given[0], given[0] + len(given))):
        raise OutOfScope("an index by tensors with a whole dimension between them")
    return views.pick(x, given[0], chosen)


@entry("scatter")
def _scatter(x: Value, place: int, index: Value, value: Any, **options: Any) -> Value:
    """One element of each row replaced, as in the gradient of a gather."""
    if options.get("reduce") or index.dims[place % len(x.dims)]:
        raise OutOfScope("a scatter of more than one element of a row")
    return where(binary("eq", v.positions(x, place), index), value, x)

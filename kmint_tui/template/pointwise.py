"""The structures of stages that reduce nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from kmint_tui.graph.program import PLAIN, Line, Stage, Store
from kmint_tui.graph.vocabulary import LOAD
from kmint_tui.template.frame import Frame, Settings
from kmint_tui.template.statements import loaded

EVEN, ODD = "c * 2", "c * 2 + 1"
_FLAT_ROW, _FLAT_COLUMN = re.compile(r"\br\b"), re.compile(r"\bc\b")


class Flat(Frame):
    masks = {"mn": "mask", "n": "mask", "m": "mask", "1": ""}
    extra = ("total",)

    def head(self) -> Iterator[str]:
        yield "i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)"
        yield "mask = i < total"
        texts = [
            self.address(text)
            for text in (
                *self.stage.addresses,
                *(line.arguments[0] for line in self.stage.lines if line.op == "index"),
            )
        ]
        if any(_FLAT_ROW.search(text) for text in texts):
            yield "r = i // N"
        if any(_FLAT_COLUMN.search(text) for text in texts):
            yield "c = i % N"

    def address(self, text: str) -> str:
        if not self.stage.has_rows:
            return _FLAT_COLUMN.sub("i", text)
        return "i" if text == PLAIN else text

    def grid(self) -> str:
        return "(triton.cdiv(total, BLOCK),)"

    def setup(self) -> Iterator[str]:
        yield "total = M * N" if self.stage.has_rows else "total = N"
        yield f"BLOCK = {self.settings.block}"


class Pairs(Flat):
    def __init__(self, stage: Stage, settings: Settings) -> None:
        super().__init__(stage, settings)
        lines = [line for line in stage.lines if line.op == LOAD]
        reads = {(line.arguments[0], line.kind, line.arguments[1]): line.name for line in lines}
        writes = {(store.tensor, store.address): store.value for store in stage.stores}
        self.partners = {
            name: partner
            for (tensor, kind, address), name in reads.items()
            if address == EVEN and (partner := reads.get((tensor, kind, ODD)))
        }
        self._odd = set(self.partners.values())
        self._written = {
            tensor: (value, odd)
            for (tensor, address), value in writes.items()
            if address == EVEN and (odd := writes.get((tensor, ODD)))
        }

    def head(self) -> Iterator[str]:
        yield from super().head()
        yield "j = tl.program_id(0).to(tl.int64) * BLOCK * 2 + tl.arange(0, 2 * BLOCK)"
        yield "both = j < total * 2"

    def statements(self, line: Line) -> Iterator[str]:
        if line.name in self._odd:
            return
        if line.name not in self.partners:
            yield from super().statements(line)
            return
        # The two values of a pair come out of one read, whose addresses are neighbours.
        pair = replace(line, name=f"p{line.name[1:]}")
        yield loaded(pair, f"{line.arguments[0]} + j", "both")
        names = f"{line.name}, {self.partners[line.name]}"
        yield f"{names} = tl.split(tl.reshape({pair.name}, (BLOCK, 2)))"

    def stored(self, store: Store) -> str:
        found = self._written.get(store.tensor)
        if found is None or store.address not in (EVEN, ODD):
            return super().stored(store)
        if store.address == EVEN:
            return f"{store.tensor}_pairs = tl.interleave({found[0]}, {found[1]})"
        return f"tl.store({store.tensor} + j, {store.tensor}_pairs, mask=both)"


class Grid(Frame):
    def head(self) -> Iterator[str]:
        yield "r = tl.program_id(0).to(tl.int64)"
        yield f"c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK){self.column_cast()}"
        yield "mask = c < N"

    def grid(self) -> str:
        return "(M, triton.cdiv(N, BLOCK))"

    def setup(self) -> Iterator[str]:
        yield f"BLOCK = {self.settings.block}"

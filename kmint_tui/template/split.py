"""The structure for few long rows: two launches, with several programs a row in each.

The first launch reduces parts of a row, and stores a result for each part. In the second launch,
every program joins the results of its row, always in the same order. Then it computes its part of
the outputs. The parts depend on the columns alone, so a row has the same bits in any batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kmint_tui.graph.program import Line, Stage, Store, is_rowwise
from kmint_tui.template.centred import Centred, centred_sums
from kmint_tui.template.frame import INDENT, Frame, Kernel, Settings, made
from kmint_tui.template.online import Online, online_sums
from kmint_tui.template.reductions import Reduction, names_in, narrow, needed, reductions
from kmint_tui.template.statements import identity

_SCRATCH = {"float32": "parts", "int64": "counts"}
_LENGTH = "tl.minimum(CHUNK, N - first)"


class Split(Frame):
    constants = ("SPLITS", "BLOCK")

    def __init__(self, stage: Stage, settings: Settings) -> None:
        super().__init__(stage, settings)
        self._online, self._centred = online_sums(stage), centred_sums(stage)
        self._lanes = [Reduction(line) for line in reductions(stage)]
        self._wide = [store for store in stage.stores if "n" in store.over]
        self._narrow = narrow(stage)

    def kernels(self) -> Iterator[Kernel]:
        rows, parts = "M" if self.stage.has_rows else "1", "triton.cdiv(N, CHUNK)"
        warps = self.settings.warps
        yield self._kernel("reduce_parts", list(self._parts()), (f"({rows}, {parts})", warps))
        whole = list(self._whole())
        if self._wide:
            yield self._kernel("kernel", whole, (f"({rows}, {parts})", warps))
        else:
            yield self._kernel("kernel", whole, (f"({rows},)", "1"))

    def _kernel(self, name: str, body: list[str], launch: tuple[str, str]) -> Kernel:
        """A kernel with the arguments that its statements use."""
        used = names_in(body)
        given = (*self.stage.arguments, *self._scratch(), "CHUNK")
        return made(
            name,
            [one for one in given if one in used],
            [one for one in self.constants if one in used],
            body,
            launch,
        )

    def setup(self) -> Iterator[str]:
        yield f"SPLITS = {self.settings.splits}"
        yield f"BLOCK = {self.settings.block}"
        yield "CHUNK = triton.cdiv(triton.cdiv(N, SPLITS), BLOCK) * BLOCK"
        for dtype, name in self._scratch_types():
            sizes = ["triton.cdiv(N, CHUNK)", str(self._slots(dtype))]
            sizes += ["M"] if self.stage.has_rows else []
            where = f"device={self.stage.arguments[0]}.device"
            yield f"{name} = torch.empty(({', '.join(sizes)}), dtype=torch.{dtype}, {where})"

    def stored(self, store: Store) -> str:
        if not self._wide or "n" in store.over:
            return super().stored(store)
        # One program of a row stores the values that the row has once.
        pointer = f"{store.tensor} + {store.address}"
        return f"tl.store({pointer}, {store.value}, mask=first == 0)"

    def _scratch_types(self) -> list[tuple[str, str]]:
        return [pair for pair in _SCRATCH.items() if self._slots(pair[0])]

    def _scratch(self) -> list[str]:
        return [name for _, name in self._scratch_types()]

    def _slots(self, dtype: str) -> int:
        return sum(lanes.dtype == dtype for lanes in self._lanes)

    def _slot(self, lanes: Reduction) -> str:
        """The address of the results of a row's parts `j`."""
        alike = [one for one in self._lanes if one.dtype == lanes.dtype]
        place = "j" if len(alike) == 1 else f"(j * {len(alike)} + {alike.index(lanes)})"
        row = " * M + r" if self.stage.has_rows else ""
        return f"{_SCRATCH[lanes.dtype]} + {place}{row}"

    def _row(self, *, split: bool) -> Iterator[str]:
        if self.stage.has_rows:
            yield "r = tl.program_id(0).to(tl.int64)"
        if split:
            yield "first = tl.program_id(1) * CHUNK"

    def _blocks(self, wanted: Iterable[str]) -> Iterator[str]:
        """The head of the loop over the program's columns, and the values that are wanted."""
        yield f"for start in range(0, {_LENGTH}, BLOCK):"
        yield f"{INDENT}c = first + start + tl.arange(0, BLOCK){self.column_cast()}"
        yield f"{INDENT}mask = c < N"
        for line in needed(self.stage, set(wanted), known=self._narrow):
            yield from (INDENT + statement for statement in self.statements(line))

    def _parts(self) -> Iterator[str]:
        """The first launch."""
        later: list[Online | Centred] = [*self._online.values(), *self._centred.values()]
        names = {one.name for one in later}
        plain = [one for one in self._lanes if one.line.name not in names]
        reduced = names_in(text for one in plain for text in one.line.arguments)
        yield from self._row(split=True)
        for line in needed(self.stage, reduced):
            if line.name in self._narrow:
                yield from self.statements(line)
        yield from (one.start() for one in later)
        yield from (lanes.start() for lanes in plain)
        yield from self._blocks(reduced)
        for one in later:
            yield from (INDENT + statement for statement in one.step())
        for lanes in plain:
            yield INDENT + lanes.step()
        for lanes in plain:
            yield lanes.end()
        for online in self._online.values():
            yield from online.partial()
        if self._centred:
            yield f"length = {_LENGTH}"
            yield "count = tl.cdiv(length - tl.arange(0, BLOCK), BLOCK)"
        for centred in self._centred.values():
            yield from centred.joined("count", f"{centred.total} / length")
        yield "j = tl.program_id(1).to(tl.int64)"
        for lanes in self._lanes:
            yield f"tl.store({self._slot(lanes)}, {lanes.line.name})"

    def _whole(self) -> Iterator[str]:
        """The second launch."""
        yield from self._row(split=bool(self._wide))
        yield "j = tl.arange(0, SPLITS).to(tl.int64)"
        yield "part = j * CHUNK < N"
        if self._centred:
            yield "count = tl.where(part, tl.minimum(N - j * CHUNK, CHUNK), 0)"
        for lanes in self._lanes:
            other = identity(lanes.line)
            yield f"{lanes.total} = tl.load({self._slot(lanes)}, mask=part, other={other})"
        for line in self._joined():
            if not is_rowwise(line.op):
                yield from self.statements(line)
            elif line.name in self._online:
                yield self._online[line.name].end()
            elif line.name in self._centred:
                centred = self._centred[line.name]
                yield from centred.joined("count", centred.centre)
            else:
                yield Reduction(line).end()
        if self._wide:
            yield from self._blocks(
                names_in(text for store in self._wide for text in (store.value, store.address))
            )
        for store in self._wide:
            yield INDENT + self.stored(store)
        for store in self.stage.stores:
            if store not in self._wide:
                yield self.stored(store)

    def _joined(self) -> list[Line]:
        """The values without columns that the outputs need, in order."""
        names = names_in(
            text for store in self.stage.stores for text in (store.value, store.address)
        )
        found = list[Line]()
        for line in reversed(self.stage.lines):
            if line.name not in names:
                continue
            if line.name in self._narrow:
                found.append(line)
            if line.name in self._online:
                names |= {self._online[line.name].maximum, self._online[line.name].centre}
            elif line.name in self._centred:
                names |= {self._centred[line.name].total, self._centred[line.name].centre}
            elif not is_rowwise(line.op):
                names |= names_in(line.arguments)
        return found[::-1]


def not_split(stage: Stage) -> str:
    """The reason why two launches do not compute a stage; empty if they do."""
    online, centred = online_sums(stage), centred_sums(stage)
    names = {line.name for line in reductions(stage)}
    for line in reductions(stage):
        if line.op not in ("sum", "max", "min"):
            return f"two launches do not split `{line.op}`"
        found = online.get(line.name) or centred.get(line.name)
        reduced = {found.of} if found else names_in(line.arguments)
        if any(one.name in names for one in needed(stage, reduced)):
            return "its reductions depend on each other, and two launches make one step"
    return ""

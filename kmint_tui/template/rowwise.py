"""The structures of stages that reduce or scan rows."""

from __future__ import annotations

from collections.abc import Iterator

from kmint_tui.graph.program import Line, Stage, Store, is_rowwise
from kmint_tui.template.frame import INDENT, Frame, Settings
from kmint_tui.template.online import online_sums
from kmint_tui.template.reductions import Reduction, names_in, narrow, needed, reductions


class Row(Frame):
    def head(self) -> Iterator[str]:
        if self.stage.has_rows:
            yield "r = tl.program_id(0).to(tl.int64)"
        yield f"c = tl.arange(0, BLOCK){self.column_cast()}"
        yield "mask = c < N"


class Tile(Frame):
    constants = ("ROWS", "BLOCK")
    masks = {"mn": "mask", "n": "inside", "m": "live", "1": ""}
    axis = "axis=1"
    keep = ", keep_dims=True"

    def head(self) -> Iterator[str]:
        yield "r = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]"
        yield f"c = tl.arange(0, BLOCK)[None, :]{self.column_cast()}"
        yield "live = r < M"
        yield "inside = c < N"
        yield "mask = live & inside"

    def grid(self) -> str:
        return "(triton.cdiv(M, ROWS),)"

    def setup(self) -> Iterator[str]:
        yield "BLOCK = triton.next_power_of_2(N)"
        yield f"ROWS = max(1, min({self.settings.rows}, {self.settings.elements} // BLOCK))"


class Persist(Row):
    def body(self) -> Iterator[str]:
        yield f"c = tl.arange(0, BLOCK){self.column_cast()}"
        yield "mask = c < N"
        of_all = [line for line in self.stage.lines if "m" not in line.over]
        for line in of_all:
            yield from self.statements(line)
        yield "for row in range(tl.program_id(0), M, tl.num_programs(0)):"
        # Triton's own interpreter counts rows in Python's integers.
        yield f"{INDENT}r = tl.cast(row, tl.int64)"
        for line in self.stage.lines:
            if line not in of_all:
                yield from (INDENT + statement for statement in self.statements(line))
        for store in self.stage.stores:
            yield INDENT + self.stored(store)

    def grid(self) -> str:
        return f"(min(M, {self.settings.programs}),)"


class Loop(Frame):
    def __init__(self, stage: Stage, settings: Settings) -> None:
        super().__init__(stage, settings)
        self._online = online_sums(stage)
        self._again: set[str] = set()
        self._is_read_twice = (
            sum(1 for now, wide in self._passes(self._depths()) if now or wide) > 1
        )

    def setup(self) -> Iterator[str]:
        yield f"BLOCK = {self.settings.block}"

    def body(self) -> Iterator[str]:
        depth = self._depths()
        done: set[str] = set()
        if self.stage.has_rows:
            yield "r = tl.program_id(0).to(tl.int64)"
        passes = list(self._passes(depth))
        for number, (now, wide) in enumerate(passes):
            for line in self.stage.lines:
                if line.over in ("m", "1") and depth[line.name] <= number:
                    if line.name not in done:
                        yield from self._narrow(line)
                    done.add(line.name)
            self._again = {
                line.name for later in passes[number + 1 :] for line in self._needed(*later)
            }
            yield from self._pass(now, wide)
        for store in self.stage.stores:
            if "n" not in store.over:
                yield self.stored(store)

    def hint(self, line: Line) -> str:
        """A row stays in the cache for the next pass, and leaves it after the last one."""
        if not self._is_read_twice or line.over != "mn":
            return ""
        return "evict_last" if line.name in self._again else "evict_first"

    def _narrow(self, line: Line) -> Iterator[str]:
        """The statements of a value that has no columns, after the passes that it waits for."""
        if line.name in self._online:
            yield self._online[line.name].end()
        elif not is_rowwise(line.op):
            yield from self.statements(line)

    def _passes(self, depth: dict[str, int]) -> Iterator[tuple[list[Line], list[Store]]]:
        """The reductions of each pass over the row, and the stores along the row."""
        last = max(depth.values())
        for number in range(last + 1):
            yield (
                [line for line in reductions(self.stage) if depth[line.name] == number + 1],
                [store for store in self.stage.stores if "n" in store.over and number == last],
            )

    def _depths(self) -> dict[str, int]:
        """Number of reductions, one after the other, that each value waits for."""
        depth: dict[str, int] = {}
        for line in self.stage.lines:
            names = names_in(line.arguments)
            found = max((depth.get(name, 0) for name in names), default=0) + is_rowwise(line.op)
            # An online sum is made in the pass of its maximum.
            online = self._online.get(line.name)
            depth[line.name] = found if online is None else depth[online.maximum]
        return depth

    def _pass(self, now: list[Line], stores: list[Store]) -> Iterator[str]:
        if not now and not stores:
            return
        sums = [self._online[line.name] for line in now if line.name in self._online]
        plain = [Reduction(line) for line in now if line.name not in self._online]
        yield from (one.start() for one in sums)
        yield from (lanes.start() for lanes in plain)
        yield "for start in range(0, N, BLOCK):"
        yield f"{INDENT}c = start + tl.arange(0, BLOCK){self.column_cast()}"
        yield f"{INDENT}mask = c < N"
        for line in self._needed(now, stores):
            yield from (INDENT + statement for statement in self.statements(line))
        for one in sums:
            yield from (INDENT + statement for statement in one.step())
        for lanes in plain:
            yield INDENT + lanes.step()
        for store in stores:
            yield INDENT + self.stored(store)
        for lanes in plain:
            yield lanes.end()

    def _needed(self, now: list[Line], stores: list[Store]) -> list[Line]:
        """The lines along the row that these reductions and stores need, in order."""
        plain = (line for line in now if line.name not in self._online)
        wanted = names_in(text for line in plain for text in line.arguments)
        wanted |= names_in(text for store in stores for text in (store.value, store.address))
        return needed(self.stage, wanted, known=narrow(self.stage))

"""The structures of a kernel: each says which elements a program has, and how it reads them.

row      a whole row in one block;
tile     several rows in one block;
persist  as many programs as the card holds at once, each with one row after the other;
loop     a row in blocks, once for each reduction that depends on another;
flat     any elements, where nothing is reduced;
grid     a block of one row, where nothing is reduced.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from kmint_tui.graph.program import PLAIN, Line, Stage, Store, is_rowwise
from kmint_tui.graph.vocabulary import LOAD, REVERSED, SCANS
from kmint_tui.template.online import online_sums
from kmint_tui.template.statements import identity, loaded, pointwise_statements

Structure = Literal["row", "tile", "persist", "loop", "flat", "grid"]
INDENT = "    "
_LONG = re.compile(r"\bc( //| \*)")
_FLAT_ROW, _FLAT_COLUMN = re.compile(r"\br\b"), re.compile(r"\bc\b")


@dataclass(frozen=True)
class Settings:
    """Launch constants.

    `block` counts columns, or elements of `flat`. A tile has at most `rows` rows and `elements`
    elements. `programs` counts the persistent programs of a multiprocessor. `warps` is a Python
    expression.
    """

    block: int = 1024
    rows: int = 16
    elements: int = 4096
    programs: int = 4
    warps: str = "8"


def structures_of(stage: Stage) -> tuple[Structure, ...]:
    """The structures that a stage can have."""
    if not stage.is_rowwise:
        return ("flat", "grid", "tile") if stage.has_rows else ("flat",)
    loops = all(line.op in ("sum", "max", "min") for line in stage.lines if is_rowwise(line.op))
    found: tuple[Structure, ...] = ("row", "tile", "persist") if stage.has_rows else ("row",)
    return (*found, "loop") if loops else found


def kernel_source(stage: Stage, structure: Structure, settings: Settings) -> str:
    """`kernel` and `launch` of a stage, in the stage's names. Constants stay `k0`, `k1`, ...."""
    frame = _FRAMES[structure](stage, settings)
    names = ", ".join(
        (*stage.arguments, *frame.extra, *(f"{name}: tl.constexpr" for name in frame.constants))
    )
    helper = _PRODUCT if any(line.op == "prod" for line in stage.lines) else ""
    body = "".join(f"{INDENT}{line}\n" for line in frame.body())
    host = "".join(f"{INDENT}{line}\n" for line in frame.host())
    kernel = f"{helper}@triton.jit\ndef kernel({names}):\n{body}"
    return f"{kernel}\n\ndef launch({', '.join(stage.arguments)}):\n{host}"


_PRODUCT = "@triton.jit\ndef product(x, y):\n    return x * y\n\n\n"


class _Frame:
    """One structure. `masks` gives the mask of a value by its loops; an empty text is no mask."""

    constants: tuple[str, ...] = ("BLOCK",)
    extra: tuple[str, ...] = ()
    masks: dict[str, str] = {"mn": "mask", "n": "mask", "m": "", "1": ""}
    axis = "axis=0"
    keep = ""

    def __init__(self, stage: Stage, settings: Settings) -> None:
        self.stage, self.settings = stage, settings

    def body(self) -> Iterator[str]:
        """The kernel's statements."""
        yield from self.head()
        for line in self.stage.lines:
            yield from self.statements(line)
        for store in self.stage.stores:
            yield self.stored(store)

    def head(self) -> Iterator[str]:
        """The rows, columns and masks of the program."""
        raise NotImplementedError

    def grid(self) -> str:
        """The grid of programs, as Python source."""
        return "(M,)" if self.stage.has_rows else "(1,)"

    def setup(self) -> Iterator[str]:
        """The statements before the launch."""
        yield "BLOCK = triton.next_power_of_2(N)"

    def host(self) -> Iterator[str]:
        """The statements of `launch`."""
        yield from self.setup()
        given = ", ".join(
            (*self.stage.arguments, *self.extra, *(f"{name}={name}" for name in self.constants))
        )
        yield f"kernel[{self.grid()}]({given}, num_warps={self.settings.warps})"

    def address(self, text: str) -> str:
        """An address in the terms of the structure."""
        return text

    def column_cast(self) -> str:
        """Columns are 64-bit if an address multiplies or divides them."""
        texts = (
            *self.stage.addresses,
            *(line.arguments[0] for line in self.stage.lines if line.op == "index"),
        )
        return ".to(tl.int64)" if any(_LONG.search(text) for text in texts) else ""

    def statements(self, line: Line) -> Iterator[str]:
        """The statements of one line."""
        if line.op == LOAD:
            yield loaded(
                line,
                f"{line.arguments[0]} + {self.address(line.arguments[1])}",
                self.masks[line.over],
            )
        elif is_rowwise(line.op):
            yield self.rowwise(line)
        else:
            yield from pointwise_statements(line, self.address)

    def rowwise(self, line: Line) -> str:
        """A reduction or scan in one block."""
        masked = f"tl.where({self.masks['mn']}, {line.arguments[0]}, {identity(line)})"
        plain = line.op.removesuffix(REVERSED)
        if plain in SCANS:
            turned = ", reverse=True" if plain != line.op else ""
            return f"{line.name} = tl.{plain}({masked}, {self.axis}{turned})"
        if line.op == "prod":
            return f"{line.name} = tl.reduce({masked}, {self.axis[-1]}, product{self.keep})"
        return f"{line.name} = tl.{line.op}({masked}, {self.axis}{self.keep})"

    def stored(self, store: Store) -> str:
        """The statement of a write."""
        pointer = f"{store.tensor} + {self.address(store.address)}"
        mask = self.masks[store.over]
        masked = f", mask={mask}" if mask else ""
        return f"tl.store({pointer}, {store.value}{masked})"


class _Row(_Frame):
    def head(self) -> Iterator[str]:
        if self.stage.has_rows:
            yield "r = tl.program_id(0).to(tl.int64)"
        yield f"c = tl.arange(0, BLOCK){self.column_cast()}"
        yield "mask = c < N"


class _Tile(_Frame):
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


class _Persist(_Row):
    def body(self) -> Iterator[str]:
        yield f"c = tl.arange(0, BLOCK){self.column_cast()}"
        yield "mask = c < N"
        of_all = [line for line in self.stage.lines if "m" not in line.over]
        for line in of_all:
            yield from self.statements(line)
        yield "for row in range(tl.program_id(0), M, tl.num_programs(0)):"
        yield f"{INDENT}r = row.to(tl.int64)"
        for line in self.stage.lines:
            if line not in of_all:
                yield from (INDENT + statement for statement in self.statements(line))
        for store in self.stage.stores:
            yield INDENT + self.stored(store)

    def grid(self) -> str:
        return "(min(M, programs),)"

    def setup(self) -> Iterator[str]:
        yield from super().setup()
        first = self.stage.arguments[0]
        count = f"torch.cuda.get_device_properties({first}.device).multi_processor_count"
        yield f"programs = {self.settings.programs} * {count}"


class _Loop(_Frame):
    def __init__(self, stage: Stage, settings: Settings) -> None:
        super().__init__(stage, settings)
        self._online = online_sums(stage)

    def setup(self) -> Iterator[str]:
        yield f"BLOCK = {self.settings.block}"

    def body(self) -> Iterator[str]:
        depth = self._depths()
        done: set[str] = set()
        if self.stage.has_rows:
            yield "r = tl.program_id(0).to(tl.int64)"
        reductions = [line for line in self.stage.lines if is_rowwise(line.op)]
        for number in range(max(depth.values()) + 1):
            for line in self.stage.lines:
                if (
                    line.over in ("m", "1")
                    and not is_rowwise(line.op)
                    and depth[line.name] <= number
                    and line.name not in done
                ):
                    done.add(line.name)
                    yield from self.statements(line)
            now = [line for line in reductions if depth[line.name] == number + 1]
            wide = [
                store
                for store in self.stage.stores
                if "n" in store.over and number == max(depth.values())
            ]
            yield from self._pass(now, wide)
        for store in self.stage.stores:
            if "n" not in store.over:
                yield self.stored(store)

    def _depths(self) -> dict[str, int]:
        """Number of reductions, one after the other, that each value waits for."""
        depth: dict[str, int] = {}
        for line in self.stage.lines:
            names = [word for text in line.arguments for word in re.findall(r"\w+", text)]
            found = max((depth.get(name, 0) for name in names), default=0) + is_rowwise(line.op)
            # An online sum is made in the pass of its maximum.
            online = self._online.get(line.name)
            depth[line.name] = found if online is None else depth[online.maximum]
        return depth

    def _pass(self, reductions: list[Line], stores: list[Store]) -> Iterator[str]:
        if not reductions and not stores:
            return
        sums = [self._online[line.name] for line in reductions if line.name in self._online]
        reductions = [line for line in reductions if line.name not in self._online]
        for one in sums:
            yield f"{one.total} = tl.zeros((BLOCK,), dtype=tl.float32)"
        for line in reductions:
            dtype = "tl.float32" if line.kind == "f" else "tl.int64"
            yield f"t{line.name[1:]} = tl.full((BLOCK,), {identity(line)}, dtype={dtype})"
        yield "for start in range(0, N, BLOCK):"
        yield f"{INDENT}c = start + tl.arange(0, BLOCK){self.column_cast()}"
        yield f"{INDENT}mask = c < N"
        for line in self._needed(reductions, stores):
            for statement in self.statements(line):
                yield INDENT + statement
        for one in sums:
            yield from (INDENT + statement for statement in one.step())
        for line in reductions:
            total, masked = (
                f"t{line.name[1:]}",
                f"tl.where(mask, {line.arguments[0]}, {identity(line)})",
            )
            yield INDENT + (
                f"{total} += {masked}"
                if line.op == "sum"
                else f"{total} = tl.{line.op}imum({total}, {masked})"
            )
        for store in stores:
            yield INDENT + self.stored(store)
        for line in reductions:
            yield f"{line.name} = tl.{line.op}(t{line.name[1:]}, axis=0)"
        for one in sums:
            yield one.end()

    def _needed(self, reductions: list[Line], stores: list[Store]) -> list[Line]:
        """The lines along the row that these reductions and stores need, in order."""
        wanted = {
            word
            for line in reductions
            for text in line.arguments
            for word in re.findall(r"\w+", text)
        }
        wanted |= {
            word
            for store in stores
            for text in (store.value, store.address)
            for word in re.findall(r"\w+", text)
        }
        found = []
        for line in reversed(self.stage.lines):
            if line.name in wanted and "n" in line.over:
                found.append(line)
                wanted |= {word for text in line.arguments for word in re.findall(r"\w+", text)}
        return found[::-1]


class _Flat(_Frame):
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


class _Grid(_Frame):
    def head(self) -> Iterator[str]:
        yield "r = tl.program_id(0).to(tl.int64)"
        yield f"c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK){self.column_cast()}"
        yield "mask = c < N"

    def grid(self) -> str:
        return "(M, triton.cdiv(N, BLOCK))"

    def setup(self) -> Iterator[str]:
        yield f"BLOCK = {self.settings.block}"


_FRAMES: dict[Structure, type[_Frame]] = {
    "row": _Row,
    "tile": _Tile,
    "persist": _Persist,
    "loop": _Loop,
    "flat": _Flat,
    "grid": _Grid,
}

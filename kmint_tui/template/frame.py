"""The parts that all structures of a kernel have: arguments, statements, masks, and the launch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kmint_tui.graph.program import Line, Stage, Store, is_rowwise
from kmint_tui.graph.vocabulary import LOAD, REVERSED, SCANS
from kmint_tui.template.statements import identity, loaded, pointwise_statements

INDENT = "    "
_LONG = re.compile(r"\bc( //| \*)")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Launch constants.

    `block` counts columns, or elements of `flat`. A tile has at most `rows` rows and `elements`
    elements. `programs` counts the persistent programs, `splits` the programs of a row. `warps` is
    a Python expression.
    """

    block: int = 1024
    rows: int = 16
    elements: int = 4096
    programs: int = 512
    splits: int = 64
    warps: str = "8"


@dataclass(frozen=True)
class Kernel:
    """One kernel: its source, and the statement that launches it."""

    source: str
    launch: str


def made(
    name: str,
    given: Sequence[str],
    constants: Sequence[str],
    body: Sequence[str],
    launch: tuple[str, str],
) -> Kernel:
    """The kernel of the statements in `body`, launched with a grid and a number of warps."""
    grid, warps = launch
    parameters = ", ".join((*given, *(f"{one}: tl.constexpr" for one in constants)))
    lines = "".join(f"{INDENT}{line}\n" for line in body)
    passed = ", ".join((*given, *(f"{one}={one}" for one in constants)))
    return Kernel(
        f"@triton.jit\ndef {name}({parameters}):\n{lines}",
        f"{name}[{grid}]({passed}, num_warps={warps})",
    )


class Frame:
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

    def kernels(self) -> Iterator[Kernel]:
        """The kernels, in the order of their launches."""
        given = (*self.stage.arguments, *self.extra)
        body = list(self.body())
        yield made("kernel", given, self.constants, body, (self.grid(), self.settings.warps))

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
                self.hint(line),
            )
        elif is_rowwise(line.op):
            yield self.rowwise(line)
        else:
            yield from pointwise_statements(line, self.address)

    def hint(self, line: Line) -> str:
        """The eviction policy of a load; empty for the usual one."""
        return ""

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

"""Turns a group of writes into a stage: positions become addresses, expressions become lines.

Equal expressions become one line. Lines have the order in which the writes need them, after the
loads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from kmint_tui.graph.axes import Axis, Index
from kmint_tui.graph.expressions import (
    Constant,
    Expression,
    Load,
    Pieces,
    Pointwise,
    Position,
    Reduce,
    Scalar,
    Scan,
    walk,
)
from kmint_tui.graph.loops import Loop, loops_of
from kmint_tui.graph.program import Line, OutOfScope, Over, Stage, Store
from kmint_tui.graph.sizes import ONE, Size
from kmint_tui.graph.stages import Group, flat_index
from kmint_tui.graph.vocabulary import INDEX, LOAD, Kind
from kmint_tui.graph.writes import Write

MOST_LITERAL = 2
"""Larger constant sizes get a name, so that a function has the same text at 8 groups and at 32."""
MOST_NAMES = 40
"""Values of a stage, and likewise its tensors, numbers and sizes: no smith was taught more."""
_VALUE = re.compile(r"\bv\d+\b")
_WORD = re.compile(r"\w+")
K = TypeVar("K")


def stage_of(
    group: Group, shape_of: Callable[[str], Sequence[Size]], show: Callable[[Size], str]
) -> Stage:
    """The stage. Raises OutOfScope.

    `shape_of` gives a tensor's sizes, and `show` writes a size for the host.
    """
    places = [(write, flat_index(write.sizes, write.indices)) for write in group.writes]
    accesses = [index for _, index in places]
    for write in group.writes:
        for node in walk(write.expression):
            if isinstance(node, Load):
                accesses.append(flat_index(shape_of(node.tensor), node.indices))
            elif isinstance(node, Position):
                accesses.append(node.index.resolved())
    rows, columns = loops_of(group, accesses)
    writer = _Writer(rows, columns, group.rows | group.columns, shape_of, show)
    for write, index in places:
        writer.store(write, index)
    return writer.stage()


def _loads_first(
    lines: Sequence[Line], stores: Sequence[Store]
) -> tuple[tuple[Line, ...], tuple[Store, ...]]:
    """The lines with loads first whose addresses depend on no value, so that they wait for memory
    together.
    """
    early = [line for line in lines if line.op == LOAD and not _VALUE.search(line.arguments[1])]
    ordered = [*early, *(line for line in lines if line not in early)]
    names = {line.name: f"v{number}" for number, line in enumerate(ordered)}

    def renamed(text: str) -> str:
        return _VALUE.sub(lambda match: names[match[0]], text)

    made = tuple(
        replace(line, name=names[line.name], arguments=tuple(map(renamed, line.arguments)))
        for line in ordered
    )
    return made, tuple(
        replace(store, address=renamed(store.address), value=renamed(store.value))
        for store in stores
    )


@dataclass(frozen=True)
class _Number:
    """A constant; equal ones share a name. The text distinguishes NaN and both zeros."""

    kind: Kind
    text: str
    value: float | int | bool = field(compare=False)


@dataclass
class _Names(Generic[K]):
    """Names given in order of first use."""

    letter: str
    known: dict[K, str] = field(default_factory=dict)

    def of(self, key: K) -> str:
        if len(self.known) >= MOST_NAMES and key not in self.known:
            raise OutOfScope(
                "a kernel with too many tensors, numbers or values: split the function"
            )
        return self.known.setdefault(key, f"{self.letter}{len(self.known)}")


class _Writer:
    """Writes the lines of one stage."""

    def __init__(
        self,
        rows: Loop,
        columns: Loop,
        every: frozenset[Axis],
        shape_of: Callable[[str], Sequence[Size]],
        show: Callable[[Size], str],
    ) -> None:
        self._rows, self._columns, self._every = rows, columns, every
        self._shape_of, self._show = shape_of, show
        self._reads = _Names[str]("a")
        self._writes = _Names[str]("b")
        self._numbers = _Names[str]("s")
        self._constants = _Names[_Number]("k")
        self._sizes: dict[tuple[Size, bool], str] = {}
        self._lines: dict[tuple[str, tuple[str, ...]], Line] = {}
        self._stores: list[Store] = []
        self._done: dict[int, str] = {}
        self._over: dict[str, Over] = {}

    def store(self, write: Write, index: Index) -> None:
        """One write, with the lines that it needs."""
        value = self._value(write.expression)
        address = self._address(index)
        tensor = self._writes.of(write.tensor)
        self._stores.append(Store(tensor, address, value, self._address_over(address)))

    def stage(self) -> Stage:
        """The stage of everything written."""
        lines, stores = _loads_first(tuple(self._lines.values()), self._stores)
        main = [("M", self._rows.size)] if self._rows.axes else []
        main.append(("N", self._columns.size))
        named = [*main, *((name, size) for (size, _), name in self._sizes.items())]
        return Stage(
            reads=tuple(self._reads.known),
            writes=tuple(self._writes.known),
            numbers=tuple(self._numbers.known),
            sizes=tuple((name, self._show(size)) for name, size in named),
            constants=tuple(constant.value for constant in self._constants.known),
            lines=lines,
            stores=stores,
            example=(self._rows.size.example, self._columns.size.example),
        )

    def _value(self, root: Expression) -> str:
        """The name of an expression's value."""
        for node in walk(root):
            if id(node) not in self._done:
                self._done[id(node)] = self._named(node)
        return self._done[id(root)]

    def _named(self, node: Expression) -> str:
        match node:
            case Constant(value=value):
                return self._single(self._constants.of(_Number(node.kind, repr(value), value)))
            case Scalar(value=str() as name):
                return self._single(self._numbers.of(name))
            case Scalar(value=Size() as size):
                name = self._size(size)
                if name.isdigit():
                    name = self._constants.of(_Number(node.kind, name, size.value))
                return self._single(name)
            case Position(index=index):
                address = self._address(index.resolved())
                return self._line(INDEX, (address,), self._address_over(address), node.kind)
            case Load(tensor=tensor, indices=indices):
                address = self._address(flat_index(self._shape_of(tensor), indices))
                given = (self._reads.of(tensor), address)
                return self._line(LOAD, given, self._address_over(address), node.kind)
            case Pointwise(op=op, arguments=arguments):
                names = tuple(self._done[id(one)] for one in arguments)
                return self._line(op, names, self._widest(names), node.kind)
            case Reduce(op=op, argument=argument):
                node.check()
                over: Over = "m" if self._rows.axes else "1"
                return self._line(op, (self._done[id(argument)],), over, node.kind)
            case Scan(op=op, argument=argument):
                name = self._done[id(argument)]
                return self._line(op, (name,), self._over[name], node.kind)
            case Pieces():
                raise OutOfScope("a concatenation whose pieces cannot be separated")
        raise AssertionError(node)

    def _single(self, name: str) -> str:
        """A constant, number or size: the same for all rows and columns."""
        self._over[name] = "1"
        return name

    def _line(self, op: str, arguments: tuple[str, ...], over: Over, kind: Kind) -> str:
        key = (op, arguments)
        if key not in self._lines:
            if len(self._lines) >= MOST_NAMES:
                raise OutOfScope("a kernel of too many operations: split the function")
            self._lines[key] = Line(f"v{len(self._lines)}", op, arguments, over, kind)
        name = self._lines[key].name
        self._over[name] = over
        return name

    def _widest(self, names: Sequence[str]) -> Over:
        """The loops of an operation, from the names of its arguments."""
        return _over_of({letter for name in names for letter in self._over[name]})

    def _address_over(self, address: str) -> Over:
        """The loops of an address: rows, columns, and the loops of the values in it."""
        words = _WORD.findall(address)
        letters = {{"r": "m", "c": "n"}[word] for word in words if word in ("r", "c")}
        return _over_of(letters | {one for word in words for one in self._over.get(word, "1")})

    def _size(self, size: Size) -> str:
        """The name of a size in addresses."""
        if size == self._columns.size:
            return "N"
        if self._rows.axes and size == self._rows.size:
            return "M"
        if size.is_constant and 0 <= size.value <= MOST_LITERAL:
            return str(size.value)
        if len(self._sizes) >= MOST_NAMES:
            raise OutOfScope("a kernel with too many different sizes: split the function")
        return self._sizes.setdefault((size, size.apart), f"K{len(self._sizes)}")

    def _address(self, index: Index) -> str:
        """A place as text: the parts that rows, values and columns add, in that order."""
        if any(axis not in self._every for axis, _ in index.terms):
            raise OutOfScope("a dimension that no loop runs over")
        plus: list[str] = []
        minus: list[str] = []
        for text, step in self._parts(index):
            size = step if step.value > 0 else -step
            part = text if size == ONE else f"{text} * {self._size(size)}"
            (plus if step.value > 0 else minus).append(part)
        if index.offset.value > 0:
            offset = self._size(index.offset)
            plus = [*plus, offset] if not minus else [offset, *plus]
        elif index.offset.value < 0:
            minus.append(self._size(-index.offset))
        return "".join([" + ".join(plus) or "0", *(f" - {each}" for each in minus)])

    def _parts(self, index: Index) -> Iterator[tuple[str, Size]]:
        # Sizes are numbered in the order in which they are written.
        yield from self._rows.terms(index, "r", self._size)
        for value, step in index.values:
            yield self._value(value), step
        yield from self._columns.terms(index, "c", self._size)


def _over_of(letters: set[str]) -> Over:
    """The loops of a value that runs over these; "1" means none."""
    match "m" in letters, "n" in letters:
        case True, True:
            return "mn"
        case True, False:
            return "m"
        case False, True:
            return "n"
    return "1"

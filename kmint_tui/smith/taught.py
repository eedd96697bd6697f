"""A stage in the forms that the embedded smith was taught, and its answer in the stage's own.

The smith copies forms that its training often had, and misreads others. So an unusual address gives
its tensor a second name, under which the address is the usual one of its loops. In the answer
kmint puts the true address there, as it puts the values of constants. An operation of floats that
training lacks becomes the operations that kmint's template makes of it. A number of the host has a
constant's name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kmint_tui.graph.program import PLAIN, Line, Over, Program, Stage, Store
from kmint_tui.graph.vocabulary import INDEX, LOAD, WHERE

_USUAL: dict[Over, str] = {"mn": PLAIN, "m": "r", "n": "c", "1": "0"}
_OFTEN = frozenset(
    (
        *_USUAL.values(),
        *("r * K + c", "r * K + c + N", "c + N", "r // K * K + r % K + c * K"),
        *("r % K", "r // K", "r // K % K", "r % N", "r % K * N + c", "r // K * N + c"),
        *("r // K % K * N + c", "r % K * K + c", "r % K * K + c + N", "r % K * K + c // K"),
        *("r * K + c * 2", "r * K + c * 2 + 1", "c * 2", "c * 2 + 1", "K + r * N - c"),
        *("r * K + c // K * K + c % K", "r * K + c // K * K + c % K + K"),
        *("r * N + v", "v * N + c", "v", "r // K * K + v * N + c", "v + c * K"),
    )
)
"""The addresses that at least one of 100 training functions had, with `K` and `v` for any number."""
_VALUE, _SIZE = re.compile(r"\bv\d+\b"), re.compile(r"\bK\d+\b")
_NUMBER, _CONSTANT = re.compile(r"[ks]\d+"), re.compile(r"\bk\d+\b")
_LONG, _ROW, _COLUMN = re.compile(r"\bc( //| \*)"), re.compile(r"\br\b"), re.compile(r"\bc\b")
_STATEMENTS: dict[str, Sequence[tuple[str, str, str]]] = {
    "mod": (("div", "0", "1"), ("floor", "-1", ""), ("mul", "-1", "1"), ("sub", "0", "-1")),
    "floor_div": (("div", "0", "1"), ("floor", "-1", "")),
}
"""Operations in place of one: 0 and 1 are its arguments, -1 is the operation before."""
_TURNED = dict(
    zip("lt ge gt le eq ne and or".split(), "ge lt le gt ne eq or and".split(), strict=True)
)
"""The operations that say the opposite, of `and` and `or` for opposite arguments."""
MOST_STORES = 2
"""Stores of a stage that the smith reads; hardly a training function had more."""


@dataclass(frozen=True)
class Taught:
    """The stage that the smith reads, and what kmint adds to an answer.

    `addresses` has the true addresses by the names of tensors and positions. `more` are stores to
    further tensors, each in the form of a store of the answer with the same loops. `constants` has
    the host's numbers by the names that the smith read. `writes` and `numbers` are those that the
    host passes.
    """

    stage: Stage
    writes: tuple[str, ...]
    numbers: tuple[str, ...]
    addresses: Mapping[str, str]
    more: tuple[Store, ...]
    constants: Mapping[str, str]

    def launched(self, program: Program) -> Program:
        """The program that launches the kernel of an answer."""
        stages = list(program.stages)
        stages[program.main] = replace(self.stage, writes=self.writes, numbers=self.numbers)
        return replace(program, stages=tuple(stages))

    def restored(self, source: str) -> str:
        """An answer with the further stores, the host's numbers, and the true addresses."""
        for store in self.more:
            source = self._with(store, source)
        given = dict.fromkeys(store.tensor for store in self.more)
        given |= {f"s{number}": None for number in range(len(self.numbers))}
        source = _CONSTANT.sub(lambda match: self.constants.get(match[0], match[0]), source)
        if given:
            last = f"b{len(self.stage.writes) - 1}"
            source = re.sub(rf"\b{last},", f"{last}, {', '.join(given)},", source)
        for name, address in self.addresses.items():
            begin = rf"\b{name} = " if name.startswith("v") else rf"\b{name} \+ "
            for where in (PLAIN, *"rci0"):
                true = self._placed(address, where)
                source = re.sub(rf"({begin}){re.escape(where)}(?=[,)\n])", rf"\g<1>{true}", source)
        return source

    def _with(self, store: Store, source: str) -> str:
        """The answer with one more store after its last one of the same loops."""
        for like in reversed(self.stage.stores):
            if like.over != store.over:
                continue
            found = re.search(
                rf"^( *tl\.store\(){like.tensor} \+ ([^,\n]*), {like.value}\b(.*\n)", source, re.M
            )
            if found is None:
                continue
            where = found[2] if found[2] in ("i", "c", "r", "0") else PLAIN
            pointer = f"{store.tensor} + {self._placed(store.address, where)}"
            line = f"{found[1]}{pointer}, {store.value}{found[3]}"
            return source[: found.end()] + line + source[found.end() :]
        return source

    def _placed(self, address: str, where: str) -> str:
        """The address in a structure's terms; `i` counts the elements of all rows."""
        if where == "i" and address == PLAIN:
            return where
        if _LONG.search(address):
            address = _COLUMN.sub("c.to(tl.int64)", address)
        if where != "i":
            return address
        if not self.stage.has_rows:
            return _COLUMN.sub("i", address)
        return _COLUMN.sub("(i % N)", _ROW.sub("(i // N)", address))


def taught(stage: Stage) -> Taught:
    """The stage as the smith reads it."""
    read, numbers = _usual_numbers(stage)
    lines = tuple(_usual_operations(_usual_choices(read.lines)))
    read = _usual_integers(_renumbered(replace(read, lines=lines)))
    read, addresses = _usual_addresses(_renumbered(read))
    read, writes, addresses, more = _few_stores(read, addresses)
    return Taught(read, writes, stage.numbers, addresses, more, numbers)


def _usual_numbers(stage: Stage) -> tuple[Stage, dict[str, str]]:
    """The stage with constants in place of the host's numbers, and the numbers by these names."""
    found = dict.fromkeys(
        name for line in stage.lines for name in line.arguments if _NUMBER.fullmatch(name)
    )
    names = {name: f"k{number}" for number, name in enumerate(found)}
    lines = tuple(
        replace(line, arguments=tuple(names.get(name, name) for name in line.arguments))
        for line in stage.lines
    )
    constants = tuple(stage.constants[int(one[1:])] if one[0] == "k" else 0.0 for one in found)
    numbers = {names[one]: one for one in found if one[0] == "s"}
    return replace(stage, numbers=(), constants=constants, lines=lines), numbers


def _usual_choices(lines: Sequence[Line]) -> list[Line]:
    """The lines with a number as the second choice of a comparison that no NaN can change."""
    known = {line.name: line for line in lines}
    used = Counter(name for line in lines for name in line.arguments)
    turned: set[str] = set()
    swapped: set[str] = set()
    for line in lines:
        if line.op != WHERE:
            continue
        condition, one, other = line.arguments
        parts = _parts_of(condition, known)
        if one[0] == "k" != other[0] and all(
            used[part] == 1 and _is_sure(part, known) for part in parts
        ):
            turned |= set(parts)
            swapped.add(line.name)
    made = []
    for line in lines:
        if line.name in turned:
            line = replace(line, op=_TURNED[line.op])
        elif line.name in swapped:
            condition, one, other = line.arguments
            line = replace(line, arguments=(condition, other, one))
        made.append(line)
    return made


def _parts_of(name: str, known: Mapping[str, Line]) -> list[str]:
    """The condition, with the two that it joins by `and` or `or`, and so on inwards."""
    line = known.get(name)
    if line is None or line.op not in ("and", "or"):
        return [name]
    return [name, *(part for one in line.arguments for part in _parts_of(one, known))]


def _is_sure(name: str, known: Mapping[str, Line]) -> bool:
    """True for a comparison of whole numbers, also as floats, and for `and` and `or`."""

    def is_whole(name: str) -> bool:
        one = known.get(name)
        cast = one is not None and one.op == "to_float"
        below = known.get(one.arguments[0]) if one is not None and cast else one
        return below is None or below.kind == "i"

    line = known.get(name)
    if line is None or line.op not in _TURNED:
        return False
    return line.op in ("and", "or") or all(map(is_whole, line.arguments))


def _usual_operations(lines: Sequence[Line]) -> Iterator[Line]:
    """The lines with a float's remainder made of operations that training had."""
    for line in lines:
        parts = _STATEMENTS.get(line.op, ()) if line.kind == "f" else ()
        before = ""
        for place, (op, *given) in enumerate(parts):
            last = place == len(parts) - 1
            name = line.name if last else f"{line.name}_{place}"
            known = {"0": line.arguments[0], "1": line.arguments[-1], "-1": before}
            arguments = tuple(known[one] for one in given if one)
            yield replace(line, name=name, op=op, arguments=arguments)
            before = name
        if not parts:
            yield line


def _usual_integers(stage: Stage) -> Stage:
    """The stage without casts of floats that are only stored; a store casts as well.

    A clamped round number keeps its cast, as in training.
    """
    known = {line.name: line for line in stage.lines}
    used = {name for line in stage.lines for name in line.arguments}

    def is_clamped(line: Line | None) -> bool:
        for op in ("minimum", "maximum", "round"):
            if line is None or line.op != op:
                return False
            line = known.get(line.arguments[0])
        return True

    cast = {
        line.name: line.arguments[0]
        for line in stage.lines
        if line.op == "to_int" and line.name not in used
    }
    cast = {
        name: given
        for name, given in cast.items()
        if given in known and known[given].kind == "f" and not is_clamped(known[given])
    }
    lines = tuple(line for line in stage.lines if line.name not in cast)
    stores = (replace(one, value=cast.get(one.value, one.value)) for one in stage.stores)
    return replace(stage, lines=lines, stores=tuple(stores))


def _renumbered(stage: Stage) -> Stage:
    """The stage with its values numbered in order."""
    names = {line.name: f"v{number}" for number, line in enumerate(stage.lines)}

    def renamed(text: str) -> str:
        return re.sub(r"\bv\d+(?:_\d+)?\b", lambda match: names[match[0]], text)

    lines = (
        replace(line, name=names[line.name], arguments=tuple(map(renamed, line.arguments)))
        for line in stage.lines
    )
    stores = (
        replace(one, address=renamed(one.address), value=renamed(one.value)) for one in stage.stores
    )
    return replace(stage, lines=tuple(lines), stores=tuple(stores))


class _Tensors:
    """Tensors named in order of first use, once more for every unusual address."""

    def __init__(self, letter: str, tensors: Sequence[str]) -> None:
        self._letter, self._tensors = letter, tensors
        self._known: dict[tuple[str, str], str] = {}
        self.addresses: dict[str, str] = {}

    def access(self, tensor: str, address: str, over: Over) -> tuple[str, str]:
        """The name and the address in place of these."""
        usual = is_usual(address)
        key = tensor, "" if usual else address
        name = self._known.setdefault(key, f"{self._letter}{len(self._known)}")
        if usual:
            return name, address
        self.addresses[name] = address
        return name, _USUAL[over]

    @property
    def given(self) -> tuple[str, ...]:
        """The program's tensors in the order of the names."""
        return tuple(self._tensors[int(tensor[1:])] for tensor, _ in self._known)


def is_usual(address: str) -> bool:
    """True for an address in a form that training had often."""
    return _SIZE.sub("K", _VALUE.sub("v", address)) in _OFTEN


def _usual_addresses(stage: Stage) -> tuple[Stage, dict[str, str]]:
    reads, writes = _Tensors("a", stage.reads), _Tensors("b", stage.writes)
    lines: list[Line] = []
    stores: list[Store] = []
    positions: dict[str, str] = {}
    for line in stage.lines:
        if line.op == LOAD:
            given = reads.access(line.arguments[0], line.arguments[1], line.over)
            lines.append(replace(line, arguments=given))
        elif line.op == INDEX and not is_usual(line.arguments[0]):
            positions[line.name] = line.arguments[0]
            lines.append(replace(line, arguments=(_USUAL[line.over],)))
        else:
            lines.append(line)
    for store in stage.stores:
        tensor, address = writes.access(store.tensor, store.address, store.over)
        stores.append(replace(store, tensor=tensor, address=address))
    made = replace(
        stage, reads=reads.given, writes=writes.given, lines=tuple(lines), stores=tuple(stores)
    )
    return made, {**reads.addresses, **writes.addresses, **positions}


def _few_stores(
    stage: Stage, addresses: Mapping[str, str]
) -> tuple[Stage, tuple[str, ...], dict[str, str], tuple[Store, ...]]:
    """At most two stores for the smith, unless more have different loops."""
    stored = Counter(store.tensor for store in stage.stores)
    kept = set({store.over: store.tensor for store in reversed(stage.stores)}.values())
    for tensor in stored:
        if sum(stored[one] for one in {*kept, tensor}) <= MOST_STORES:
            kept.add(tensor)
    order = sorted(stored, key=lambda one: one not in kept)
    names = {one: f"b{number}" for number, one in enumerate(order)}
    stores = [replace(store, tensor=names[store.tensor]) for store in stage.stores]
    writes = tuple(stage.writes[int(one[1:])] for one in order)
    true = {names.get(name, name): address for name, address in addresses.items()}
    few = [store for store in stores if int(store.tensor[1:]) < len(kept)]
    more = tuple(
        replace(store, address=true.pop(store.tensor, store.address))
        for store in stores
        if store not in few
    )
    read = replace(stage, writes=writes[: len(kept)], stores=tuple(few))
    return read, writes, true, more

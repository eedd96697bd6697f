"""Decisions on sizes that no test case makes: further cases for them, and the names of the rest.

A kernel may be wrong for exactly 768 columns. Its host code or its kernels then hold that number.
So the sizes at, below and above the numbers of such a decision become separate cases. The verdict
names a decision that still has an outcome in no case. A quotient such as `N // 768` may single out that size too, so its
number becomes a size as well. Limits: the judge knows only the examples of
a user's function, so it gets no further cases.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from referee.candidate import Candidate, Traced, raise_rejected
from referee.ops.cell_spec import CellSpec
from referee.ops.cells import cell_of
from referee.ops.fresh_cells import DTYPES, HEADS
from referee.ops.signatures import ROPE_KINDS
from referee.ops.spec import Cell, Dtype, Op
from referee.plans import size_conditions
from referee.plans.plan import LaunchPlan
from referee.plans.size_conditions import Key, compared_numbers, conditions
from referee.reading.size_decisions import FALSE, TRUE, Decision, Division, decisions, divisions
from referee.reading.source import parse
from referee.stages.trace import trace_cells
from referee.verdict import HostCode, Rejection

LABEL = "decision"
MET = "met:"
"""Begins the recipe that `ops/values.py` draws numbers by."""
FEW_ROWS, FEW_COLUMNS = 2, 7
NUMBERED_COLUMNS = 257
MOST_NUMBERS = 16
MANY_ROWS = 64
"""Number of rows from which a size is judged in one dtype alone."""
MOST_ROWS = 10_000
MOST_SIZES = 48
"""Maximum number of sizes that are traced to see the outcomes of decisions."""
MOST_CASES = 6
"""Maximum number of sizes that become test cases."""
_WORDS = {TRUE: "true", FALSE: "false"}

Wanted = tuple[object, int]
"""A decision and one of its outcomes."""

ALIKE = frozenset({"constant", "one_hot", "rare"})
"""Recipes whose rows are so alike that a wrong answer may be right: softmax of a constant row."""


@dataclass(frozen=True)
class SizeDecisions:
    """The decisions of one candidate. Further cases have at most `most_elements` elements."""

    candidate: Candidate
    most_elements: int

    def cases(self, traced: Traced) -> Traced:
        """Further cases, with their plans, for outcomes and numbers that these cases lack."""
        op = self.candidate.problem.op
        if op.is_function:
            return []
        telling = [(cell, plan) for cell, plan in traced if cell.values not in ALIKE]
        chosen = self._of_sizes(op, telling)
        return [
            *chosen,
            *self._of_divisions(op, [*telling, *chosen]),
            *self._traced(list(self._of_numbers(op))),
        ]

    def _of_numbers(self, op: Op) -> Iterator[Cell]:
        """Inputs with elements that are equal to the numbers that a kernel compares with."""
        numbers = compared_numbers(self.candidate.module.text)[:MOST_NUMBERS]
        columns = HEADS[0] if op.kind in ROPE_KINDS else NUMBERED_COLUMNS
        values = MET + ":".join(map(repr, numbers))
        dtypes: tuple[Dtype, ...] = ("float32", "float16")
        for dtype in dtypes if numbers else ():
            yield cell_of(op, CellSpec(FEW_ROWS, columns, dtype, values, label="numbers"))

    def _of_sizes(self, op: Op, traced: Traced) -> Traced:
        missing = self._missing(traced)
        if not missing:
            return []
        sizes = list(self._sizes(op, missing))[:MOST_SIZES]
        tried = self._traced([self._cell(op, rows, columns, 0) for rows, columns in sizes])
        chosen: list[tuple[Cell, LaunchPlan]] = []
        for cell, plan in tried:
            now = self._missing([*traced, *chosen, (cell, plan)])
            if len(now) < len(missing) and prod(cell.inputs[0].shape) > 0:
                missing = now
                chosen.append((cell, plan))
            if len(chosen) == MOST_CASES or not missing:
                break
        again = [
            self._cell(op, rows, columns, turn)
            for rows, columns in (cell.inputs[0].shape for cell, _ in chosen)
            for turn in range(1, len(DTYPES) if rows < MANY_ROWS else 1)
        ]
        return [*chosen, *self._traced(again)]

    def _of_divisions(self, op: Op, traced: Traced) -> Traced:
        """Cases whose columns or rows are the numbers that divide sizes."""
        rope = op.kind in ROPE_KINDS
        narrow = HEADS[0] if rope else FEW_COLUMNS
        sizes: dict[tuple[int, int], None] = {}
        for one in self._divisions(traced):
            widths, rows = _sizes_of(traced)
            few = FEW_ROWS if FEW_ROWS * one.number <= self.most_elements else 1
            if one.number not in widths and (one.number in HEADS or not rope):
                sizes[few, one.number] = None
            # Program ids begin at zero, so one more row has the number itself as its id.
            for count in (one.number, one.number + 1):
                if one.of_rows and count not in rows and count <= MOST_ROWS:
                    sizes[count, narrow] = None
        cells = [
            self._cell(op, rows, columns, turn)
            for rows, columns in [size for size in sizes if prod(size) <= self.most_elements][
                :MOST_CASES
            ]
            for turn in range(len(DTYPES) if rows < MANY_ROWS else 1)
        ]
        return self._traced(cells)

    def _divisions(self, traced: Traced) -> list[Division]:
        """The quotients of sizes in host code and in kernels, the largest numbers first."""
        lines = self._lines()
        in_kernels = size_conditions.divisions(
            self.candidate.module.text, (plan for _, plan in traced)
        )
        found = [
            *divisions(self.candidate.source),
            *(
                Division(lines.get((name, text), 0), text, number, True)
                for number, (name, text) in in_kernels.items()
            ),
        ]
        return sorted(found, key=lambda one: (-one.number, not one.of_rows))

    def _undivided(self, traced: Traced) -> list[HostCode]:
        """The quotients whose number is a size of no case, although the launcher takes it.

        For a user's function, whose sizes are few, powers of two are no such numbers. A rotary
        operation has few widths.
        """
        op = self.candidate.problem.op
        widths, rows = _sizes_of(traced)
        sizes = {*widths, *rows, *(prod(cell.inputs[0].shape) for cell, _ in traced)}
        left = [one for one in self._divisions(traced) if one.number not in sizes]
        if op.is_function:
            left = [one for one in left if one.number.bit_count() > 1]
        elif op.kind in ROPE_KINDS:
            left = [one for one in left if one.of_rows]
        else:
            left = [one for one in left if self._takes(op, one.number)]
        return [
            HostCode(one.line or None, one.text, f"no test case has the size {one.number:,}")
            for one in left
        ]

    def _takes(self, op: Op, columns: int) -> bool:
        """Whether the launcher takes this number of columns, or may."""
        if columns > self.most_elements:
            return True
        return bool(self._traced([self._cell(op, 1, columns, 0)]))

    def note(self, traced: Traced, capabilities: Sequence[Cell] = ()) -> None:
        """Name the outcomes that no case has, a capability's neither. Raises Rejected if strict."""
        candidate, report = self.candidate, self.candidate.report
        missing = self._missing(traced, capabilities)
        harmless = self._harmless(candidate.problem.op, traced, missing)
        lines = self._lines()
        found = [
            HostCode(line, text, f"no test case makes it {_WORDS[outcome]}")
            for (decision, outcome) in sorted(missing - harmless, key=str)
            for line, text in [_shown(decision, lines)]
        ]
        found += self._undivided(traced)
        if not found:
            report.passes("size_decisions", "every decision on a size is made in a test case")
            return
        places = "; ".join(
            f"line {one.line}, `{one.what}`: {one.reason}" for one in found[:MOST_CASES]
        )
        words = f"decisions on sizes that no test case makes: {places}"
        report.fails("size_decisions", words)
        if candidate.strict and not candidate.problem.op.is_function:
            raise_rejected(Rejection("trace", "size_decisions", words))
        report.reserve(words)
        if not candidate.problem.op.is_function:
            report.host_code = (*report.host_code, *found)

    def _missing(self, traced: Traced, others: Sequence[Cell] = ()) -> set[Wanted]:
        found: set[Wanted] = set()
        cells = (*(cell for cell, _ in traced), *others)
        taken = [self.candidate.outcomes.get(cell, ()) for cell in cells]
        for number, decision in enumerate(decisions(self.candidate.source)):
            bits = 0
            for outcomes in taken:
                bits |= outcomes[number] if number < len(outcomes) else 0
            found |= {(decision, one) for one in (TRUE, FALSE) if decision.wanted & ~bits & one}
        for key, condition in conditions(
            self.candidate.module.text, (plan for _, plan in traced)
        ).items():
            one_of = (key, condition.text, condition.constant)
            found |= {(one_of, one) for one in (TRUE, FALSE) if condition.missing & one}
        return found

    def _harmless(self, op: Op, traced: Traced, missing: set[Wanted]) -> set[Wanted]:
        """The outcomes that occur without rows, where no answer can be wrong, or at no width.

        A rotary operation has few widths, and a saved file takes these alone. So an outcome that
        the width decides, and none of them makes, never occurs. The same holds for a user's
        function if only the first dimension of its inputs varies.
        """
        if op.is_function:
            widths = {tuple(spec.shape[1:] for spec in cell.inputs) for cell, _ in traced}
            return _of_widths(missing) if len(widths) == 1 else set()
        if not missing:
            return set()
        rope = op.kind in ROPE_KINDS
        none = self._traced([self._cell(op, 0, HEADS[0] if rope else FEW_COLUMNS, 0)])
        harmless = missing - self._missing([*traced, *none])
        turns = product(HEADS if rope else (), range(len(DTYPES)))
        every = self._traced([self._cell(op, FEW_ROWS, one, turn) for one, turn in turns])
        if len(every) == len(HEADS) * len(DTYPES):
            harmless |= _of_widths(self._missing([*traced, *every]) & missing)
        return harmless

    def _sizes(self, op: Op, missing: set[Wanted]) -> Iterator[tuple[int, int]]:
        """Rows and columns at, below and above the numbers of these decisions."""
        numbers = sorted({number for decision, _ in missing for number in _numbers(decision)})
        near = sorted({max(1, number + step) for number in numbers for step in (-1, 0, 1, 2)})
        rope = op.kind in ROPE_KINDS
        columns = [one for one in near if not rope or one in HEADS]
        rows = [one for one in near if one <= MOST_ROWS]
        narrow = HEADS[0] if rope else FEW_COLUMNS
        pairs = [
            *((FEW_ROWS, one) for one in columns),
            *((one, narrow) for one in rows),
            *product(rows, columns),
        ]
        yield from (pair for pair in dict.fromkeys(pairs) if 0 < prod(pair) <= self.most_elements)

    def _cell(self, op: Op, rows: int, columns: int, turn: int) -> Cell:
        chance = random.Random(f"{self.candidate.seed} {rows} {columns}")
        dtypes = list(DTYPES)
        chance.shuffle(dtypes)
        return cell_of(op, CellSpec(rows, columns, dtypes[turn], "normal", label=LABEL))

    def _traced(self, cells: Sequence[Cell]) -> Traced:
        """The cells that can be traced; a launcher may refuse some."""
        if not cells:
            return []
        found = trace_cells(self.candidate, cells, noted=False)
        if not isinstance(found, Rejection):
            return found
        return [pair for cell in cells for pair in self._one(cell)] if len(cells) > 1 else []

    def _one(self, cell: Cell) -> Traced:
        found = trace_cells(self.candidate, [cell], noted=False)
        return [] if isinstance(found, Rejection) else found

    def _lines(self) -> dict[tuple[str, str], int]:
        return {
            (function.name, " ".join(ast.unparse(node).split())): node.lineno
            for function in parse(self.candidate.source).body
            if isinstance(function, ast.FunctionDef)
            for node in ast.walk(function)
            if isinstance(node, (ast.Compare, ast.BinOp, ast.Call))
        }


def _of_widths(wanted: Iterable[Wanted]) -> set[Wanted]:
    """The outcomes of decisions in host code on columns, not on rows."""
    return {
        (decision, outcome)
        for decision, outcome in wanted
        if isinstance(decision, Decision) and not decision.of_rows
    }


def _sizes_of(traced: Traced) -> tuple[set[int], set[int]]:
    """The numbers of columns and of rows of these cases."""
    shapes = [cell.inputs[0].shape or (1,) for cell, _ in traced]
    return {shape[-1] for shape in shapes}, {shape[0] for shape in shapes}


def _numbers(decision: object) -> tuple[int, ...]:
    if isinstance(decision, Decision):
        return decision.constants
    assert isinstance(decision, tuple)
    return (decision[2],)


def _shown(decision: object, lines: dict[tuple[str, str], int]) -> tuple[int | None, str]:
    if isinstance(decision, Decision):
        return decision.line, decision.text
    assert isinstance(decision, tuple)
    key: Key = decision[0]
    return lines.get((key[0], decision[1])), decision[1]

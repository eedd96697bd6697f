"""Random small mistakes in right kernels, judged without a GPU. Accepted mutants are printed as
diffs for a person to read.

    python bench/mutants.py [--count 900] [--seed 1] [--threads 2] [--json FILE]

A mutant is a kernel of the corpus grammar with one change in a `@triton.jit` function:

- a comparison with or without equality, another operator, one operand only, another number;
- a mask, `other` or axis left out, a cast left out or to bfloat16;
- another function, the sides of a `where` swapped, a statement left out.

Many mutants behave as before; an accepted one may change the answer only by rounding. A mutant
takes about a second on two cores.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.judge_catalogue import candidates
from referee import ops
from referee.judge import Referee

SCHEMA = "kmint.bench.mutants/1"
DESIGNS = 4  # of every operation
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Div, ast.Mod: ast.FloorDiv,
}  # fmt: skip
FUNCTIONS = {
    "tl.max": "tl.sum", "tl.sum": "tl.max", "tl.exp": "tl.exp2", "tl.maximum": "tl.minimum", "tl.minimum": "tl.maximum",
    "tl.sqrt": "tl.abs", "tl.rsqrt": "tl.sqrt", "tl.log": "tl.log2", "tl.abs": "tl.sqrt", "tl.cumsum": "tl.flip",
}  # fmt: skip
Change = Callable[[], ast.AST | None]
"""Changes a node in place, or returns its replacement."""


def changes(node: ast.AST) -> Iterator[Change]:
    """Every mistake that can be made at a node."""
    if isinstance(node, ast.Compare):
        if other := COMPARISONS.get(type(node.ops[0])):
            yield lambda: node.ops.__setitem__(0, other())
        yield lambda: node.comparators.__setitem__(
            0, ast.BinOp(node.comparators[0], ast.Sub(), ast.Constant(1))
        )
    elif isinstance(node, ast.BinOp):
        if operator := OPERATORS.get(type(node.op)):
            yield lambda: setattr(node, "op", operator())
        yield lambda: node.left
        yield lambda: node.right
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        value: Any = node.value
        near = (
            (1.001 * value, 1.02 * value, 10 * value, 0.0)
            if isinstance(value, float)
            else (value + 1,)
        )
        for number in {*near, -value} - {value}:
            yield lambda number=number: ast.Constant(number)  # type: ignore[misc]
    elif isinstance(node, ast.Call):
        yield from changes_of_call(node)
    elif isinstance(node, ast.Assign | ast.AugAssign):
        yield ast.Pass


def changes_of_call(call: ast.Call) -> Iterator[Change]:
    """Every mistake that can be made at a call."""
    for place, keyword in enumerate(call.keywords):
        if keyword.arg in ("mask", "other", "axis"):
            yield lambda place=place: call.keywords.__delitem__(place)  # type: ignore[misc]
        if keyword.arg == "other":
            given = 0.0 if "inf" in ast.unparse(keyword.value) else 1.0
            yield lambda keyword=keyword, given=given: setattr(
                keyword, "value", ast.Constant(given)
            )  # type: ignore[misc]
    name = ast.unparse(call.func)
    if other := FUNCTIONS.get(name):
        yield lambda: setattr(call, "func", ast.parse(other, mode="eval").body)
    if isinstance(call.func, ast.Attribute) and call.func.attr == "to":
        cast: Any = call.func
        yield lambda: cast.value
        yield lambda: call.args.__setitem__(0, ast.parse("tl.bfloat16", mode="eval").body)
    if name == "tl.where":
        yield lambda: call.args.__setitem__(slice(1, 3), call.args[2:0:-1])


class _Replace(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self._old, self._new = old, new

    def visit(self, node: ast.AST) -> Any:
        return self._new if node is self._old else self.generic_visit(node)


def mutant(source: str, chance: random.Random) -> str:
    """The source with one change; the same where it makes none."""
    tree = ast.parse(source)
    kernels = [
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.decorator_list
    ]
    nodes = [
        node for kernel in kernels for statement in kernel.body for node in ast.walk(statement)
    ]
    node, change = chance.choice([(node, change) for node in nodes for change in changes(node)])
    new = change()
    return ast.unparse(ast.fix_missing_locations(_Replace(node, new).visit(tree) if new else tree))


def main() -> None:
    """Print how many fell to which guard, and every accepted change."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=900)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, default=None)
    given = parser.parse_args()
    chance, names = random.Random(given.seed), [op.name for op in ops.catalogue()]
    kernels = [
        (op, ast.unparse(ast.parse(source)))
        for design in range(DESIGNS)
        for op, source in candidates(names, design)
    ]
    made = {
        (op, source, mutant(source, chance))
        for op, source in (chance.choice(kernels) for _ in range(given.count))
    }
    mutants = sorted(one for one in made if one[1] != one[2])
    with Referee(mode="interpret") as referee, ThreadPoolExecutor(given.threads) as pool:
        verdicts = list(
            pool.map(lambda one: referee.judge(one[2], one[0], level="correct"), mutants)
        )
    accepted = []
    for (op, source, changed), verdict in zip(mutants, verdicts, strict=True):
        if verdict.verdict != "rejected":
            lines = [
                line
                for line in difflib.unified_diff(
                    source.splitlines(), changed.splitlines(), lineterm="", n=0
                )
            ][3:]
            told = [check.name for check in verdict.checks if check.status == "fail"]
            accepted.append({"op": op, "verdict": verdict.verdict, "told": told, "change": lines})
            print(f"{op}: {verdict.verdict} {' '.join(told)}", *lines, sep="\n    ")
    counts = Counter(verdict.guard or verdict.verdict for verdict in verdicts)
    print(
        f"{len(mutants)} mutants: "
        + ", ".join(f"{count} {name}" for name, count in counts.most_common())
    )
    if given.json:
        whole = {
            "schema": SCHEMA,
            "seed": given.seed,
            "mutants": len(mutants),
            "ended": counts,
            "accepted": accepted,
        }
        whole |= {
            "environment": {
                key: value for key, value in verdicts[0].environment.items() if key != "executable"
            }
        }
        given.json.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

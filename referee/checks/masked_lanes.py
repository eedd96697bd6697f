"""Masked-off lanes of a load without `other`: whether a result depends on them, and advice.

Triton leaves such lanes undefined: those of `tl.load` with a mask but no `other`, or with a
boundary check but no padding. Its compilers set them to zero today, so such kernels give correct
results. The check is therefore a reservation, not a rejection. The smallest case of each of a few
widths runs again with NaN in these lanes.

`advised` extends the reason of a rejection for wrong answers with a likely cause. These lanes come
before every other hint. They explain wrong sums and maxima, and rows that seem unwritten. For a
user's reference, the advice says whether the given example itself passes.

Limits: other widths are not checked, and cases that take too long are skipped. The advice needs the
interpreter, and looks only at the failed case.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from referee.candidate import Traced
from referee.case_runs import same_bits
from referee.cpu_path import CpuPath
from referee.interpreter.calls import leaves_lanes_open
from referee.interpreter.interpret import UNDECIDED, Executed, Execution, InterpreterUnsupported
from referee.ops.spec import Cell
from referee.plans.plan import LaunchPlan
from referee.reading.idle_loops import idle_loop
from referee.reading.source import tree_of
from referee.report import Report
from referee.sandbox.zygote import MachineBusy
from referee.verdict import CellResult, Check, Rejection

CHECK = "open_lanes"
WORDS = (
    "the result depends on masked-off lanes of a tl.load without `other`; "
    "Triton leaves these lanes undefined, although its compilers set them to zero today"
)
WIDTHS = 4
LANES = (
    "the answer depends on lanes that `{}` hides without `other`: "
    'give `other` (-float("inf") for a maximum, 0.0 for a sum)'
)
IDLE = "the loop variable `{}` is never used: each of its turns reads the same"
REDRAWN = "the example itself is right, and only other values of the same kind are not"
ITSELF = "-itself"
"""End of the name of a case that has the values of a user's example."""
TOLD, MOST = frozenset({"wrong_answer", "out_of_bounds", "not_deterministic"}), 70


def has_masked_lanes(text: str) -> bool:
    """Whether a load of the kernel module may have undefined lanes."""
    return any(leaves_lanes_open(node) for node in ast.walk(tree_of(text)))


def check_masked_lanes(path: CpuPath, traced: Traced) -> Check:
    """Run the chosen cases with NaN in undefined lanes; the first difference fails the check.

    Raises JobLost or InterpreterUnsupported.
    """
    smallest: dict[int, tuple[Cell, LaunchPlan]] = {}
    for cell, plan in sorted(traced, key=lambda one: (_fills(one[0].width), path.effort(*one))):
        smallest.setdefault(cell.width, (cell, plan))
    chosen = list(smallest.values())[:WIDTHS]
    try:
        answers = path.execute([_open(path, cell, plan) for cell, plan in chosen])
    except MachineBusy as busy:
        return Check(CHECK, "skipped", str(busy))
    for (cell, _), answer in zip(chosen, answers, strict=False):
        if isinstance(answer, Rejection):
            undecided = answer.guard in UNDECIDED
            reason = answer.reason
            return Check(CHECK, "skipped", reason) if undecided else _fails(cell, reason)
        found = path.data.compare(cell, answer.outputs)
        if found.status != "pass":
            return _fails(cell, found.detail)
    cases = f"at {len(chosen)} cases no answer depends on these lanes"
    return Check(CHECK, "pass", f"some loads hide lanes without `other`; {cases}")


def _open(path: CpuPath, cell: Cell, plan: LaunchPlan) -> Execution:
    return Execution(plan, path.data.inputs(cell), config=path.configs[0], open_lanes=True)


def note(report: Report, found: Check) -> None:
    """Add the check to the report. A failure adds a reservation and does not reject."""
    report.add([found])
    if found.status == "fail":
        report.reserve(WORDS)


def _fails(cell: Cell, why: str) -> Check:
    return Check(CHECK, "fail", f"{WORDS} (at {cell.name}: {why}): give `other`")


def _fills(width: int) -> bool:
    return width & (width - 1) == 0


def advised(
    path: CpuPath, traced: Traced, results: Sequence[CellResult], rejection: Rejection | None
) -> Rejection | None:
    """The rejection, with advice appended to its reason. Raises JobLost."""
    if rejection is None or rejection.guard not in TOLD:
        return rejection
    reason = rejection.reason
    if rejection.guard == "wrong_answer":
        failed = next((result.name for result in results if result.status == "fail"), "")
        if lanes := _lanes(path, [pair for pair in traced if pair[0].name == failed]):
            # If the masked lanes are the cause, the usual reading of the error pattern misleads.
            reason = f"{reason.partition('; ')[0]}; {lanes}"
        if not failed.endswith(ITSELF) and _example_is_right(path, traced, results):
            reason = f"{reason}; {REDRAWN}"
    if name := idle_loop(path.text):
        reason = f"{reason}; {IDLE.format(name)}"
    return replace(rejection, reason=reason)


def _lanes(path: CpuPath, failed: Traced) -> str:
    """Advice about the load whose masked-off lanes change the answer at this case, or ""."""
    loads = [node for node in ast.walk(tree_of(path.text)) if leaves_lanes_open(node)]
    if not loads or not failed:
        return ""
    cell, plan = failed[0]
    runs = [replace(_open(path, cell, plan), open_lanes=False), _open(path, cell, plan)]
    try:
        answers = path.execute(runs)
    except (InterpreterUnsupported, MachineBusy):
        return ""
    done = [answer for answer in answers if isinstance(answer, Executed)]
    if len(done) < len(runs) or same_bits(done[0].outputs, done[1].outputs):
        return ""
    return LANES.format(ast.unparse(loads[0])[:MOST])


def _example_is_right(path: CpuPath, traced: Traced, results: Sequence[CellResult]) -> bool:
    itself = [pair for pair in traced if pair[0].name.endswith(ITSELF)]
    if not itself or not path.data.task.op.is_function:
        return False
    known = {result.name: result.status for result in results}
    left = [pair for pair in itself if known.get(pair[0].name) not in ("pass", "fail")]
    if any(known.get(cell.name) == "fail" for cell, _ in itself):
        return False
    try:
        return not left or path.required(left)[1] is None
    except (InterpreterUnsupported, MachineBusy):
        return False

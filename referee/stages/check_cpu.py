"""The check without a GPU: every case in Triton's interpreter, and a sample compiled for the target.

The order is that of all stages: trace, compile, check.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from referee.candidate import Candidate, Traced, raise_rejected, unless_rejected
from referee.case_runs import RunKeys
from referee.cases import CaseData, CaseList, without_gpu
from referee.checks import batch_invariance
from referee.checks.capabilities import interpret_capabilities, unsound
from referee.checks.masked_lanes import advised, check_masked_lanes, has_masked_lanes, note
from referee.checks.size_decisions import SizeDecisions
from referee.compiling.binaries import unread_lines
from referee.concurrency import CancelToken, TaskScope
from referee.cpu_path import ROUNDS, SECONDS, CpuPath
from referee.gpu.jobs import ATOMICS
from referee.ops.spec import Cell
from referee.plans.autotune import FEW_CONFIGS, usable_configurations
from referee.plans.plan import LaunchPlan
from referee.plans.sampling import compile_sample, kernel_branches
from referee.problem import MOST_ELEMENTS, partition_by_rows, required
from referee.report import CaseCounter, Report
from referee.sandbox.zygote import Workers
from referee.stages.compile import compile_launches
from referee.stages.trace import (
    note_domain,
    note_traced,
    trace_cells,
    trace_many_rows,
    trace_required,
)
from referee.target import GIB, DeviceProperties
from referee.verdict import Rejection, Verdict

# The number of multiprocessors of the smallest current card. With so few, a persistent kernel takes
# several tiles even at small cases.
FEW_MULTIPROCESSORS, LARGE_TILE = 4, 4096

Variants = Mapping[str, tuple[LaunchPlan, str]]
"""Plans for another card by cell name, with words for it."""


def verdict_on_cpu(
    candidate: Candidate, interpreters: Workers, data: CaseData, why: str
) -> Verdict:
    """Judge the candidate's correctness. `why` is the reason why no GPU is used.

    Raises Rejected, JobLost or InterpreterUnsupported.
    """
    cases = without_gpu(candidate.problem, candidate.seed)
    candidate, batches = _traced(candidate, cases)
    candidate, variants = _compiled(candidate)
    _check(candidate, interpreters, data, cases, batches, variants)
    there = required(candidate.problem.cells("gpu"))
    replayed = f"on a GPU compiled code runs, at larger shapes ({len(there)} cases of up to {_largest(there)})"
    cells = candidate.cells
    reason = f"{len(cells)} cases of up to {_largest(cells)} agree with float64 in Triton's interpreter; {replayed}; not timed: {why}"
    return candidate.report.ended("correct", reason, unreached=why)


@dataclass(frozen=True)
class _Batches:
    """The cases for batch invariance, and plans of them and of all others."""

    parts: Sequence[batch_invariance.Part]
    plans: Mapping[Cell, LaunchPlan]


def _traced(candidate: Candidate, cases: CaseList) -> tuple[Candidate, _Batches]:
    """The candidate with the plans of all cases, also of those that decisions on sizes need."""
    problem, report = candidate.problem, candidate.report
    cells, bench = cases.required, problem.bench()
    timed = [bench] if bench and bench not in cells else []
    many, parts = list[Cell](), list[batch_invariance.Part]()
    if not problem.op.is_function:
        many = partition_by_rows(required(problem.cells("gpu")))[1]
        parts = batch_invariance.parts_of(cells, candidate.seed, long=candidate.batch_invariant)
    traced, further = _plans(candidate, cells, [*timed, *(part.cell for part in parts), *many])
    with report.during("trace"):
        decided = SizeDecisions(candidate, MOST_ELEMENTS).cases(traced)
    traced = [*traced, *decided]
    cells = [*cells, *(cell for cell, _ in decided)]
    note_domain(candidate, cells)
    note_traced(candidate, len(cells), ", and the timed one" if timed else "")
    only_compiled = [pair for pair in further if pair[0] in timed or pair[0] in many]
    candidate = replace(candidate, cells=cells, traced=traced, further=only_compiled)
    return candidate, _Batches(parts, dict([*traced, *further]))


def _plans(
    candidate: Candidate, cells: Sequence[Cell], further: Sequence[Cell]
) -> tuple[Traced, Traced]:
    """Trace the cells to run and the `further` ones, which are only compiled.

    One worker traces all of them, unless a grid exceeds CUDA's limits.
    """
    many = partition_by_rows(further)[1]
    with candidate.report.during("trace"):
        found = trace_cells(candidate, [*cells, *further])
    if isinstance(found, Rejection) and found.guard == "launch_limits" and many:
        few = trace_required(candidate, [*cells, *(cell for cell in further if cell not in many)])
        return _of(few, cells), [*_of(few, further), *trace_many_rows(candidate, many)]
    traced = unless_rejected(found)
    return _of(traced, cells), _of(traced, further)


def _compiled(candidate: Candidate) -> tuple[Candidate, Variants]:
    """The candidate with the kernels of a sample of its plans, and its plans for a small card."""
    plans = [*candidate.traced, *candidate.further]
    choosing = kernel_branches(candidate.module.text)
    sample = compile_sample(plans, choosing)
    if sample[0].has_configs:
        # Each plan has as many kernels as configurations.
        sample = compile_sample(plans, choosing, dtypes=1, ones=False)
    with TaskScope("traces") as scope:
        elsewhere = scope.submit(partial(_on_a_small_card, candidate, scope.cancel))
        binaries = compile_launches(candidate, sample)
        with candidate.report.during("trace"):
            variants = _variants(candidate, elsewhere.result())
    compiled = tuple(zip(sample, binaries, strict=True))
    return replace(candidate, compiled=compiled), variants


def _check(
    candidate: Candidate,
    interpreters: Workers,
    data: CaseData,
    cases: CaseList,
    batches: _Batches,
    variants: Variants,
) -> None:
    """Run every case and report all checks. Only a compiled candidate gets here."""
    report, traced = candidate.report, candidate.traced
    plan, binaries = candidate.compiled[0]
    configs = usable_configurations(plan, binaries.found)
    counter = CaseCounter(len(candidate.cells) + len(cases.capabilities), report.count)
    known = {cell.name for cell in cases.required}
    path = CpuPath(
        workers=interpreters,
        data=data,
        text=candidate.module.text,
        atomic=candidate.atomic([*traced, *candidate.further]),
        configs=configs,
        variants=variants,
        # Every configuration runs, so the time grows with their number.
        seconds=SECONDS * max(1.0, len(configs) / FEW_CONFIGS),
        rounds=ROUNDS,
        unread=unread_lines(one for _, found in candidate.compiled for one in found.found.values()),
        once=cases.once | {cell.name for cell, _ in traced if cell.name not in known},
        counter=counter,
        run_keys=RunKeys(candidate.module),
    )
    with report.during("correct"), TaskScope("capabilities", one_torch_thread=True) as scope:
        optional = scope.submit(
            partial(interpret_capabilities, candidate, cases.capabilities, path, scope.cancel)
        )
        report.cells, rejection = path.required_in_parallel(traced)
        raise_rejected(advised(path, traced, report.cells, rejection))
        earned = optional.result()
        report.cells = (*report.cells, *earned)
        raise_rejected(unsound(cases.capabilities, earned, addresses_seen=True))
        SizeDecisions(candidate, MOST_ELEMENTS).note(traced, cases.capabilities)
        invariance = batch_invariance.check(
            path, batches.parts, batches.plans, required=candidate.batch_invariant
        )
        if candidate.batch_invariant:
            raise_rejected(batch_invariance.demanded(invariance))
        report.add([invariance])
        if has_masked_lanes(path.text):
            note(report, check_masked_lanes(path, traced))
    _pass_guards(report, path.atomic)
    if counter.shared:
        where = "for another draft, whose kernels and plans do the same"
        report.passes("same_runs", f"{counter.shared} cases ran {where}")
    if variants:
        words = next(iter(variants.values()))[1]
        report.passes("few_multiprocessors", f"{len(variants)} cases also as {words}")
    if plan.has_configs:
        first = "and the first call, which tries them on the same memory"
        report.passes("autotune", f"{len(configs)} configurations, {first}")


def _on_a_small_card(candidate: Candidate, cancel: CancelToken) -> Traced | Rejection:
    """Plans that the candidate makes for a card of few multiprocessors.

    A persistent program takes its second tile at a small case only on such a card.
    """
    device = _other_card(candidate.target.properties, candidate.seed)
    some = [cell for cell in candidate.cells if _more_than(FEW_MULTIPROCESSORS, cell)]
    card = replace(candidate.target, device=device)
    return trace_cells(candidate, some, target=card, cancel=cancel, noted=False)


def _variants(candidate: Candidate, there: Traced | Rejection) -> Variants:
    """The plans for the small card that differ from the usual ones.

    A failure to trace for this card does not reject, because the verdict is for another card.
    """
    if isinstance(there, Rejection):
        candidate.report.skips("few_multiprocessors", there.reason)
        return {}
    usual = {cell.name: plan for cell, plan in candidate.traced}
    words = f"on a card of {FEW_MULTIPROCESSORS} multiprocessors"
    return {cell.name: (plan, words) for cell, plan in there if plan != usual.get(cell.name, plan)}


def _of(traced: Traced, cells: Sequence[Cell]) -> Traced:
    plans = dict(traced)
    return [(cell, plans[cell]) for cell in cells if cell in plans]


def _other_card(card: DeviceProperties, seed: int) -> DeviceProperties:
    """The card with few multiprocessors, and with sizes and clocks that no launch may depend on."""
    odd = random.Random(seed)
    return replace(
        card,
        multi_processor_count=FEW_MULTIPROCESSORS,
        total_memory=card.total_memory - odd.randrange(1, GIB),
        clock_rate=card.clock_rate + odd.randrange(1000, 500_000),
        memory_clock_rate=card.memory_clock_rate + odd.randrange(1000, 500_000),
        memory_bus_width=2 * card.memory_bus_width,
    )


def _pass_guards(report: Report, mixed: bool) -> None:
    report.passes("kernel_error", "no kernel failed")
    report.passes("out_of_bounds", "every address read or written lies in a buffer")
    report.passes("guard_band", "nothing was written outside the buffers")
    report.passes("wrong_answer", "answers agree with float64")
    report.passes("input_mutated", "inputs are bit for bit unchanged")
    if mixed:
        report.skips("not_deterministic", ATOMICS)
    else:
        same = "a second run with other poison, addresses and program order gave the same bits"
        report.passes("not_deterministic", same)


def _largest(cells: Sequence[Cell]) -> str:
    """The largest rows and columns of the cells, or the shape of their largest input."""
    shapes = [cell.inputs[0].shape for cell in cells]
    if shapes and all(len(shape) == 2 for shape in shapes):
        rows, columns = map(max, zip(*shapes, strict=True))
        return f"{rows:,} rows and {columns:,} columns"
    shape = max((spec.shape for cell in cells for spec in cell.inputs), key=math.prod, default=())
    return " x ".join(f"{size:,}" for size in shape) or "1"


def _more_than(programs: int, cell: Cell) -> bool:
    shape = cell.inputs[0].shape
    return (len(shape) > 1 and shape[0] > programs) or math.prod(shape) > programs * LARGE_TILE

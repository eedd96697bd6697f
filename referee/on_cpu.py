"""A candidate where no GPU can be used: every cell in Triton's interpreter, and a sample compiled for the target."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from referee.aside import Aside
from referee.compiling.binaries import unread_lines
from referee.device.configurations import FEW_CONFIGS, usable_configurations
from referee.judgement import Judgement, Traced, atomic, autotuned, stop
from referee.open_lanes import has_open_lanes, note, what_depends
from referee.ops.fresh_badges import fresh_badges
from referee.ops.fresh_cells import fresh_cells
from referee.ops.fresh_widths import fresh_middle, fresh_widths
from referee.ops.spec import Cell
from referee.plans.branches import branches
from referee.plans.plan import LaunchPlan
from referee.plans.sampling import compile_sample
from referee.reading.kernels import KernelModule
from referee.report import Report
from referee.sandbox.workers import Workers
from referee.subject import MOST_ELEMENTS, Subject, capabilities, feasible, partition_by_rows, required
from referee.target import GIB, DeviceProperties
from referee.verdict import Rejection, Verdict

# As many multiprocessors as the smallest card of today has: there a few rows or tiles are more than the programs that go through them.
FEW_MULTIPROCESSORS, LARGE_TILE = 4, 4096


@dataclass(frozen=True)
class OnCpu:
    """One candidate, with what it is judged by. Methods raise Rejected when it falls."""

    judgement: Judgement
    module: KernelModule
    interpreters: Workers
    seed: int

    def verdict(self, why: str) -> Verdict:
        """Correctness; `why` says why no GPU is used."""
        from referee.cpu_path import ROUNDS, SECONDS, CpuPath
        from referee.in_parts import required_in_parts
        from referee.interpreted_badges import InterpretedBadges

        judgement, report, subject = self.judgement, self.judgement.report, self.judgement.subject
        task = subject.task("cpu")
        cells = [cell for cell in required(task.cells) if feasible(cell)]
        cells += fresh_cells(subject.op, self.seed, gpu=False)
        widths = fresh_widths(subject.op, self.seed, gpu=False)
        cells += (*widths, *fresh_middle(subject.op, self.seed))
        bench = subject.bench()
        earning = fresh_badges(subject.op, [cell for cell in capabilities(task.cells) if feasible(cell)], self.seed, gpu=False)
        with Aside("traces") as aside, InterpretedBadges(judgement, self.module, earning) as badges:
            many_rows = [] if subject.op.origin == "user" else partition_by_rows(required(subject.cells("gpu")))[1]
            tracing = aside.submit(partial(judgement.traced, self.module, many_rows, stop=aside.stop))
            elsewhere = aside.submit(partial(self._on_a_small_card, cells, aside.stop))
            traced = judgement.trace(self.module, [*cells, *([bench] if bench and bench not in cells else [])])
            with report.during("trace"):
                many = judgement.many_rows(tracing.result())
            choosing = branches(self.module.text)
            sample = compile_sample([*traced, *many], choosing)
            if autotuned(sample[0]):
                # Each plan is as many kernels as there are configurations.
                sample = compile_sample([*traced, *many], choosing, dtypes=1, ones=False)
            binaries = judgement.compile(self.module, sample)
            with report.during("trace"):
                variants = self._variants(traced[: len(cells)], elsewhere.result())
            configs = usable_configurations(sample[0], binaries[0].found)
            mixed, unread = atomic(self.module, traced), unread_lines(kernel for found in binaries for kernel in found.found.values())
            # Every configuration is run; a plan that has many of them takes as many times as long.
            seconds = SECONDS * max(1.0, len(configs) / FEW_CONFIGS)
            once = frozenset(cell.name for cell in widths)
            path = CpuPath(self.interpreters, task, self.module.text, mixed, self.seed, configs, variants, seconds, ROUNDS, unread, once)
            with report.during("correct"):
                badges.go_on(path)
                report.cells, rejection = required_in_parts(path, traced[: len(cells)])
                stop(rejection)
                report.cells = (*report.cells, *badges.results())
                if has_open_lanes(self.module.text):
                    note(report, what_depends(path, traced[: len(cells)]))
        _pass_guards(report, path.atomic)
        if variants:
            report.passes("few_multiprocessors", f"{len(variants)} cells also as {next(iter(variants.values()))[1]}")
        if autotuned(sample[0]):
            report.passes("autotune", f"{len(configs)} configurations, and the first call, which tries them on the same memory")
        there = required(subject.cells("gpu"))
        replayed = f"a replay on a GPU is of compiled code, at larger shapes ({len(there)} cells of up to {_largest(there)})"
        reason = f"{len(cells)} cells of up to {_largest(cells)} agree with float64 in Triton's interpreter; {replayed}; not timed: {why}"
        return report.ended("correct", reason, unreached=why)

    def _on_a_small_card(self, cells: Sequence[Cell], stop: int) -> Traced | Rejection:
        """Plans that the candidate makes for a card of few multiprocessors.

        A program that takes several rows or tiles, one after the other, takes the second one at a small cell only there.
        """
        card = replace(self.judgement.target, device=_other_card(self.judgement.target.properties, self.seed))
        some = [cell for cell in cells if _more_than(FEW_MULTIPROCESSORS, cell)]
        return self.judgement.traced(self.module, some, target=card, stop=stop)

    def _variants(self, traced: Traced, there: Traced | Rejection) -> dict[str, tuple[LaunchPlan, str]]:
        """Those of the plans for a small card that are not what they are here, by cell, and words for them.

        Nobody is rejected for what cannot be traced for such a card: it is not the card that the verdict is for.
        """
        if isinstance(there, Rejection):
            self.judgement.report.skips("few_multiprocessors", there.reason)
            return {}
        usual = {cell.name: plan for cell, plan in traced}
        words = f"on a card of {FEW_MULTIPROCESSORS} multiprocessors"
        return {cell.name: (plan, words) for cell, plan in there if plan != usual[cell.name]}


def too_large(subject: Subject) -> str:
    """Why none of the cells can be judged here, or nothing if one can."""
    cells = required(subject.cells("cpu"))
    if not cells or any(map(feasible, cells)):
        return ""
    least = min(max(math.prod(spec.shape) for spec in (*cell.inputs, *cell.outputs)) for cell in cells)
    words = f"the reference's examples have tensors of {least:,} elements, and Triton's interpreter takes {MOST_ELEMENTS:,} at most"
    return f"{words}: make the examples (get_inputs) smaller, or judge on a GPU"


def _other_card(card: DeviceProperties, seed: int) -> DeviceProperties:
    """A card of few multiprocessors, with sizes and clocks as no round number has them: no launch may depend on these."""
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
        report.skips("not_deterministic", "the kernels use atomic operations; each run was compared on its own")
    else:
        report.passes("not_deterministic", "a second run with other poison, addresses and program order gave the same bits")


def _largest(cells: Sequence[Cell]) -> str:
    """How far the cells reach: in rows and in columns where they are of rows, else the shape of their largest input."""
    shapes = [cell.inputs[0].shape for cell in cells]
    if shapes and all(len(shape) == 2 for shape in shapes):
        rows, columns = map(max, zip(*shapes, strict=True))
        return f"{rows:,} rows and {columns:,} columns"
    shape = max((spec.shape for cell in cells for spec in cell.inputs), key=math.prod, default=())
    return " x ".join(f"{size:,}" for size in shape) or "1"


def _more_than(programs: int, cell: Cell) -> bool:
    """Whether the cell has more rows, or more large tiles, than so many."""
    shape = cell.inputs[0].shape
    return (len(shape) > 1 and shape[0] > programs) or math.prod(shape) > programs * LARGE_TILE

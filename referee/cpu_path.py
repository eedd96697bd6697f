"""Correctness without a GPU: Triton's interpreter runs the traced plans in the sandbox, and this
process compares the outputs.

Every case runs twice, with another fill pattern, other addresses and the opposite program order.
Cases of very many programs and the many cases that differ only in width run once. Kernels with
atomics run once more with interleaved programs. About half of the cases run with contracted
products and reassociated sums (`Execution.relaxed`), and some run both ways.

The sandbox never sees the expected values. The path is weaker than a replay: the compiled code does
not run, and programs never run at the same time.
"""

from __future__ import annotations

import os
import random
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING

from referee.candidate import Traced
from referee.case_runs import TIMEOUT, WAYS, CaseRun, RunKeys, out_of_time, same_bits
from referee.cases import CaseData
from referee.concurrency import CancelToken, TaskScope, split_by_cost
from referee.gpu.jobs import unreached
from referee.interpreter.interpret import Executed, Execution, execute
from referee.ops.spec import Cell
from referee.plans.arena import NAN, second_fill_pattern
from referee.plans.autotune import (
    as_first_call_rejection,
    autotune_first_call,
    cells_for_every_configuration,
    distinct_configurations,
)
from referee.plans.plan import LaunchPlan
from referee.report import CaseCounter
from referee.sandbox.zygote import MachineBusy, Workers
from referee.verdict import CellResult, Rejection

if TYPE_CHECKING:
    from torch import Tensor

SECONDS = 20.0
"""Processor seconds for the cases of one process; the slowest correct kernels took four."""
ROUNDS = 4
"""Time budgets granted to a slow kernel as long as each one completes at least one case."""
PROGRAMS_TWICE = 128
"""Maximum number of programs of a case that runs twice. Most faults show with few programs."""
FIRST, ELEMENTS = 9, 2048
"""Start-up cost of a run in programs, and the number of elements that cost as much as one program.
"""
PARTS = 4
"""Maximum number of processes. Four parts balance two processors even if one part is slow."""
Judged = tuple[tuple[CellResult, ...], Rejection | None]


@dataclass(frozen=True, kw_only=True)
class CpuPath:
    """One candidate on the CPU path.

    `text` is its kernel module, `configs` the configurations of autotuned launches to run.
    `variants` has further plans by cell name, each with words for its circumstances. A slow kernel
    that makes progress gets its `seconds` up to `rounds` times. `unread` as in `logic.elementwise`.
    Cells named in `once` run once. Plans with equal `run_keys` share their results between
    candidates.
    """

    workers: Workers
    data: CaseData
    text: str
    atomic: bool
    configs: tuple[int, ...] = (0,)
    variants: Mapping[str, tuple[LaunchPlan, str]] = field(default_factory=dict)
    seconds: float = SECONDS
    rounds: int = 1
    unread: frozenset[int] = frozenset()
    once: frozenset[str] = frozenset()
    counter: CaseCounter | None = None
    run_keys: RunKeys | None = None

    @property
    def seed(self) -> int:
        """The secret seed of the inputs."""
        return self.data.seed

    def required(
        self, traced: Traced, among: Traced | None = None, *, cancel: CancelToken | None = None
    ) -> Judged:
        """Judge the cells in order, up to the first failure. Raises JobLost or
        InterpreterUnsupported.

        `among` has all cells of the verdict if other processes judge the rest; it decides which
        cells get further runs. `cancel` ends the run early; the results are then meaningless.
        """
        among = among or traced
        others, both = self._chosen(among)
        chosen = tuple((cell in others, cell in both) for cell, _ in traced)
        run = partial(self._required, traced, others, both, cancel)
        found, shared = self.data.shared(
            self._key(traced, chosen), run, keep=lambda found: found[1] is None
        )
        if shared:
            self._count_shared(traced)
        return found

    def required_in_parallel(self, traced: Traced) -> Judged:
        """The results of `required`, in order, up to the first failure, from several processes.

        Each part is compared as soon as it has run. So a kernel that is wrong at its first cases
        does not run at the others. Raises JobLost or InterpreterUnsupported.
        """
        results: list[CellResult] = []
        parts = split_by_cost([self.effort(*pair) for pair in traced], traced, PARTS)
        threads = min(PARTS, len(os.sched_getaffinity(0)))
        with TaskScope("part", threads, one_torch_thread=True) as scope:
            judge = partial(self.required, among=traced, cancel=scope.cancel)
            for future in [scope.submit(partial(judge, part)) for part in parts]:
                some, rejection = future.result()
                results += some
                if rejection:
                    left = (unreached(cell) for cell, _ in traced[len(results) :])
                    return (*results, *left), rejection
        return tuple(results), None

    def _chosen(self, among: Traced) -> tuple[Sequence[Cell], Collection[Cell]]:
        """The cells that run with every configuration, and those that run in both numeric modes."""
        others = cells_for_every_configuration([cell for cell, _ in among], self.seed)
        # Per dtype and kernel sequence, one cell runs in both modes of FMA contraction and
        # reassociation.
        pairs = reversed(among)
        both = {(cell.inputs[0].dtype, plan.kernels): cell for cell, plan in pairs}.values()
        return others, both

    def _required(
        self,
        traced: Traced,
        others: Collection[Cell],
        both: Collection[Cell],
        cancel: CancelToken | None,
    ) -> Judged:
        groups = [
            self._runs(cell, plan, others=cell in others, both=cell in both)
            for cell, plan in traced
        ]
        results: list[CellResult] = []
        for turn in range(self.rounds):
            begun = len(results)
            left = [run.execution for group in groups[begun:] for run in group]
            answers = iter(self.execute(left, cancel))
            for (cell, _), runs in zip(traced[begun:], groups[begun:], strict=True):
                result, rejection = self._judge_case(cell, runs, answers)
                again = len(results) > begun and turn + 1 < self.rounds
                if rejection and rejection.guard == TIMEOUT and again:
                    break
                results.append(result)
                if rejection:
                    left_out = (unreached(cell) for cell, _ in traced[len(results) :])
                    return (*results, *left_out), rejection
            else:
                break
        return tuple(results), None

    def capabilities(
        self, traced: Traced, *, cancel: CancelToken | None = None
    ) -> tuple[CellResult, ...]:
        """Judge each cell on its own, also after failures. `checks/capabilities.py` decides the cost of a
        failure.

        `cancel` as in `required`.
        """
        run = partial(self._capabilities, traced, cancel)
        (found, _), shared = self.data.shared(
            self._key(traced, "capabilities"), run, keep=lambda found: not found[1]
        )
        if shared:
            self._count_shared(traced)
        return found

    def _key(self, traced: Traced, more: Hashable) -> Hashable | None:
        """Cache key of the runs of these cells, or None if they cannot be shared."""
        if self.run_keys is None or self.atomic or self.unread or self.configs != (0,):
            return None
        variants = {
            name: (self.run_keys.key(plan), when) for name, (plan, when) in self.variants.items()
        }
        keys = [(cell, self.run_keys.key(plan), variants.get(cell.name)) for cell, plan in traced]
        known = all(
            key is not None and (variant is None or variant[0] is not None)
            for _, key, variant in keys
        )
        return (tuple(keys), more, self.once, self.seconds) if known else None

    def _count_shared(self, traced: Traced) -> None:
        if self.counter is not None:
            for _ in traced:
                self.counter.one_more(shared=True)

    def _capabilities(
        self, traced: Traced, cancel: CancelToken | None
    ) -> tuple[tuple[CellResult, ...], bool]:
        found: list[CellResult] = []
        left, ended = list(traced), False
        while left:
            groups = [self._runs(cell, plan, first=False) for cell, plan in left]
            try:
                answers = self.execute([run.execution for group in groups for run in group], cancel)
            except MachineBusy as busy:
                return (*found, *(out_of_time(cell, str(busy)) for cell, _ in left)), True
            begun = 0
            for index, ((cell, _), runs) in enumerate(zip(left, groups, strict=True)):
                some = answers[begun : begun + len(runs)]
                begun += len(runs)
                result, rejection = self._judge_case(cell, runs, iter(some))
                if rejection and rejection.guard == TIMEOUT:
                    result = out_of_time(cell, result.detail)
                found.append(replace(result, guard=rejection.guard) if rejection else result)
                # Runs after one that ended early did not happen; a wrong answer ends nothing.
                if isinstance(some[-1], Rejection):
                    left, ended = left[index + 1 :], True
                    break
            else:
                break
        return tuple(found), ended

    def effort(self, cell: Cell, plan: LaunchPlan) -> float:
        """Estimated cost of the cell, in programs."""
        programs = plan.programs(self.configs[0])
        elements = max((prod(spec.shape) for spec in cell.inputs), default=0)
        return (1 + self._twice(cell, plan)) * (FIRST + programs + elements / ELEMENTS)

    def _twice(self, cell: Cell, plan: LaunchPlan) -> bool:
        return cell.name not in self.once and plan.programs(self.configs[0]) <= PROGRAMS_TWICE

    def execute(
        self, executions: Sequence[Execution], cancel: CancelToken | None = None
    ) -> list[Executed | Rejection]:
        """The results of these runs. `cancel` as in `required`."""
        return execute(
            self.workers,
            self.text,
            executions,
            seconds=self.seconds,
            unread=self.unread,
            cancel=cancel,
        )

    def _runs(
        self,
        cell: Cell,
        plan: LaunchPlan,
        *,
        others: bool = False,
        both: bool = False,
        first: bool = True,
    ) -> list[CaseRun]:
        """The runs of the cell: two, three with atomics, or one for very many programs, plus its
        variant.

        `both` adds a run in the other numeric mode. `others` adds a run of every other
        configuration. `first` adds an autotuner's first call, which spoils memory in ways that only
        some values show.
        """
        # All runs use one numeric mode, so that their bits are comparable. The seed decides it.
        relaxed = random.Random(f"{self.seed} {cell.name}").random() < 0.5
        inputs, config = self.data.inputs(cell), self.configs[0]
        usual = Execution(plan, inputs, NAN, config=config, relaxed=relaxed)
        runs = [CaseRun(usual)]
        if both or self._twice(cell, plan):
            pattern = second_fill_pattern(cell.name)
            second = replace(usual, poison=pattern, reverse=True, backwards=True)
            runs.append(CaseRun(second, repeats=True))
            if self.atomic:
                interleaved = replace(usual, interleaving_seed=self.seed)
                runs.append(CaseRun(interleaved, " with its programs in turns"))
        if cell.name in self.variants:
            variant, when = self.variants[cell.name]
            runs.append(CaseRun(replace(usual, plan=variant), f" {when}"))
        if others:
            for other in distinct_configurations(plan, self.configs)[1:]:
                when = f" with configuration {other}"
                runs.append(CaseRun(replace(usual, config=other), when))
        if first and (made := autotune_first_call(plan, self._usable(plan), {})):
            runs.append(CaseRun(replace(usual, plan=made.plan, config=0), rehearsed=True))
        if both:
            runs.append(CaseRun(replace(usual, relaxed=not relaxed), WAYS[not relaxed]))
        return runs

    def _usable(self, plan: LaunchPlan) -> dict[int, list[int]]:
        """The configurations of every launch, the last one in place of missing ones."""
        return {
            number: sorted({min(config, len(launch.configs) - 1) for config in self.configs})
            for number, launch in plan.launches()
        }

    def _judge_case(
        self, cell: Cell, runs: Sequence[CaseRun], answers: Iterator[Executed | Rejection]
    ) -> tuple[CellResult, Rejection | None]:
        found = self._compared(cell, runs, answers)
        if self.counter is not None:
            self.counter.one_more()
        return found

    def _compared(
        self, cell: Cell, runs: Sequence[CaseRun], answers: Iterator[Executed | Rejection]
    ) -> tuple[CellResult, Rejection | None]:
        outputs: list[tuple[Tensor, ...]] = []
        result = CellResult(cell.name, cell.role, "pass")
        for number, run in enumerate(runs):
            answer = next(answers)
            if isinstance(answer, Rejection):
                failed = CellResult(cell.name, cell.role, "fail", detail=answer.reason)
                reason = f"at {cell.name}{run.when}: {answer.reason}"
                return failed, replace(answer, reason=reason)
            outputs.append(answer.outputs)
            # Atomics change the order of additions, so the second run is compared by value, not by
            # bits.
            if run.repeats and not self.atomic:
                continue
            found = self.data.compare(cell, answer.outputs)
            if found.status != "pass":
                reason = f"at {cell.name}{run.when}: {found.detail}"
                rejection = Rejection("correct", "wrong_answer", reason)
                return found, as_first_call_rejection(rejection) if run.rehearsed else rejection
            result = found if number == 0 else result
        if not self.atomic and any(
            run.repeats and not same_bits(outputs[0], other)
            for run, other in zip(runs, outputs, strict=True)
        ):
            reason = (
                "a second run with other poison, addresses and program order gave different bits; "
                "the kernel reads memory that nothing wrote, its programs depend on their order, "
                "or a shift or quotient of integers is undefined"
            )
            failed = CellResult(cell.name, cell.role, "fail", detail=reason)
            return failed, Rejection("honest", "not_deterministic", f"at {cell.name}: {reason}")
        return result, None

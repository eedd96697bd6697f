"""Correctness without a GPU: traced plans run by Triton's interpreter in the sandbox, compared here.

Every cell runs twice: on another poison, at other addresses, with its programs in the opposite order; only one of very many programs, and
those of which there are many that differ by a width, run once. With atomics once more, a few programs at a time in turns. About half of
the cells run `relaxed` (`Execution`), and some both ways. Expected values stay in this process. It is weaker than a replay: the compiled
code is not what runs, and programs never run at the same time.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

import torch
from torch import Tensor

from referee.answers.compare import compare
from referee.device.configurations import telling
from referee.device.gpu import unreached
from referee.interpreter.interpret import Executed, Execution, execute
from referee.ops.spec import Cell
from referee.ops.task import Task
from referee.plans.arena import NAN, second_poison
from referee.plans.plan import Launch, LaunchPlan
from referee.plans.rehearsal import blamed, rehearsal
from referee.sandbox.workers import Workers
from referee.verdict import CellResult, Rejection

SECONDS = 20.0
"""Of processor time, for the cells of one process; all cells of the selftest's slowest right kernels take four where this was chosen."""
ROUNDS = 4
"""How often a kernel that goes on from cell to cell gets its seconds: one of small blocks takes the interpreter many turns."""
PROGRAMS_TWICE = 128
"""So many programs of a cell run twice: what depends on their order, or on memory that nothing wrote, shows with fewer as well."""

WAYS = {True: " with products added unrounded and sums in another order", False: " with every product rounded and sums in order"}
"""What a run is called that goes the other way, by `relaxed`."""

FIRST, ELEMENTS = 9, 2048
"""So many programs take the interpreter as long as it takes to begin a run, and so many elements about as long as one program."""

APART, LEAST, MOST = ("shifted", "closed"), 2.0**-10, 2.0**10
"""Recipes and scales of values that a number written into a kernel, an epsilon or the end of a range, is compared with."""

Traced = Sequence[tuple[Cell, LaunchPlan]]
Judged = tuple[tuple[CellResult, ...], Rejection | None]


@dataclass(frozen=True)
class _Run:
    """A run of a cell: when the candidate would do that, whether it must give the first one's bits, whether it is a first call."""

    execution: Execution
    when: str = ""
    repeats: bool = False
    rehearsed: bool = False


@dataclass(frozen=True)
class CpuPath:
    """One candidate on the CPU. `text` is its clean kernel module, `configs` the configurations of autotuned launches to run.

    `variants` are further plans of cells, by name, each with the words that say when the candidate makes it. A kernel that is slow, but
    goes on from cell to cell, gets its `seconds` so many `rounds`. `unread` as in `logic.elementwise`; cells named in `once` run once.
    `drawn` has the inputs of cells whose inputs are drawn already.
    """

    workers: Workers
    task: Task
    text: str
    atomic: bool
    seed: int
    configs: tuple[int, ...] = (0,)
    variants: Mapping[str, tuple[LaunchPlan, str]] = field(default_factory=dict)
    seconds: float = SECONDS
    rounds: int = 1
    unread: frozenset[int] = frozenset()
    once: frozenset[str] = frozenset()
    drawn: Mapping[str, tuple[Tensor, ...]] = field(default_factory=dict)

    def required(self, traced: Traced, among: Traced | None = None, *, stop: int | None = None) -> Judged:
        """Judge the cells in order, up to the first failure. Raises JobLost or InterpreterUnsupported.

        Which of them stand for others in further runs is chosen `among` more of them than these, if others are judged elsewhere. When
        something can be read from `stop` it ends, with results that say nothing.
        """
        among = among or traced
        others = _for_others([cell for cell, _ in among], self.seed)
        # One cell of each dtype, for each row of kernels, stands for what is right one way only of what is left to a compiler.
        both = {(cell.inputs[0].dtype, _kernels(plan)): cell for cell, plan in reversed(among)}.values()
        groups = [self._runs(cell, plan, others=cell in others, both=cell in both) for cell, plan in traced]
        results: list[CellResult] = []
        for turn in range(self.rounds):
            begun = len(results)
            left = [run.execution for group in groups[begun:] for run in group]
            answers = iter(self._execute(left, stop))
            for (cell, _), runs in zip(traced[begun:], groups[begun:], strict=True):
                result, rejection = self._judged(cell, runs, answers)
                if rejection and rejection.guard == "timeout" and len(results) > begun and turn + 1 < self.rounds:
                    break
                results.append(result)
                if rejection:
                    return (*results, *(unreached(cell) for cell, _ in traced[len(results) :])), rejection
            else:
                break
        return tuple(results), None

    def capabilities(self, traced: Traced, *, stop: int | None = None) -> Iterator[CellResult]:
        """Judge each cell on its own; a failure costs only its badge. `stop` as in `required`."""
        left = list(traced)
        while left:
            groups = [self._runs(cell, plan, first=False) for cell, plan in left]
            answers = self._execute([run.execution for group in groups for run in group], stop)
            begun = 0
            for index, ((cell, _), runs) in enumerate(zip(left, groups, strict=True)):
                some = answers[begun : begun + len(runs)]
                begun += len(runs)
                result, _ = self._judged(cell, runs, iter(some))
                yield result
                # Nothing ran behind what was ended; what is only wrong held up nobody.
                if isinstance(some[-1], Rejection):
                    left = left[index + 1 :]
                    break
            else:
                return

    def effort(self, cell: Cell, plan: LaunchPlan) -> float:
        """About how long the cell takes, in programs."""
        programs = _programs(plan, self.configs[0])
        elements = max((prod(spec.shape) for spec in cell.inputs), default=0)
        return (1 + self._twice(cell, plan)) * (FIRST + programs + elements / ELEMENTS)

    def _twice(self, cell: Cell, plan: LaunchPlan) -> bool:
        return cell.name not in self.once and _programs(plan, self.configs[0]) <= PROGRAMS_TWICE

    def _execute(self, executions: Sequence[Execution], stop: int | None = None) -> list[Executed | Rejection]:
        return execute(self.workers, self.text, executions, seconds=self.seconds, unread=self.unread, stop=stop)

    def _runs(self, cell: Cell, plan: LaunchPlan, *, others: bool = False, both: bool = False, first: bool = True) -> list[_Run]:
        """Two runs of the cell, three with atomics, or one where it takes very many programs, and one of its variant.

        With `both` one more, `relaxed` or not as the others are not; with `others` one of every other configuration; with `first` one of
        the first call, where something is autotuned: what that spoils may show at some values only.
        """
        inputs = self.drawn.get(cell.name) or self.task.inputs(cell, self.seed)
        config = self.configs[0]
        runs = [_Run(Execution(plan, inputs, NAN, config=config))]
        if both or self._twice(cell, plan):
            runs.append(_Run(Execution(plan, inputs, second_poison(cell.name), reverse=True, backwards=True, config=config), repeats=True))
            if self.atomic:
                runs.append(_Run(Execution(plan, inputs, NAN, config=config, turns=self.seed), " with its programs in turns"))
        if cell.name in self.variants:
            variant, when = self.variants[cell.name]
            runs.append(_Run(Execution(variant, inputs, config=config), f" {when}"))
        if others:
            different = _different(plan, self.configs)
            runs += [_Run(Execution(plan, inputs, config=other), f" with configuration {other}") for other in different[1:]]
        if first and (made := rehearsal(plan, self._usable(plan), {})):
            runs.append(_Run(Execution(made.plan, inputs), rehearsed=True))
        # All but that one alike, so that their bits can be compared; which cells, no candidate can know.
        relaxed = random.Random(f"{self.seed} {cell.name}").random() < 0.5
        runs = [replace(run, execution=replace(run.execution, relaxed=relaxed)) for run in runs]
        return [*runs, _Run(Execution(plan, inputs, config=config, relaxed=not relaxed), WAYS[not relaxed])] if both else runs

    def _usable(self, plan: LaunchPlan) -> dict[int, list[int]]:
        """The configurations of every launch, as `Execution.config` picks them: the last one stands for what it has not."""
        launches = ((number, step) for number, step in enumerate(plan.steps) if isinstance(step, Launch))
        return {number: sorted({min(config, len(step.configs) - 1) for config in self.configs}) for number, step in launches}

    def _judged(self, cell: Cell, runs: Sequence[_Run], answers: Iterator[Executed | Rejection]) -> tuple[CellResult, Rejection | None]:
        outputs: list[tuple[Tensor, ...]] = []
        result = CellResult(cell.name, cell.role, "pass")
        for number, run in enumerate(runs):
            answer = next(answers)
            if isinstance(answer, Rejection):
                reason = f"at {cell.name}{run.when}: {answer.reason}"
                return CellResult(cell.name, cell.role, "fail", detail=answer.reason), Rejection(answer.stage, answer.guard, reason)
            outputs.append(answer.outputs)
            # With atomics the order of additions may differ, so the second run is compared on its own instead of bit by bit.
            if run.repeats and not self.atomic:
                continue
            found = compare(self.task, cell, run.execution.inputs, answer.outputs)
            if found.status != "pass":
                rejection = Rejection("correct", "wrong_answer", f"at {cell.name}{run.when}: {found.detail}")
                return found, blamed(rejection) if run.rehearsed else rejection
            result = found if number == 0 else result
        if not self.atomic and any(run.repeats and not _same_bits(outputs[0], other) for run, other in zip(runs, outputs, strict=True)):
            reason = (
                "a second run with other poison, addresses and program order gave different bits: memory was read that nothing wrote, "
                "programs depend on each other's order, or a shift or quotient of integers is undefined"
            )
            failed = CellResult(cell.name, cell.role, "fail", detail=reason)
            return failed, Rejection("honest", "not_deterministic", f"at {cell.name}: {reason}")
        return result, None


def _for_others(cells: Sequence[Cell], seed: int) -> list[Cell]:
    """Where every other configuration runs: a wrong one may be wrong at some values only, and here a cell takes little."""
    apart = [cell for cell in cells if cell.values in APART or any(not LEAST < scale < MOST for scale in cell.scales)]
    return [*telling(cells, seed), *apart]


def _kernels(plan: LaunchPlan) -> tuple[str, ...]:
    return tuple(step.kernel for step in plan.steps if isinstance(step, Launch))


def _programs(plan: LaunchPlan, config: int) -> int:
    """How many programs one run takes."""
    launches = [step for step in plan.steps if isinstance(step, Launch)]
    return sum(prod(step.configs[min(config, len(step.configs) - 1)].grid) for step in launches)


def _different(plan: LaunchPlan, configs: Sequence[int]) -> list[int]:
    """The first of those that launch the same: numbers of warps and stages are nothing to the interpreter."""
    launches = [step for step in plan.steps if isinstance(step, Launch)]
    first: dict[tuple[object, ...], int] = {}
    for config in configs:
        chosen = [step.configs[min(config, len(step.configs) - 1)] for step in launches]
        first.setdefault(tuple((launch.grid, launch.arguments) for launch in chosen), config)
    return list(first.values())


def _same_bits(left: Sequence[Tensor], right: Sequence[Tensor]) -> bool:
    return all(torch.equal(_bytes(a), _bytes(b)) for a, b in zip(left, right, strict=True))


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.reshape(-1).contiguous().view(torch.uint8)

"""A launch plan: the work of a candidate's `run` as pure data.

The tracer records it in the sandbox. The judge parses it strictly (`plan_parse`) and executes
nothing else. A plan names kernels but carries no code: the judge itself extracts kernel text from
the candidate's source (`kernels`).

Offsets are bytes; strides count elements, as in torch. Limits: one device, at most `MAX_STEPS`
steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

PLAN_VERSION = 2
MAX_STEPS = 256
MAX_BUFFERS = 256


@dataclass(frozen=True)
class Buffer:
    """One allocation. `input` is the index of its input, or None for scratch and outputs."""

    nbytes: int
    input: int | None = None


@dataclass(frozen=True)
class View:
    """A strided window on a buffer (index into `LaunchPlan.buffers`); `offset` is in bytes."""

    buffer: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class DtypeValue:
    """A Triton dtype passed as a constexpr, by Triton's short name ("fp32", "bf16", "int32")."""

    name: str


Scalar = int | float | bool | str | None | DtypeValue
Value = View | Scalar | tuple["Value", ...]


@dataclass(frozen=True)
class Argument:
    """One kernel argument by parameter name, with the facts that Triton specialises on."""

    name: str
    value: Value
    constexpr: bool


@dataclass(frozen=True)
class LaunchConfig:
    """Grid, arguments and launch options of one launch; an autotuned launch has several."""

    grid: tuple[int, int, int]
    arguments: tuple[Argument, ...]
    num_warps: int = 4
    num_stages: int = 3
    num_ctas: int = 1
    maxnreg: int | None = None


@dataclass(frozen=True)
class Tuning:
    """The autotuner's steps around each run: it zeroes `zeroed` and restores `restored`."""

    zeroed: tuple[View, ...] = ()
    restored: tuple[View, ...] = ()


@dataclass(frozen=True)
class Launch:
    """A launch of the kernel named `kernel` with one of `configs`; the judge picks one of several.

    `tuning` is set where Triton compares configurations at the first call, on the caller's memory.
    """

    kernel: str
    configs: tuple[LaunchConfig, ...]
    tuning: Tuning | None = None


@dataclass(frozen=True)
class Fill:
    """Sets every element of a view to one value."""

    target: View
    value: int | float | bool


@dataclass(frozen=True)
class Copy:
    """Copies `source` into `target`; shapes broadcast and dtypes convert as in torch."""

    target: View
    source: View


Step = Launch | Fill | Copy


@dataclass(frozen=True)
class LaunchPlan:
    """The steps of `run` for one test case, in order. Inputs are buffers whose `input` is set."""

    buffers: tuple[Buffer, ...]
    inputs: tuple[View, ...]
    steps: tuple[Step, ...]
    outputs: tuple[View, ...]
    version: int = PLAN_VERSION

    def launches(self) -> tuple[tuple[int, Launch], ...]:
        """The launches with their step numbers, in order."""
        return tuple(
            (number, step) for number, step in enumerate(self.steps) if isinstance(step, Launch)
        )

    @property
    def kernels(self) -> tuple[str, ...]:
        """The names of the launched kernels, in order."""
        return tuple(launch.kernel for _, launch in self.launches())

    def programs(self, config: int) -> int:
        """Number of programs of one run with configuration `config`, or the last one."""
        return sum(
            math.prod(launch.configs[min(config, len(launch.configs) - 1)].grid)
            for _, launch in self.launches()
        )

    @property
    def has_configs(self) -> bool:
        """Whether a launch has several configurations to choose from."""
        return any(len(launch.configs) > 1 for _, launch in self.launches())

    @property
    def is_autotuned(self) -> bool:
        """Whether Triton compares configurations of a launch at the first call."""
        return any(launch.tuning is not None for _, launch in self.launches())


def views_of(step: Step) -> Iterator[View]:
    """Every view that a step reads or writes."""
    if isinstance(step, Fill):
        yield step.target
    elif isinstance(step, Copy):
        yield from (step.target, step.source)
    else:
        for config in step.configs:
            for argument in config.arguments:
                yield from views_in(argument.value)
        if step.tuning is not None:
            yield from (*step.tuning.zeroed, *step.tuning.restored)


def views_in(value: Value) -> Iterator[View]:
    """Every view inside one argument's value."""
    if isinstance(value, View):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from views_in(item)


def with_views(step: Step, change: Callable[[View], View]) -> Step:
    """The step with `change` applied to each of its views."""
    if isinstance(step, Fill):
        return replace(step, target=change(step.target))
    if isinstance(step, Copy):
        return Copy(change(step.target), change(step.source))
    tuning = step.tuning
    if tuning is not None:
        tuning = Tuning(tuple(map(change, tuning.zeroed)), tuple(map(change, tuning.restored)))
    return Launch(step.kernel, tuple(_config(config, change) for config in step.configs), tuning)


def _config(config: LaunchConfig, change: Callable[[View], View]) -> LaunchConfig:
    return replace(
        config,
        arguments=tuple(
            replace(argument, value=_value(argument.value, change)) for argument in config.arguments
        ),
    )


def _value(value: Value, change: Callable[[View], View]) -> Value:
    if isinstance(value, View):
        return change(value)
    return tuple(_value(item, change) for item in value) if isinstance(value, tuple) else value


def traffic(plan: LaunchPlan) -> float:
    """Bytes of the buffers of all steps over those of inputs and outputs; 1.0 for one minimal
    launch.

    A step counts each of its buffers once and whole, regardless of repeated reads. Of several
    configurations the first one counts.
    """
    least = _nbytes(plan, {view.buffer for view in (*plan.inputs, *plan.outputs)})
    moved = sum(_nbytes(plan, {view.buffer for view in _first_views(step)}) for step in plan.steps)
    return moved / least if least else 1.0


def _nbytes(plan: LaunchPlan, buffers: set[int]) -> int:
    return sum(plan.buffers[index].nbytes for index in buffers)


def _first_views(step: Step) -> Iterator[View]:
    one = Launch(step.kernel, step.configs[:1]) if isinstance(step, Launch) else step
    return views_of(one)

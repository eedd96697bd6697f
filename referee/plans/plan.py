"""A launch plan: what a candidate's `run` does, as pure data.

The tracer records one in the sandbox; the judge parses it strictly (`plan_parse.py`) and executes nothing else. A plan
names kernels but carries no code: kernel text is cut from the candidate's source by the judge itself (`kernels.py`).

Offsets are bytes, strides count elements, as in torch. Limits: single-device plans, at most `MAX_STEPS` steps.
"""

from __future__ import annotations

from dataclasses import dataclass

PLAN_VERSION = 2
MAX_STEPS = 256
MAX_BUFFERS = 256


@dataclass(frozen=True)
class Buffer:
    """One allocation. `input` is the index of the input it belongs to, or None for scratch and outputs."""

    nbytes: int
    input: int | None = None


@dataclass(frozen=True)
class View:
    """A strided window on a buffer (index into `LaunchPlan.buffers`)."""

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
    """One kernel argument by parameter name, with everything Triton needs to specialise it."""

    name: str
    value: Value
    constexpr: bool


@dataclass(frozen=True)
class LaunchConfig:
    """Grid, arguments and launch options of one launch; an autotuned launch has several of these."""

    grid: tuple[int, int, int]
    arguments: tuple[Argument, ...]
    num_warps: int = 4
    num_stages: int = 3
    num_ctas: int = 1
    maxnreg: int | None = None


@dataclass(frozen=True)
class Tuning:
    """What Triton's autotuner does around every run it compares: sets `zeroed` to zero before, gives `restored` back after."""

    zeroed: tuple[View, ...] = ()
    restored: tuple[View, ...] = ()


@dataclass(frozen=True)
class Launch:
    """Launch the kernel named `kernel` with one of `configs` (the judge picks when there are several).

    `tuning` is set where Triton itself would compare configurations, on the caller's memory, at the first call.
    """

    kernel: str
    configs: tuple[LaunchConfig, ...]
    tuning: Tuning | None = None


@dataclass(frozen=True)
class Fill:
    """Set every element of a view to one value."""

    target: View
    value: int | float | bool


@dataclass(frozen=True)
class Copy:
    """Copy `source` into `target` elementwise (broadcasting as torch does), converting the dtype."""

    target: View
    source: View


Step = Launch | Fill | Copy


@dataclass(frozen=True)
class LaunchPlan:
    """Everything `run` does for one cell, in order. Inputs are buffers whose `input` is set."""

    buffers: tuple[Buffer, ...]
    inputs: tuple[View, ...]
    steps: tuple[Step, ...]
    outputs: tuple[View, ...]
    version: int = PLAN_VERSION

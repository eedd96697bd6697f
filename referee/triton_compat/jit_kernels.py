"""Triton's launchable kernels: kind, signature, launch options, and diverted launches.

Runs in worker processes only.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

MOST_WRAPPERS = 16
Runner = Callable[..., Any]
# Keyword arguments of a kernel's `run` that belong neither to the kernel nor to its launch options.
OF_RUN = ("grid", "warmup")
LAUNCH_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
# Options that are off by default. Other defaults depend on the target or on Triton's settings.
_OFF = frozenset({"debug", "launch_cooperative_grid", "launch_pdl"})


@contextmanager
def launches_go_to(launch: Runner, warm_up: Runner) -> Iterator[None]:
    """Diverts every launch to `launch(kernel, args, grid, kwargs)` and every warm-up to
    `warm_up(kernel)`.

    All launch forms, `kernel[grid](...)` and `kernel.run(..., grid=...)`, end in the `run` of one
    of three classes. The arguments of `run` itself (OF_RUN) stay in `kwargs`: Triton passes them to
    heuristics and pruning functions too.
    """
    from triton.runtime.autotuner import Autotuner, Heuristics
    from triton.runtime.jit import JITFunction, KernelInterface

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        return (
            warm_up(self)
            if kwargs.get("warmup")
            else launch(self, args, kwargs.get("grid"), kwargs)
        )

    def warm(self: Any, *args: Any, **kwargs: Any) -> Any:
        return warm_up(self)

    classes = (JITFunction, Autotuner, Heuristics, KernelInterface)
    saved = [
        (cls, name, cls.__dict__[name])
        for cls in classes
        for name in ("run", "warmup")
        if name in cls.__dict__
    ]
    for cls, name, _ in saved:
        setattr(cls, name, run if name == "run" else warm)
    try:
        yield
    finally:
        for cls, name, original in saved:
            setattr(cls, name, original)


def wraps(kernel: Any) -> str:
    """The kind of a launchable object: "jit", "autotune", "heuristics" or "unknown"."""
    from triton.runtime.autotuner import Autotuner, Heuristics
    from triton.runtime.jit import JITFunction

    for cls, name in ((JITFunction, "jit"), (Autotuner, "autotune"), (Heuristics, "heuristics")):
        if type(kernel) is cls:
            return name
    return "unknown"


def innermost(kernel: Any) -> Any:
    """The JITFunction inside autotuners and heuristics; None if there is none."""
    for _ in range(MOST_WRAPPERS):
        if wraps(kernel) == "jit":
            return kernel
        if wraps(kernel) == "unknown":
            return None
        kernel = kernel.fn
    return None


def signature_of(kernel: Any) -> inspect.Signature:
    """The Python signature of a JITFunction's function."""
    found: inspect.Signature = kernel.signature
    return found


def constexpr_names(kernel: Any) -> frozenset[str]:
    """Names of the parameters annotated tl.constexpr."""
    return frozenset(parameter.name for parameter in kernel.params if parameter.is_constexpr)


@dataclass(frozen=True)
class Typing:
    """A parameter's annotated type or "", and whether a 1 becomes a constant."""

    annotated: str
    one_is_constant: bool


def typings(function: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Typing]:
    """The type of each parameter of a kernel; `options` are those of `triton.jit`."""
    from triton.runtime.jit import KernelParam

    kept = options.get("do_not_specialize") or ()
    parameters = inspect.signature(function).parameters.values()
    kinds = {
        p.name: KernelParam(number, p, False, False).annotation_type
        for number, p in enumerate(parameters)
    }
    return {
        name: Typing(kind, not (kind or name in kept or number in kept))
        for number, (name, kind) in enumerate(kinds.items())
    }


def other_options() -> frozenset[str]:
    """Further launch options of Triton, even if a parameter has the same name."""
    from triton.backends.nvidia.compiler import CUDAOptions

    return frozenset(CUDAOptions.__dataclass_fields__) - set(LAUNCH_OPTIONS)


def is_left_out(option: str, value: object) -> bool:
    """Whether an option with this value compiles and launches as without it."""
    # Triton 3.7 fails on a mode that is None.
    return (value is None and option != "instrumentation_mode") or (
        option in _OFF and value is False
    )


def has_run_hooks(kernel: Any) -> bool:
    """Whether the candidate attached pre-run hooks to the kernel."""
    return bool(kernel.pre_run_hooks)

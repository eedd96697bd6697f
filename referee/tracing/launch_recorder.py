"""Turns Triton launches into plan steps instead of running them, as Triton itself would resolve
them.

The recorder follows Triton's order. An autotuner offers its configurations, heuristics compute
their values from the arguments, and arguments are bound to the kernel's parameters. Every other
argument must be a launch option. Runs in the trace worker only.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator
from typing import Any

import torch
import triton.language as tl

from referee.plans.dtypes import TRITON_DTYPES
from referee.plans.plan import Argument, DtypeValue, Launch, LaunchConfig, Tuning, Value, View
from referee.plans.plan_parse import MAX_CONFIGS, MAX_TEXT
from referee.tracing.candidate_file import Kernels
from referee.tracing.pruning import Pruning
from referee.tracing.recorder import Recorder
from referee.tracing.violation import Violation, Violations
from referee.triton_compat import autotuner, jit_kernels

Resolved = tuple[Any, tuple[Any, ...], dict[str, Any]]

_NEEDS_MORE = {
    "launch_cooperative_grid": "cooperative grids are not supported",
    "launch_pdl": "programmatic dependent launch is not supported",
    "cluster_dims": "block clusters are not supported",
    "enable_fp_fusion": "only num_warps, num_stages and maxnreg are supported launch options",
    "extern_libs": "extern libraries are not supported",
    "ir_override": "IR overrides are not supported",
    "stream": "streams are not supported: plans run on one stream, in order",
}


class LaunchRecorder:
    """Records launches into the recorder of the call that is running, if one is."""

    def __init__(self, violations: Violations) -> None:
        self._violations = violations
        self._compiled_kernel = _compiled_kernel(violations)
        self.recorder: Recorder | None = None
        # The tracer sets this once the file is imported.
        self.kernels: Kernels | None = None
        self._tuning: Tuning | None = None
        self.pruning = Pruning()
        # The text of each constant, by kernel and parameter.
        self._constants: dict[tuple[str, str], dict[Value, str]] = {}

    def launch(
        self, kernel: Any, args: tuple[Any, ...], grid: Any, kwargs: dict[str, Any]
    ) -> object:
        """Add one launch step. Raises Violation if no plan can hold it, or as Triton would."""
        recorder = self._running()
        before = recorder.done
        self._tuning = None
        resolved = list(self._resolve(kernel, args, kwargs))
        self._check_kernels([jit for jit, _, _ in resolved])
        configs = [self._config(jit, bound, grid, given) for jit, bound, given in resolved]
        if recorder.done != before:
            # Triton would run these functions once, or for each configuration that it tries. A plan
            # with their steps would be another program.
            reason = "grid, heuristics and pruning functions may compute numbers"
            raise self._fail("launch_feature", f"{reason}, not make or change tensors")
        # Texts are the keys, because True, 1 and 1.0 are equal but compile differently.
        unique = {repr(config): config for config in configs}
        recorder.add(Launch(resolved[0][0].__name__, tuple(unique.values()), self._tuning))
        return self._compiled_kernel()

    def warm_up(self, kernel: Any) -> None:
        """Refuse a compilation that `run` requests."""
        how = "compute launch sizes from shapes and device properties"
        raise self._fail("launch_feature", f"kernel.warmup is not supported: {how}")

    def _check_kernels(self, launched: list[Any]) -> None:
        """Refuse a launch of any kernel but the one that the text has under its name."""
        if self.kernels is None or any(jit is not launched[0] for jit in launched):
            raise self._fail("launch_feature", "a launch is of one kernel of the file")
        if not self.kernels.has(launched[0]):
            name = str(launched[0].__name__)[:60]
            reason = f"a kernel `{name}` is launched that the file does not bind to this name at its top level"
            advice = "decorate the function with @triton.jit there, once"
            raise self._fail("launch_feature", f"{reason}; {advice}")

    def _running(self) -> Recorder:
        if self.recorder is None:
            reason = "a kernel is launched while the file is being imported"
            raise self._fail("module_level", f"{reason}; launch in `run` only")
        return self.recorder

    def _fail(self, guard: str, reason: str) -> Violation:
        return self._violations.add(guard, reason)

    def _resolve(
        self, kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Iterator[Resolved]:
        kind = jit_kernels.wraps(kernel)
        if kind == "jit":
            if jit_kernels.has_run_hooks(kernel):
                raise self._fail("launch_feature", "pre-run hooks are not supported")
            own = {name: one for name, one in kwargs.items() if name not in jit_kernels.OF_RUN}
            yield kernel, args, own
        elif kind == "heuristics":
            for name, compute in kernel.values.items():
                known = {**dict(zip(kernel.arg_names, args, strict=False)), **kwargs}
                kwargs = {**kwargs, name: compute(known)}
            yield from self._resolve(kernel.fn, args, kwargs)
        elif kind == "autotune":
            facts = autotuner.autotune_facts(kernel, args, kwargs)
            if hooks := ", ".join(facts.hooks):
                why = "is not supported: the judge tries every configuration itself"
                raise self._fail("launch_feature", f"autotune {hooks} {why}")
            configs = self.pruning.left(kernel, args, kwargs, facts)
            if len(configs) > MAX_CONFIGS:
                raise self._fail("plan_size", f"more than {MAX_CONFIGS} autotune configurations")
            if facts.compares:
                named = dict(zip(kernel.arg_names, args, strict=False))
                self._note_tuning(facts, {**named, **kwargs})
            for config in configs:
                chosen = config.all_kwargs()
                if conflicts := ", ".join(sorted(chosen.keys() & kwargs.keys())):
                    raise ValueError(f"autotuned names are also given by the caller: {conflicts}")
                yield from self._resolve(kernel.fn, args, {**kwargs, **chosen})
        else:
            reason = f"a {type(kernel).__name__} is launched"
            raise self._fail("launch_feature", f"{reason}; only @triton.jit kernels are supported")

    def _note_tuning(self, facts: autotuner.AutotuneFacts, given: dict[str, Any]) -> None:
        before = self._tuning or Tuning()
        zeroed, restored = (
            tuple(dict.fromkeys((*known, *(self._named(name, given) for name in names))))
            for known, names in ((before.zeroed, facts.zeroed), (before.restored, facts.restored))
        )
        self._tuning = Tuning(zeroed, restored)

    def _named(self, name: str, given: dict[str, Any]) -> View:
        value = given.get(name)
        if not isinstance(value, torch.Tensor):
            raise TypeError(
                f"autotune's reset_to_zero and restore_value name tensor arguments; `{name}` is none"
            )
        return self._running().view(value)

    def _config(
        self, kernel: Any, args: tuple[Any, ...], grid: Any, kwargs: dict[str, Any]
    ) -> LaunchConfig:
        signature = jit_kernels.signature_of(kernel)
        own = {name: value for name, value in kwargs.items() if name in signature.parameters}
        bound = signature.bind(*args, **own)
        bound.apply_defaults()
        self._check_options(kernel.__name__, signature.parameters.keys(), kwargs)
        # A parameter may share its name with a launch option; Triton then takes its value for both.
        given = {name: kwargs.get(name) for name in jit_kernels.LAUNCH_OPTIONS}
        numbers = {name: self._option(name, one) for name, one in given.items() if one is not None}
        if numbers.get("num_ctas", 1) != 1:
            raise self._fail("launch_feature", "num_ctas > 1: block clusters are not supported")
        constexpr = jit_kernels.constexpr_names(kernel)
        arguments = tuple(
            self._argument(name, value, name in constexpr)
            for name, value in bound.arguments.items()
        )
        for argument in arguments:
            self._note_constant(kernel.__name__, argument)
        sizes = self._grid(self._called(grid, bound.arguments) if callable(grid) else grid)
        return LaunchConfig(
            grid=sizes,
            arguments=arguments,
            num_warps=numbers.get("num_warps", 4),
            num_stages=numbers.get("num_stages", 3),
            maxnreg=numbers.get("maxnreg"),
        )

    def _check_options(
        self, kernel: str, parameters: Collection[str], kwargs: dict[str, Any]
    ) -> None:
        """Refuse launch options that no plan holds, even if a parameter has the same name."""
        for name in sorted(kwargs.keys() - set(jit_kernels.LAUNCH_OPTIONS)):
            if name in jit_kernels.other_options() and jit_kernels.is_left_out(name, kwargs[name]):
                continue
            if name in parameters:
                if name in jit_kernels.other_options():
                    reason = f"parameter `{name}` of `{kernel}` has the name of a launch option, and Triton takes its value for both"
                    raise self._fail("launch_feature", f"{reason}; rename it")
            elif name in _NEEDS_MORE:
                raise self._fail("launch_feature", f"launch option `{name}`: {_NEEDS_MORE[name]}")
            else:
                raise KeyError(
                    f"keyword argument `{name}` is neither a parameter of `{kernel}` nor a launch option"
                )

    def _called(self, grid: Any, arguments: dict[str, Any]) -> Any:
        """The grid that a grid function returns. The function must not change the arguments,
        because Triton launches with the dict that the function got. Raises Violation.
        """
        shown = dict(arguments)
        sizes = grid(shown)
        same = all(shown.get(name) is value for name, value in arguments.items())
        if list(shown) != list(arguments) or not same:
            reason = "the grid function changes an argument of the launch"
            raise self._fail("launch_feature", f"{reason}; let it compute the grid only")
        return sizes

    def _note_constant(self, kernel: str, argument: Argument) -> None:
        """Refuse a constant that equals an earlier one but has another type. Triton's cache takes
        1, 1.0 and True for one constant, and compiles the first.
        """
        if argument.constexpr:
            texts = self._constants.setdefault((kernel, argument.name), {})
            text = repr(argument.value)
            if (before := texts.setdefault(argument.value, text)) != text:
                reason = f"`{argument.name}` of `{kernel}` is {before} in one launch and {text} in another"
                advice = "which Triton takes for one constant; pass one type"
                raise self._fail("launch_feature", f"{reason}, {advice}")

    def _option(self, name: str, value: Any) -> int:
        try:
            return operator.index(value)
        except TypeError:
            raise TypeError(f"launch option {name}={value!r} is not an integer") from None

    def _grid(self, grid: Any) -> tuple[int, int, int]:
        if not isinstance(grid, (tuple, list)) or not grid:
            raise TypeError(
                f"the grid must be a tuple of one to three integers, not {type(grid).__name__}"
            )
        try:
            # Triton reads the first three sizes and ignores the rest.
            sizes = [operator.index(size) for size in grid[:3]]
        except TypeError:
            raise TypeError("the grid must hold integers; use triton.cdiv or //") from None
        if min(sizes) < 0:
            raise ValueError("the grid has a negative size")
        x, y, z = [*sizes, 1, 1][:3]
        return x, y, z

    def _argument(self, name: str, value: Any, constexpr: bool) -> Argument:
        if isinstance(value, tl.constexpr):
            return Argument(name, self._value(name, value.value), True)
        return Argument(name, self._value(name, value), constexpr)

    def _value(self, name: str, value: Any) -> Value:
        if isinstance(value, torch.Tensor):
            return self._running().view(value)
        if value is None or isinstance(value, (bool, int, float)):
            return value
        if isinstance(value, str) and len(value) <= MAX_TEXT:
            return value
        if isinstance(value, tl.dtype) and value.name in TRITON_DTYPES:
            return DtypeValue(value.name)
        if isinstance(value, tuple) and not hasattr(value, "_fields"):
            return tuple(
                self._value(name, item.value if isinstance(item, tl.constexpr) else item)
                for item in value
            )
        if isinstance(value, torch.dtype):
            raise TypeError(
                f"kernel argument `{name}` is {value}; pass the Triton dtype (tl.float32 and so on)"
            )
        kind = type(value).__name__
        reason = f"kernel argument `{name}` is a {kind}"
        if kind in ("TensorDescriptor", "TensorWrapper", "JITFunction"):
            raise self._fail("launch_feature", f"{reason}, which is not supported")
        allowed = "tensors, numbers, strings, None, Triton dtypes or tuples of these"
        raise TypeError(f"{reason}; pass {allowed}")


def _compiled_kernel(violations: Violations) -> Any:
    """The class of the objects that launches return, in place of Triton's compiled kernels. The
    file may keep such an object, but not look at it: the trace has no compiled kernel to show.
    """

    def look(*given: Any) -> Any:
        raise violations.add("state", "what a launch returns is looked at; only launch kernels")

    # The class has the name of Triton's class, and its attributes are unknown too. An object of it
    # counts as true, as Triton's does.
    names = ("__getattr__", "__eq__", "__hash__", "__getitem__")
    unknown = type("Unknown", (type,), {"__getattr__": look})
    return unknown("CompiledKernel", (), dict.fromkeys(names, look))

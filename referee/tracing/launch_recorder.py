"""Turns Triton launches into plan steps instead of running them, as Triton itself would resolve them.

Follows Triton's order: an autotuner offers its configurations, heuristics compute their values from the arguments, and
arguments are bound to the kernel's parameters; what is left over must be a launch option. Runs in the trace worker only.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from referee import triton_private
from referee.plans.dtypes import TRITON_DTYPES
from referee.plans.plan import Argument, DtypeValue, Launch, LaunchConfig, Tuning, Value, View
from referee.plans.plan_parse import MAX_CONFIGS, MAX_TEXT
from referee.tracing.launched import launched
from referee.tracing.pruning import Pruning
from referee.tracing.recorder import Recorder
from referee.tracing.unchanged import Changed, Unchanged
from referee.tracing.violation import Violation, Violations
from referee.tracing.watched import Watched

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
        self._launched = launched(violations)
        self.recorder: Recorder | None = None
        # Set by the tracer once the file is imported.
        self.kernels: Unchanged | None = None
        self._tuning: Tuning | None = None
        self.pruning = Pruning()
        # The name of the candidate's module.
        self.module = ""
        # By kernel and parameter: each constant's text.
        self._constants: dict[tuple[str, str], dict[Value, str]] = {}

    def launch(self, kernel: Any, args: tuple[Any, ...], grid: Any, kwargs: dict[str, Any]) -> object:
        """Add one launch step. Raises Violation for what a plan cannot hold, and what Triton would raise for misuse."""
        recorder = self._running()
        before = recorder.done
        self._tuning = None
        resolved = list(self._resolve(kernel, args, kwargs))
        self._check_kernels([jit for jit, _, _ in resolved])
        configs = [self._config(jit, bound, grid, given) for jit, bound, given in resolved]
        if recorder.done != before:
            # Triton would do it once, or for each configuration it tries: a plan that holds it would be another program.
            raise self._fail("launch_feature", "grid, heuristics and pruning functions may compute numbers, not make or change tensors")
        # Keyed by their text, because True, 1 and 1.0 are equal but compile differently.
        unique = {repr(config): config for config in configs}
        recorder.add(Launch(resolved[0][0].__name__, tuple(unique.values()), self._tuning))
        return self._launched()

    def warm_up(self, kernel: Any) -> None:
        """Refuse a compilation that `run` asks for."""
        raise self._fail("launch_feature", "kernel.warmup is not supported: compute launch sizes from shapes and device properties")

    def _check_kernels(self, launched: list[Any]) -> None:
        """Refuse a launch of another kernel than the one that is compiled from the text under its name."""
        if self.kernels is None or any(jit is not launched[0] for jit in launched):
            raise self._fail("launch_feature", "a launch is of one kernel of the file")
        try:
            self.kernels.at_launch(launched[0])
        except Changed as error:
            raise self._fail(error.guard, str(error)) from None

    def _running(self) -> Recorder:
        if self.recorder is None:
            raise self._violations.add("module_level", "a kernel is launched while the file is being imported; launch in `run` only")
        return self.recorder

    def _fail(self, guard: str, reason: str) -> Violation:
        return self._violations.add(guard, reason)

    def _resolve(self, kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Resolved]:
        kind = triton_private.wraps(kernel)
        if kind == "jit":
            if triton_private.has_run_hooks(kernel):
                raise self._fail("launch_feature", "pre-run hooks are not supported")
            yield kernel, args, {name: value for name, value in kwargs.items() if name not in triton_private.OF_RUN}
        elif kind == "heuristics":
            for name, compute in kernel.values.items():
                with self._unchanging("a function for heuristics", compute):
                    kwargs = {**kwargs, name: compute({**dict(zip(kernel.arg_names, args, strict=False)), **kwargs})}
            yield from self._resolve(kernel.fn, args, kwargs)
        elif kind == "autotune":
            facts = triton_private.autotune_facts(kernel, args, kwargs)
            if facts.hooks:
                hooks = ", ".join(facts.hooks)
                raise self._fail("launch_feature", f"autotune {hooks} is not supported: the judge tries every configuration itself")
            with self._unchanging("a function for pruning", kernel.early_config_prune, kernel.perf_model):
                configs = self.pruning.left(kernel, args, kwargs, facts)
            if len(configs) > MAX_CONFIGS:
                raise self._fail("plan_size", f"more than {MAX_CONFIGS} autotune configurations")
            if facts.compares:
                self._note_tuning(facts, {**dict(zip(kernel.arg_names, args, strict=False)), **kwargs})
            for config in configs:
                chosen = config.all_kwargs()
                conflicts = sorted(chosen.keys() & kwargs.keys())
                if conflicts:
                    raise ValueError(f"autotuned names are also given by the caller: {', '.join(conflicts)}")
                yield from self._resolve(kernel.fn, args, {**kwargs, **chosen})
        else:
            raise self._fail("launch_feature", f"a {type(kernel).__name__} is launched; only @triton.jit kernels are supported")

    def _note_tuning(self, facts: triton_private.AutotuneFacts, given: dict[str, Any]) -> None:
        zeroed, restored = (tuple(self._named(name, given) for name in names) for names in (facts.zeroed, facts.restored))
        before = self._tuning or Tuning()
        self._tuning = Tuning(*(tuple(dict.fromkeys(views)) for views in (before.zeroed + zeroed, before.restored + restored)))

    def _named(self, name: str, given: dict[str, Any]) -> View:
        value = given.get(name)
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"autotune's reset_to_zero and restore_value name tensor arguments; `{name}` is none")
        return self._running().view(value)

    def _config(self, kernel: Any, args: tuple[Any, ...], grid: Any, kwargs: dict[str, Any]) -> LaunchConfig:
        signature = triton_private.signature_of(kernel)
        bound = signature.bind(*args, **{name: value for name, value in kwargs.items() if name in signature.parameters})
        bound.apply_defaults()
        self._check_options(kernel.__name__, signature.parameters.keys(), kwargs)
        # A parameter may share its name with a launch option; Triton then takes its value for both.
        given = {name: kwargs[name] for name in triton_private.LAUNCH_OPTIONS if kwargs.get(name) is not None}
        numbers = {name: self._option(name, value) for name, value in given.items()}
        if numbers.get("num_ctas", 1) != 1:
            raise self._fail("launch_feature", "num_ctas > 1: block clusters are not supported")
        constexpr = triton_private.constexpr_names(kernel)
        arguments = tuple(self._argument(name, value, name in constexpr) for name, value in bound.arguments.items())
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

    def _check_options(self, kernel: str, parameters: Collection[str], kwargs: dict[str, Any]) -> None:
        """Refuse what a plan does not hold: other launch options, also where a parameter has the name of one."""
        for name in sorted(kwargs.keys() - set(triton_private.LAUNCH_OPTIONS)):
            if name in triton_private.other_options() and triton_private.is_left_out(name, kwargs[name]):
                continue
            if name in parameters:
                if name in triton_private.other_options():
                    reason = f"parameter `{name}` of `{kernel}` has the name of a launch option, and Triton takes its value for both"
                    raise self._fail("launch_feature", f"{reason}; rename it")
            elif name in _NEEDS_MORE:
                raise self._fail("launch_feature", f"launch option `{name}`: {_NEEDS_MORE[name]}")
            else:
                raise KeyError(f"keyword argument `{name}` is neither a parameter of `{kernel}` nor a launch option")

    def _called(self, grid: Any, arguments: dict[str, Any]) -> Any:
        """What a grid function returns. Triton calls it once a launch, and launches with what it was shown; here it is called once for
        each configuration."""
        shown = dict(arguments)
        with self._unchanging("the grid function", grid):
            sizes = grid(shown)
        if list(shown) != list(arguments) or any(shown[name] is not value for name, value in arguments.items()):
            raise self._fail("launch_feature", "the grid function changes an argument of the launch; let it compute the grid only")
        return sizes

    @contextmanager
    def _unchanging(self, what: str, *functions: Any) -> Iterator[None]:
        """Within, functions are called that Triton calls another number of times."""
        watched = Watched(functions, self.module)
        yield
        if watched.changed():
            raise self._fail("state", f"{what} changes something with every call; let it compute numbers only")

    def _note_constant(self, kernel: str, argument: Argument) -> None:
        """Triton's cache of kernels takes 1, 1.0 and True for one constant: what is compiled is the one that came first."""
        if argument.constexpr:
            texts = self._constants.setdefault((kernel, argument.name), {})
            text = repr(argument.value)
            if (before := texts.setdefault(argument.value, text)) != text:
                reason = f"`{argument.name}` of `{kernel}` is {before} in one launch and {text} in another"
                raise self._fail("launch_feature", f"{reason}, which Triton takes for one constant; pass one type")

    def _option(self, name: str, value: Any) -> int:
        try:
            return operator.index(value)
        except TypeError:
            raise TypeError(f"launch option {name}={value!r} is not an integer") from None

    def _grid(self, grid: Any) -> tuple[int, int, int]:
        if not isinstance(grid, (tuple, list)) or not 1 <= len(grid) <= 3:
            raise TypeError(f"the grid must be a tuple of one to three integers, not {type(grid).__name__}")
        try:
            sizes = [operator.index(size) for size in grid]
        except TypeError:
            raise TypeError("the grid must hold integers; use triton.cdiv or //") from None
        if min(sizes) < 0:
            raise ValueError("the grid has a negative size")
        x, y, z = [*sizes, 1, 1][:3]
        return x, y, z

    def _argument(self, name: str, value: Any, constexpr: bool) -> Argument:
        from triton.language import constexpr as Constexpr  # noqa: N812

        if isinstance(value, Constexpr):
            return Argument(name, self._value(name, value.value), True)
        return Argument(name, self._value(name, value), constexpr)

    def _value(self, name: str, value: Any) -> Value:
        from triton.language import constexpr as Constexpr  # noqa: N812
        from triton.language import dtype as Dtype  # noqa: N812

        if isinstance(value, torch.Tensor):
            return self._running().view(value)
        if value is None or isinstance(value, (bool, int, float)):
            return value
        if isinstance(value, str) and len(value) <= MAX_TEXT:
            return value
        if isinstance(value, Dtype) and value.name in TRITON_DTYPES:
            return DtypeValue(value.name)
        if isinstance(value, tuple) and not hasattr(value, "_fields"):
            return tuple(self._value(name, item.value if isinstance(item, Constexpr) else item) for item in value)
        if isinstance(value, torch.dtype):
            raise TypeError(f"kernel argument `{name}` is {value}; pass the Triton dtype (tl.float32 and so on)")
        kind = type(value).__name__
        if kind in ("TensorDescriptor", "TensorWrapper", "JITFunction"):
            raise self._fail("launch_feature", f"kernel argument `{name}` is a {kind}, which is not supported")
        raise TypeError(f"kernel argument `{name}` is a {kind}; pass tensors, numbers, strings, None, Triton dtypes or tuples of these")

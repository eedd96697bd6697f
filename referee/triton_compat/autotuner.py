"""Triton's autotuner: its configurations, hooks, and zeroed and restored arguments."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from referee.versions import Facts, facts


@dataclass(frozen=True)
class AutotuneFacts:
    """An autotuner's tried configurations, the names of its hooks, and its zeroed and restored
    arguments.

    `key` identifies Triton's choice: the values of the arguments named in `key`, where equal ones
    count as one, and all dtypes. With a single configuration Triton compares, zeroes and restores
    nothing. Where pruning leaves one of several, that depends on the version.
    """

    configs: tuple[Any, ...]
    hooks: tuple[str, ...]
    compares: bool
    key: tuple[object, ...]
    zeroed: tuple[str, ...] = ()
    restored: tuple[str, ...] = ()


def autotune_facts(
    tuner: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
) -> AutotuneFacts:
    """The configurations that an Autotuner would try for these arguments, and its hooks with code
    around a launch.

    `prune_configs_by` only chooses among the configurations. It runs unchanged, as in Triton: not
    for a single configuration.
    """
    hooks = [name for name in ("pre_hook", "post_hook") if getattr(tuner, f"user_defined_{name}")]
    if any(config.pre_hook is not None for config in tuner.configs):
        hooks.append("Config(pre_hook=...)")
    if any(getattr(config, "ir_override", None) is not None for config in tuner.configs):
        hooks.append("Config(ir_override=...)")
    measures = tuner._do_bench
    # Triton's functions for `warmup`, `rep` and `use_cuda_graph` are in the autotuner's module.
    if measures is not None and getattr(measures, "__globals__", None) is not vars(
        inspect.getmodule(type(tuner))
    ):
        hooks.append("do_bench")
    configs = tuple(tuner.configs)
    if prunes(tuner) and not hooks:
        before = dict(vars(tuner))
        given = dict(zip(tuner.arg_names, args, strict=False))
        # Triton reads the zeroed and restored arguments from the mapping that it shows to the
        # functions.
        shown = tuner.nargs = dict(given)
        try:
            configs = tuple(tuner.prune_configs(kwargs or {}))
        finally:
            vars(tuner).clear()
            vars(tuner).update(before)
        # Among equal configurations Triton would launch the given objects.
        if not configs or not all(
            any(config is own for own in tuner.configs) for config in configs
        ):
            raise ValueError(
                "prune_configs_by must choose from the configurations of the autotuner"
            )
        if shown.keys() != given.keys() or any(
            shown[name] is not value for name, value in given.items()
        ):
            raise ValueError("prune_configs_by must leave the arguments as they are")
    given = {**dict(zip(tuner.arg_names, args, strict=False)), **(kwargs or {})}
    given = {name: value for name, value in given.items() if name in tuner.arg_names}
    named = [given[name] for name in tuner.keys if name in given]
    key = [
        value if isinstance(value, bool | int | float | str | None) else repr(value)
        for value in named
    ]
    key += [str(value.dtype) for value in given.values() if hasattr(value, "dtype")]
    known = _known()
    several = len(configs) > 1 or (known.measures_one_left and len(tuner.configs) > 1)
    none = {name for name, value in given.items() if value is None and known.resets_none}
    return AutotuneFacts(
        configs,
        tuple(hooks),
        several,
        tuple(key),
        tuple(name for name in tuner.reset_to_zero if name not in none),
        tuple(name for name in tuner.restore_value if name not in none),
    )


def _known() -> Facts:
    import triton

    return facts(triton.__version__)


def prunes(tuner: Any) -> bool:
    """Whether an Autotuner's `prune_configs_by` selects the configurations to try."""
    return len(tuner.configs) > 1 and bool(tuner.early_config_prune or tuner.perf_model)

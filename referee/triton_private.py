"""Everything of Triton's private interface that the referee touches, in one place.

Known for the versions of `triton_version.py`. `tests/referee/trace/test_triton_private.py` pins the behaviour relied on. Runs in
worker processes only, except `representative`, which imports nothing of Triton.
"""

from __future__ import annotations

import inspect
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from referee.target import Target

# Kernel parameters that the compiler appends: pointers to global and profile scratch.
HIDDEN_POINTERS = 2
# What a signature says of a parameter that is compiled into the kernel and not passed.
CONSTANT = "constexpr"

MOST_WRAPPERS = 16
Runner = Callable[..., Any]

# Keyword arguments of a kernel's `run` that are neither the kernel's nor options of its launch.
OF_RUN = ("grid", "warmup")
LAUNCH_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
# Options that are off unless a launch says otherwise. Others have a default that depends on the target or on Triton's settings.
_OFF = frozenset({"debug", "launch_cooperative_grid", "launch_pdl"})


def representative(value: int) -> int:
    """The smallest integer that Triton specialises like `value`.

    Triton tells integer arguments apart by three things only: equal to 1, divisible by 16, and the narrowest of int32,
    int64 and uint64 that holds them.
    """
    if value == 1:
        return 1
    multiple = value % 16 == 0
    if -(2**31) <= value < 2**31:
        return 16 if multiple else 17
    if -(2**63) <= value < 2**63:
        return 2**32 if multiple else 2**32 + 1
    return 2**63 if multiple else 2**63 + 1


class StandInDriver:
    """An active driver for a process without a GPU: device 0, the stream that it is told, and the target's properties."""

    def __init__(self, target: Target, stream: Callable[[], int], refuse: Callable[[str], BaseException]) -> None:
        self._target, self._stream, self._refuse = target, stream, refuse
        self.utils = _Utilities(target, self.set_current_device)

    def get_current_device(self) -> int:
        """Always device 0."""
        return 0

    def set_current_device(self, device: object) -> None:
        """Refuse any other device than the one there is."""
        if device is not None and str(device) not in ("0", "cuda", "cuda:0"):
            raise self._refuse(f"Triton's driver is asked about device {str(device)[:40]}; ask about the one of the tensors")

    def get_current_stream(self, device: int | None = None) -> int:
        """The handle of the current stream."""
        self.set_current_device(device)
        return self._stream()

    def get_current_target(self) -> Any:
        """The target, as Triton's GPUTarget."""
        from triton.backends.compiler import GPUTarget

        return GPUTarget(self._target.backend, self._target.arch, self._target.warp_size)

    def get_device_capability(self, device: int | None = None) -> tuple[int, int]:
        """Major and minor compute capability."""
        self.set_current_device(device)
        return self._target.capability

    def get_active_torch_device(self) -> Any:
        """torch's cuda:0."""
        import torch

        return torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        """torch.cuda."""
        import torch

        return torch.cuda


class _Utilities:
    def __init__(self, target: Target, check: Callable[[object], None]) -> None:
        self._target, self._check = target, check

    def get_device_properties(self, device: int = 0) -> dict[str, int]:
        """The dictionary that Triton's CUDA driver returns."""
        self._check(device)
        found = self._target.properties
        return {
            "max_shared_mem": found.shared_memory_per_block_optin,
            "max_num_regs": found.regs_per_multiprocessor,
            "multiprocessor_count": found.multi_processor_count,
            "warpSize": self._target.warp_size,
            "sm_clock_rate": found.clock_rate,
            "mem_clock_rate": found.memory_clock_rate,
            "mem_bus_width": found.memory_bus_width,
        }


@contextmanager
def active_driver(
    target: Target, stream: Callable[[], int] = lambda: 0, refuse: Callable[[str], BaseException] = ValueError
) -> Iterator[StandInDriver]:
    """Make a stand-in driver the active one; on leaving, the driver that was (or was not yet) active is restored. `refuse` makes what is
    raised when it is asked about another device."""
    from triton.runtime.driver import driver

    stand_in = StandInDriver(target, stream, refuse)
    before = driver.__dict__.copy()
    driver.set_active(stand_in)
    try:
        yield stand_in
    finally:
        driver.__dict__.clear()
        driver.__dict__.update(before)


@contextmanager
def launches_go_to(launch: Runner, warm_up: Runner) -> Iterator[None]:
    """Divert every launch to `launch(kernel, args, grid, kwargs)` and every warm-up call to `warm_up(kernel)`.

    All launch forms, `kernel[grid](...)` and `kernel.run(..., grid=...)`, end in the `run` of one of three classes. What is meant for
    `run` itself (OF_RUN) stays among `kwargs`: Triton hands it to heuristics and pruning functions like everything else.
    """
    from triton.runtime.autotuner import Autotuner, Heuristics
    from triton.runtime.jit import JITFunction, KernelInterface

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        return warm_up(self) if kwargs.get("warmup") else launch(self, args, kwargs.get("grid"), kwargs)

    def warm(self: Any, *args: Any, **kwargs: Any) -> Any:
        return warm_up(self)

    classes = (JITFunction, Autotuner, Heuristics, KernelInterface)
    saved = [(cls, name, cls.__dict__[name]) for cls in classes for name in ("run", "warmup") if name in cls.__dict__]
    for cls, name, _ in saved:
        setattr(cls, name, run if name == "run" else warm)
    try:
        yield
    finally:
        for cls, name, original in saved:
            setattr(cls, name, original)


@dataclass(frozen=True)
class AutotuneFacts:
    """What an autotuner would try, the names of its hooks, if it has any, and of the arguments it zeroes and restores.

    `key` is what Triton knows the choice by: the values of the arguments that `key` names, equal ones being one, and all dtypes.
    With a single configuration Triton compares nothing, and zeroes and restores nothing; it does where pruning leaves one of several.
    """

    configs: tuple[Any, ...]
    hooks: tuple[str, ...]
    compares: bool
    key: tuple[object, ...]
    zeroed: tuple[str, ...] = ()
    restored: tuple[str, ...] = ()


def autotune_facts(tuner: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> AutotuneFacts:
    """What an Autotuner would try for these arguments, and which of its hooks could run code around a launch.

    `prune_configs_by` only chooses among the configurations and runs as it is, as Triton runs it: not for a single one.
    """
    hooks = [name for name in ("pre_hook", "post_hook") if getattr(tuner, f"user_defined_{name}")]
    if any(config.pre_hook is not None for config in tuner.configs):
        hooks.append("Config(pre_hook=...)")
    if any(getattr(config, "ir_override", None) is not None for config in tuner.configs):
        hooks.append("Config(ir_override=...)")
    measures = tuner._do_bench
    # Triton's own, for `warmup`, `rep` and `use_cuda_graph`, are written in the autotuner's module.
    if measures is not None and getattr(measures, "__globals__", None) is not vars(inspect.getmodule(type(tuner))):
        hooks.append("do_bench")
    configs = tuple(tuner.configs)
    if prunes(tuner) and not hooks:
        before = dict(vars(tuner))
        given = dict(zip(tuner.arg_names, args, strict=False))
        # Triton takes what it zeroes and restores from what it shows to the functions.
        shown = tuner.nargs = dict(given)
        try:
            configs = tuple(tuner.prune_configs(kwargs or {}))
        finally:
            vars(tuner).clear()
            vars(tuner).update(before)
        # Of equal ones Triton would launch those that it was given.
        if not configs or not all(any(config is own for own in tuner.configs) for config in configs):
            raise ValueError("prune_configs_by must choose from the configurations of the autotuner")
        if shown.keys() != given.keys() or any(shown[name] is not value for name, value in given.items()):
            raise ValueError("prune_configs_by must leave the arguments as they are")
    given = {**dict(zip(tuner.arg_names, args, strict=False)), **(kwargs or {})}
    given = {name: value for name, value in given.items() if name in tuner.arg_names}
    named = [given[name] for name in tuner.keys if name in given]
    key = [value if isinstance(value, bool | int | float | str | None) else repr(value) for value in named]
    key += [str(value.dtype) for value in given.values() if hasattr(value, "dtype")]
    several = len(tuner.configs) > 1
    return AutotuneFacts(configs, tuple(hooks), several, tuple(key), tuple(tuner.reset_to_zero), tuple(tuner.restore_value))


def prunes(tuner: Any) -> bool:
    """True when an Autotuner asks `prune_configs_by` which configurations to try."""
    return len(tuner.configs) > 1 and bool(tuner.early_config_prune or tuner.perf_model)


@dataclass(frozen=True)
class JitFacts:
    """What a JITFunction is compiled from: its function, the names that it sees, its text, parameters, options and signature.

    And what `describes` its launches to profilers.
    """

    function: Any
    names: Any
    text: str
    parameters: tuple[tuple[Any, ...], ...]
    options: tuple[Any, ...]
    signature: tuple[tuple[str, Any], ...]
    describes: Any


def wraps(kernel: Any) -> str:
    """What a launchable object is: "jit", "autotune", "heuristics" or "unknown"."""
    from triton.runtime.autotuner import Autotuner, Heuristics
    from triton.runtime.jit import JITFunction

    for cls, name in ((JITFunction, "jit"), (Autotuner, "autotune"), (Heuristics, "heuristics")):
        if type(kernel) is cls:
            return name
    return "unknown"


def innermost(kernel: Any) -> Any:
    """The JITFunction inside autotuners and heuristics; None where there is none."""
    for _ in range(MOST_WRAPPERS):
        if wraps(kernel) == "jit":
            return kernel
        if wraps(kernel) == "unknown":
            return None
        kernel = kernel.fn
    return None


def read_jit(kernel: Any) -> JitFacts:
    """What a JITFunction is compiled from. It is not compiled for this."""
    parameters = tuple(
        (p.num, p.name, p.is_constexpr, p.is_const, p.annotation_type, bool(p.do_not_specialize), bool(p.do_not_specialize_on_alignment))
        for p in kernel.params
    )
    options = (bool(kernel.noinline), kernel.debug, kernel.version, kernel._repr, bool(kernel.pre_run_hooks))
    signature = tuple((p.name, p.default) for p in kernel.signature.parameters.values())
    return JitFacts(kernel.fn, kernel.__globals__, kernel.src, parameters, options, signature, kernel.launch_metadata)


def signature_of(kernel: Any) -> inspect.Signature:
    """The Python signature of a JITFunction's function."""
    found: inspect.Signature = kernel.signature
    return found


def constexpr_names(kernel: Any) -> frozenset[str]:
    """Names of the parameters annotated tl.constexpr."""
    return frozenset(parameter.name for parameter in kernel.params if parameter.is_constexpr)


@dataclass(frozen=True)
class Typing:
    """How a parameter is typed: `annotated` as signatures name types, or ""; `one_is_constant` where Triton compiles a 1 as one."""

    annotated: str
    one_is_constant: bool


def typings(function: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Typing]:
    """For each parameter of a kernel's Python function; `options` are those of `triton.jit`."""
    from triton.runtime.jit import KernelParam

    kept = options.get("do_not_specialize") or ()
    parameters = inspect.signature(function).parameters.values()
    kinds = {p.name: KernelParam(number, p, False, False).annotation_type for number, p in enumerate(parameters)}
    return {name: Typing(kind, not (kind or name in kept or number in kept)) for number, (name, kind) in enumerate(kinds.items())}


def other_options() -> frozenset[str]:
    """What Triton takes for an option of a launch beside LAUNCH_OPTIONS, also where it is the name of a parameter."""
    from triton.backends.nvidia.compiler import CUDAOptions

    return frozenset(CUDAOptions.__dataclass_fields__) - set(LAUNCH_OPTIONS)


def is_left_out(option: str, value: object) -> bool:
    """True when an option with this value compiles and launches the same as without it."""
    # Triton 3.7 fails on a mode that is None.
    return (value is None and option != "instrumentation_mode") or (option in _OFF and value is False)


def has_run_hooks(kernel: Any) -> bool:
    """True when the candidate attached pre-run hooks to the kernel."""
    return bool(kernel.pre_run_hooks)


def prepare_compiler(ptxas_version: str, cache: str) -> None:
    """Point the compiler of this process at a cache directory, tell it ptxas's version, and skip hashing its installation.

    The hash only names cache entries; the cache is private and empty, so that no name can be stale.
    """
    from triton import knobs
    from triton.runtime import cache as cache_module

    cache_module.triton_key = lambda: "private"
    knobs.NvidiaTool.from_path = staticmethod(lambda path: knobs.NvidiaTool(path, ptxas_version))
    knobs.nvidia.mock_ptx_version = ptxas_version
    knobs.nvidia.dump_ptxas_log = True
    knobs.cache.dir = cache


def tool_was_ended(error: BaseException) -> bool:
    """True when a compiler's error is that a program it ran (ptxas) was ended from outside, which says nothing of the kernel."""
    return _tool_ended_by(error, signal.SIGKILL, signal.SIGTERM)


def tool_ran_out_of_time(error: BaseException) -> bool:
    """True when a compiler's error is that a program it ran (ptxas) used up its processor time."""
    return _tool_ended_by(error, signal.SIGXCPU)


def _tool_ended_by(error: BaseException, *signals: signal.Signals) -> bool:
    causes: list[BaseException] = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None:
        causes.append(cause)
    return any(isinstance(cause, subprocess.CalledProcessError) and -cause.returncode in signals for cause in causes)


@dataclass(frozen=True)
class Compiled:
    """What is read off one of Triton's compiled kernels. `signature` holds (name, type) in parameter order."""

    name: str
    image: bytes
    ptx: str
    ttgir: str
    signature: tuple[tuple[str, Any], ...]
    shared: int
    num_warps: int
    needs: tuple[str, ...]


def read_compiled(kernel: Any) -> Compiled:
    """The parts of a CompiledKernel that a launch needs. `needs` names what a plain launch cannot give it."""
    meta = kernel.metadata
    needs = []
    for field, what in (
        ("global_scratch_size", "global scratch memory"),
        ("profile_scratch_size", "profile scratch memory"),
        ("tmem_size", "tensor memory"),
    ):
        if getattr(meta, field, 0):
            needs.append(what)
    for field, what in (("launch_cooperative_grid", "a cooperative grid"), ("launch_pdl", "programmatic dependent launch")):
        if getattr(meta, field, False):
            needs.append(what)
    if meta.num_ctas != 1:
        needs.append("block clusters")
    if getattr(meta, "tensordesc_meta", None):
        needs.append("tensor descriptors")
    return Compiled(
        name=meta.name,
        image=bytes(kernel.asm["cubin"]),
        ptx=kernel.asm["ptx"],
        ttgir=kernel.asm["ttgir"],
        signature=tuple(kernel.src.signature.items()),
        needs=tuple(needs), shared=meta.shared, num_warps=meta.num_warps,
    )  # fmt: skip


def loaded_function(kernel: Any) -> int:
    """The driver's handle of a CompiledKernel that has been launched."""
    return int(kernel.function)


def stream_reader() -> Callable[[], int]:
    """Tells the handle of the current stream of the device that is the current one now, as Triton asks for it at every launch."""
    from triton.runtime.driver import driver

    return partial(driver.active.get_current_stream, driver.active.get_current_device())

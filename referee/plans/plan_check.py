"""The rules that a launch plan must satisfy before the judge executes it.

Every view lies within its buffer. The inputs are exactly those of the test case. Outputs fulfil the
contract and share memory neither with inputs nor with each other. Fills and copies never write an
input. Grids, sizes and options are within CUDA's limits. Kernels and their arguments are those of
the clean module. A launch's writes are unknown here: the judge compares inputs bitwise afterwards.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from referee.ops.spec import TensorSpec, are_apart
from referee.plans.dtypes import ITEMSIZE, LARGEST, integer_range
from referee.plans.plan import (
    Buffer,
    Copy,
    Fill,
    Launch,
    LaunchConfig,
    LaunchPlan,
    Tuning,
    View,
    views_in,
    views_of,
)
from referee.reading.kernels import KernelModule, KernelSignature

# CUDA C++ programming guide, technical specifications per compute capability: x up to 2^31 - 1, y
# and z up to 65535.
MAX_GRID = (2**31 - 1, 65535, 65535)
WARPS = frozenset({1, 2, 4, 8, 16, 32})
MAX_STAGES = 16
REGISTERS = range(16, 256)

# Scratch memory may be larger than the data, within these bounds.
SCRATCH_FACTOR = 16
SCRATCH_FREE_BYTES = 64 * 1024 * 1024
# Bytes of alignment for vector loads; and the allowed waste of a padded output, as a factor and in
# bytes.
OUTPUT_ALIGNMENT, KEPT_TIMES, KEPT_BYTES = 16, 2, 16 * 1024 * 1024


class PlanError(ValueError):
    """The judge refuses to execute this plan. `guard` names the rule."""

    def __init__(self, reason: str, *, guard: str = "plan") -> None:
        super().__init__(reason)
        self.guard = guard


def extent(shape: Sequence[int], strides: Sequence[int]) -> int:
    """The number of elements from the first to the last addressed one; 0 for an empty view."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def input_nbytes(spec: TensorSpec) -> int:
    """Bytes of the buffer of an input: from its storage's start to its last element."""
    return (spec.offset + extent(spec.shape, spec.strides)) * ITEMSIZE[spec.dtype]


def input_view(index: int, spec: TensorSpec) -> View:
    """The view of an input on its buffer."""
    return View(index, spec.offset * ITEMSIZE[spec.dtype], spec.shape, spec.strides, spec.dtype)


def check_plan(
    plan: LaunchPlan,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    module: KernelModule | None,
) -> None:
    """Raises PlanError for the first rule that `plan` breaks with these inputs and outputs."""
    _check_buffers(plan, inputs, outputs)
    used = (view for step in plan.steps for view in views_of(step))
    for view in (*plan.inputs, *plan.outputs, *used):
        check_view(view, plan.buffers)
    for step in plan.steps:
        if isinstance(step, Launch):
            _check_launch(step, module)
            _check_tuning(step.tuning, plan.buffers)
        elif isinstance(step, Fill):
            _check_target(step.target, plan.buffers)
            _check_fill(step)
        else:
            _check_target(step.target, plan.buffers)
            _check_copy(step)
    _check_outputs(plan, outputs)
    if not plan.launches() and any(0 not in spec.shape for spec in outputs):
        raise PlanError("`run` launches no Triton kernel", guard="no_kernel")


def check_view(view: View, buffers: Sequence[Buffer]) -> None:
    """Raises PlanError unless the view lies within its buffer, aligned to its element size."""
    if view.buffer >= len(buffers):
        raise PlanError("a view names a buffer that does not exist")
    if len(view.shape) != len(view.strides):
        raise PlanError("a view has a different number of sizes and strides")
    itemsize = ITEMSIZE[view.dtype]
    if view.offset % itemsize:
        raise PlanError("a view is not aligned to its element size")
    if view.offset + extent(view.shape, view.strides) * itemsize > buffers[view.buffer].nbytes:
        raise PlanError("a view reaches beyond its buffer")


def _check_buffers(
    plan: LaunchPlan, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> None:
    count = len(inputs)
    if plan.inputs != tuple(input_view(index, spec) for index, spec in enumerate(inputs)):
        raise PlanError("the plan's inputs are not the cell's inputs")
    wanted = (Buffer(input_nbytes(spec), index) for index, spec in enumerate(inputs))
    if plan.buffers[:count] != tuple(wanted):
        raise PlanError("the plan's input buffers are not the cell's")
    if any(buffer.input is not None for buffer in plan.buffers[count:]):
        raise PlanError("the plan has more input buffers than the cell")
    data = sum(buffer.nbytes for buffer in plan.buffers[:count])
    data += sum(extent(spec.shape, spec.strides) * ITEMSIZE[spec.dtype] for spec in outputs)
    scratch = sum(buffer.nbytes for buffer in plan.buffers[count:])
    if scratch > SCRATCH_FACTOR * data + SCRATCH_FREE_BYTES:
        reason = "`run` allocates far more memory than its inputs and outputs take"
        raise PlanError(reason, guard="plan_size")


def _check_launch(step: Launch, module: KernelModule | None) -> None:
    signature = None if module is None else module.signature(step.kernel)
    if module is not None and signature is None:
        reason = f"`{step.kernel}` is not a @triton.jit function at the top level of the file"
        raise PlanError(reason, guard="kernel_syntax")
    if not step.configs:
        raise PlanError("a launch without a configuration")
    for config in step.configs:
        _check_config(config)
        if signature is not None:
            _check_arguments(config, signature)


def _check_tuning(tuning: Tuning | None, buffers: Sequence[Buffer]) -> None:
    for view in tuning.zeroed if tuning else ():
        if buffers[view.buffer].input is not None:
            reason = "autotune's reset_to_zero names an input, which Triton would zero"
            advice = "name only tensors that `run` allocates"
            raise PlanError(f"{reason}; {advice}", guard="autotune")
        _check_target(view, buffers)
    for view in tuning.restored if tuning else ():
        # An input that is restored counts as unchanged; other calls show whether the kernel writes
        # it.
        if buffers[view.buffer].input is None:
            _check_target(view, buffers)


def _check_config(config: LaunchConfig) -> None:
    if any(size > limit for size, limit in zip(config.grid, MAX_GRID, strict=True)):
        raise _limit(f"grid {config.grid} exceeds CUDA's limit {MAX_GRID}")
    if config.num_warps not in WARPS:
        raise _limit(f"num_warps={config.num_warps}: must be a power of two of at most 32")
    if not 1 <= config.num_stages <= MAX_STAGES:
        raise _limit(f"num_stages={config.num_stages}: must be 1 to {MAX_STAGES}")
    if config.num_ctas != 1:
        reason = f"num_ctas={config.num_ctas}: block clusters are not supported"
        raise PlanError(reason, guard="launch_feature")
    if config.maxnreg is not None and config.maxnreg not in REGISTERS:
        raise _limit(f"maxnreg={config.maxnreg}: must be 16 to 255")


def _limit(reason: str) -> PlanError:
    return PlanError(reason, guard="launch_limits")


def _check_arguments(config: LaunchConfig, signature: KernelSignature) -> None:
    names = tuple(argument.name for argument in config.arguments)
    if names != tuple(parameter.name for parameter in signature.parameters):
        launch = f"a launch of `{signature.name}`"
        raise PlanError(f"the arguments of {launch} are not the kernel's parameters")
    for argument, parameter in zip(config.arguments, signature.parameters, strict=True):
        reason = f"`{argument.name}` of `{signature.name}` is a constexpr"
        if parameter.constexpr and not argument.constexpr:
            raise PlanError(reason)
        if argument.constexpr and any(True for _ in views_in(argument.value)):
            raise PlanError(f"{reason} and cannot be a tensor", guard="trace_error")


def _check_target(target: View, buffers: Sequence[Buffer]) -> None:
    if buffers[target.buffer].input is not None:
        reason = "`run` writes into one of its inputs; allocate an output instead"
        raise PlanError(reason, guard="input_written")
    if not are_apart(target.shape, target.strides):
        raise PlanError("a fill or copy writes a view whose elements overlap")


def _check_fill(step: Fill) -> None:
    limits = integer_range(step.target.dtype)
    value = step.value
    if limits is None:
        if math.isfinite(value) and abs(value) > LARGEST[step.target.dtype]:
            raise PlanError(f"a fill with {value}, which {step.target.dtype} cannot hold")
    elif not math.isfinite(value) or value != int(value) or not limits[0] <= value <= limits[1]:
        raise PlanError(f"a fill with {value}, which {step.target.dtype} cannot hold")


def _check_copy(step: Copy) -> None:
    target, source = step.target, step.source
    trailing = zip(reversed(source.shape), reversed(target.shape), strict=False)
    broadcasts = all(size in (1, wanted) for size, wanted in trailing)
    if len(source.shape) > len(target.shape) or not broadcasts:
        raise PlanError("a copy between shapes that do not match")
    if target.buffer == source.buffer and _bytes_meet(target, source) and target != source:
        raise PlanError("a copy within one buffer between parts that overlap")


def _bytes_meet(first: View, second: View) -> bool:
    ends = [
        view.offset + extent(view.shape, view.strides) * ITEMSIZE[view.dtype]
        for view in (first, second)
    ]
    return first.offset < ends[1] and second.offset < ends[0]


def _check_outputs(plan: LaunchPlan, outputs: Sequence[TensorSpec]) -> None:
    if len(plan.outputs) != len(outputs):
        raise _broken(f"`run` must return {len(outputs)} tensor(s), not {len(plan.outputs)}")
    for view, spec in zip(plan.outputs, outputs, strict=True):
        if view.shape != spec.shape:
            shapes = f"shape {list(view.shape)}, not {list(spec.shape)}"
            raise _broken(f"output `{spec.name}` has {shapes}")
        if view.dtype != spec.dtype:
            raise _broken(f"output `{spec.name}` is {view.dtype}, not {spec.dtype}")
        if not _has_usual_layout(view, spec) and not _is_dense(view):
            fault = "is not contiguous: it has gaps, or elements share memory"
            raise _broken(f"output `{spec.name}` {fault}")
        if plan.buffers[view.buffer].input is not None:
            reason = "`run` returns a view of an input; allocate an output instead"
            raise PlanError(reason, guard="output_alias")
    for view, other in itertools.combinations(plan.outputs, 2):
        if other.buffer == view.buffer and _bytes_meet(view, other):
            raise PlanError("two outputs share memory", guard="output_alias")
    if len(plan.outputs) == 1:
        _check_alone(plan.outputs[0], plan.buffers[plan.outputs[0].buffer].nbytes, outputs[0].name)


def reordered_outputs(plan: LaunchPlan, outputs: Sequence[TensorSpec]) -> list[str]:
    """Names of outputs whose dimensions have another order in memory than a contiguous tensor's."""
    pairs = zip(plan.outputs, outputs, strict=True)
    return [spec.name for view, spec in pairs if not _has_usual_layout(view, spec)]


def _has_usual_layout(view: View, spec: TensorSpec) -> bool:
    return any(_same_layout(view.strides, spec, contiguous=one) for one in (False, True))


def _is_dense(view: View) -> bool:
    return are_apart(view.shape, view.strides) and extent(view.shape, view.strides) == math.prod(
        view.shape
    )


def _check_alone(view: View, held: int, name: str) -> None:
    """Checks one output's address, which later operations receive, and its memory."""
    if math.prod(view.shape) and view.offset % OUTPUT_ALIGNMENT:
        where = f"byte {view.offset} of its memory, which is no multiple of {OUTPUT_ALIGNMENT}"
        raise _broken(f"output `{name}` begins at {where}: return a separate tensor")
    if held > KEPT_TIMES * math.prod(view.shape) * ITEMSIZE[view.dtype] + KEPT_BYTES:
        raise _broken(f"output `{name}` keeps {held} bytes alive: return a separate tensor")


def _broken(reason: str) -> PlanError:
    return PlanError(reason, guard="output_contract")


def _same_layout(strides: tuple[int, ...], spec: TensorSpec, *, contiguous: bool = False) -> bool:
    if 0 in spec.shape:
        return True
    wanted = list(spec.strides)
    if contiguous:
        wanted = [math.prod(spec.shape[axis + 1 :]) for axis in range(len(spec.shape))]
    axes = zip(spec.shape, strides, wanted, strict=True)
    return all(size == 1 or stride == want for size, stride, want in axes)

"""The worker's half of the CPU path: executes launch plans on an arena shared with the judge.

Runs inside the sandbox, in a process started with TRITON_INTERPRET=1. It sees inputs and never
expected values. Its answer only words a failure: the judge checks the arena itself.
"""

from __future__ import annotations

import importlib.util
import json
import math
import mmap
import os
import pickle
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np
import triton.runtime.interpreter as triton_interpreter
from numpy.typing import NDArray

from referee.interpreter import (
    gpu_semantics,
    hints,
    kernel_syntax,
    language,
    libdevice,
    memoize_types,
    memory_patches,
)
from referee.interpreter.arguments import arguments, constants, tensors
from referee.interpreter.batch import Batches
from referee.interpreter.init_map import InitMap
from referee.interpreter.interleaving import InterleavingScheduler, Program, group_by_first_atomic
from referee.interpreter.libdevice import Unsupported
from referee.interpreter.memory import CheckedMemory
from referee.interpreter.numeric_freedom import NumericFreedom
from referee.interpreter.program_sample import DependsOnSkippedProgram, sample_programs
from referee.interpreter.recorded_program import RecordedProgram
from referee.interpreter.recorder import Recorder
from referee.interpreter.region import array, copy, fill
from referee.interpreter.request import Request, Run
from referee.interpreter.violations import Violation
from referee.plans.plan import Copy, Fill, Launch, LaunchConfig, Value, View

Array = NDArray[Any]

MAX_MESSAGE = 400
MAX_BATCHED_PROGRAMS = 1 << 16
"""Maximum number of programs of a launch that replay in batches; a grid may have billions."""


class Interpreter:
    """Triton's interpreter with checked memory, running the kernels of one module."""

    def __init__(self, text: str, scratch: str, unread: frozenset[int] = frozenset()) -> None:
        self.freedom = NumericFreedom()
        gpu_semantics.install(triton_interpreter, self.freedom)
        libdevice.install(triton_interpreter)
        hints.install(triton_interpreter)
        self._builder = triton_interpreter.interpreter_builder
        self.memory = CheckedMemory(
            triton_interpreter._interpreter, lambda: tuple(self._builder.grid_idx)
        )
        memory_patches.install(triton_interpreter, self.memory)
        language.patch()
        memoize_types.patch()
        self._recorder = Recorder(
            triton_interpreter,
            self.freedom,
            [(CheckedMemory, "enter_pipelined_loop"), (CheckedMemory, "leave_pipelined_loop")],
        )
        self._batches = Batches(triton_interpreter, self.memory, self.freedom)
        self._recorded: dict[Hashable, RecordedProgram | None] = {}
        self._met: dict[tuple[int, tuple[int, int, int]], dict[Program, int]] = {}
        names = {
            kernel_syntax.UNREAD: self.memory.unread,
            kernel_syntax.AHEAD: self.memory.pipelined_turns,
        }
        self._kernels = _import_text(kernel_syntax.rewrite_kernels(text, unread), scratch, names)

    def run(self, run: Run, region: Array) -> None:
        """Executes every step of the plan in order. Raises the exceptions of kernels."""
        self.freedom.relaxed, self.freedom.second_order = run.relaxed, run.backwards
        self.memory.open_lanes = run.open_lanes
        base = region.ctypes.data
        written = InitMap(run.places, base)
        slots = [(run.places.slots[buffer], every) for buffer, every in run.periodic_inputs.items()]
        periods = [(base + slot.start, base + slot.end, every) for slot, every in slots]
        self.memory.start_run(region, written, periods)
        # Buffers that skipped programs may write.
        partly: set[int] = set()
        for number, step in enumerate(run.plan.steps):
            if isinstance(step, Fill):
                written.fill(step.target)
                fill(array(region, run.places, step.target), step.value, step.target.dtype)
            elif isinstance(step, Copy):
                written.copy(step.source, step.target)
                partly |= {step.target.buffer} if step.source.buffer in partly else set()
                copy(step.source, step.target, region, run.places)
            elif not self._launch(number, step, run, region, partly):
                config = step.configs[min(run.config, len(step.configs) - 1)]
                partly |= _buffers([argument.value for argument in config.arguments])

    def _launch(
        self, number: int, step: Launch, run: Run, region: Array, partly: Collection[int]
    ) -> bool:
        """Runs one launch; True if all its programs ran to their end."""
        config = step.configs[min(run.config, len(step.configs) - 1)]
        base = region.ctypes.data
        names = _buffer_names(config)
        numbered = enumerate(run.places.slots)
        slots = {names.get(number, f"buffer {number}"): slot for number, slot in numbered}
        ranges = {name: (base + slot.start, base + slot.end) for name, slot in slots.items()}
        inputs = [name for name, slot in slots.items() if slot.input is not None]
        skipped = [run.places.slots[one] for one in partly]
        unsure = [name for name, slot in slots.items() if slot in skipped]
        self.memory.start_launch(ranges, inputs, unsure)
        kernel = getattr(self._kernels, step.kernel)
        function, given = kernel.rewrite(), arguments(kernel, config, run.places, base)
        self._builder.set_grid_dim(*config.grid)
        order, complete = _programs(config.grid, run.backwards), True
        if run.sample_seed is not None:
            few = list(sample_programs(config.grid, run.sample_seed))
            order, complete = iter(few), len(few) == math.prod(config.grid)
        met = self._met.setdefault((number, config.grid), {})
        if run.interleaving_seed is None:
            self.memory.at_atomic = lambda address: met.setdefault(
                tuple(self._builder.grid_idx), address
            )
            name = step.kernel, run.relaxed
            complete &= self._in_order(
                name, tuple(given.values()), order, lambda: function(**given)
            )
        else:
            groups = group_by_first_atomic(order, met)
            self._interleaved(run.interleaving_seed, groups, lambda: function(**given))
        self.memory.end_launch()
        return complete

    def _in_order(
        self,
        kernel: Hashable,
        given: Sequence[Any],
        programs: Iterator[Program],
        function: Callable[[], None],
    ) -> bool:
        """Runs programs in batches from a recording where possible, else one after the other.

        The recording may come from another launch of the kernel. True if all programs ran to their
        end.
        """
        handles = [(one.handle, one.dtype.is_ptr()) for one in tensors(given)]
        varying = [handle for handle, _ in handles]
        numbers = [handle for handle, is_pointer in handles if not is_pointer]
        complete = True

        def recorded_for(
            key: Hashable, constant: Sequence[Any], varying: Sequence[Any]
        ) -> RecordedProgram | None:
            def record() -> None:
                self._recorded[key] = self._recorder.record(function, constant, varying)

            nonlocal complete
            while key not in self._recorded and (first := next(programs, None)) is not None:
                complete &= self._alone(first, record)
            return self._recorded.get(key)

        recorded = recorded_for((kernel, constants(given, numbers=False)), [], varying)
        if recorded is None and numbers:
            varying = [handle for handle, is_pointer in handles if is_pointer]
            recorded = recorded_for((kernel, constants(given, numbers=True)), numbers, varying)
        if recorded is not None:
            some = list(islice(programs, MAX_BATCHED_PROGRAMS + 1))
            if len(some) <= MAX_BATCHED_PROGRAMS and self._batches.replay(recorded, varying, some):
                return complete
            programs = chain(some, programs)
        for program in programs:
            complete &= self._alone(
                program, function if recorded is None else lambda: recorded.replay(varying)
            )
        return complete

    def _alone(self, program: Program, run: Callable[[], None]) -> bool:
        self._builder.set_grid_idx(*program)
        self.memory.begin_program()
        try:
            run()
        except Exception as error:
            # Triton wraps the exceptions of a kernel's helpers.
            if not any(isinstance(one, DependsOnSkippedProgram) for one in _causes(error)):
                raise
            return False
        return True

    def _interleaved(
        self, seed: int, programs: list[Program], function: Callable[[], None]
    ) -> None:
        scheduler, numbers = InterleavingScheduler(seed), dict[int, int]()
        self.memory.at_atomic = lambda address: scheduler.pause()

        def switch(place: int, program: Program) -> None:
            self._builder.set_grid_idx(*program)
            if place in numbers:
                self.memory.resume(numbers[place])
            else:
                numbers[place] = self.memory.begin_program()

        def body() -> None:
            # NumPy's error state belongs to the thread.
            with np.errstate(all="ignore"):
                function()

        scheduler.run(programs, body, switch)


def _programs(grid: tuple[int, int, int], backwards: bool) -> Iterator[tuple[int, ...]]:
    # `itertools.product` would first make a tuple of each axis, which may have billions of numbers.
    x, y, z = (range(size - 1, -1, -1) if backwards else range(size) for size in grid)
    return ((i, j, k) for i in x for j in y for k in z)


def _buffers(values: Iterable[Value]) -> set[int]:
    found = set()
    for value in values:
        if isinstance(value, View):
            found.add(value.buffer)
        elif isinstance(value, tuple):
            found |= _buffers(value)
    return found


def _buffer_names(config: LaunchConfig) -> dict[int, str]:
    return {a.value.buffer: a.name for a in reversed(config.arguments) if isinstance(a.value, View)}


def _import_text(text: str, scratch: str, names: dict[str, Any]) -> Any:
    # Triton reads a kernel's source from its file.
    path = os.path.join(scratch, "clean_kernels.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    spec = importlib.util.spec_from_file_location("clean_kernels", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.__dict__.update(kernel_syntax.NAMES, range=language.counted, **names)
    return module


def _causes(error: Exception) -> list[BaseException]:
    causes: list[BaseException] = [error]
    while (cause := causes[-1].__cause__) is not None:
        causes.append(cause)
    return causes


def _failure(error: Exception, violation: Violation | None) -> dict[str, str]:
    if violation is not None:
        return {"kind": violation.kind, "message": str(violation)}
    causes = _causes(error)
    root = causes[-1]
    if any(isinstance(cause, Unsupported) for cause in causes):
        return {"kind": "unsupported", "message": str(root)}
    message = re.sub(r"\s+", " ", str(root)).strip()
    return {"kind": "kernel_error", "message": f"{type(root).__name__}: {message}"[:MAX_MESSAGE]}


def interpret_entry(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """Entry point in the sandbox: a pickled `Request` and the arena's descriptor in, JSON out.

    The answer lists one item per run that began: null, or the failure of the run; nothing runs
    after a failure. The first eight bytes of the shared memory hold the number of runs that began.
    The judge reads them if the worker never answers.
    """
    request: Request = pickle.loads(payload)
    region = np.frombuffer(mmap.mmap(fds[0], request.size), np.uint8)
    begun = region[:8].view(np.int64)
    # A job that runs again after its worker was lost counts from zero.
    begun[:] = 0
    answers: list[dict[str, str] | None] = []
    interpreter: Interpreter | None = None
    try:
        for run in request.runs:
            begun += 1
            with np.errstate(all="ignore"):
                interpreter = interpreter or Interpreter(request.text, scratch, request.unread)
                interpreter.run(run, region[run.start : run.start + run.places.total])
            answers.append(None)
    except Exception as error:
        answers.append(_failure(error, interpreter.memory.violation if interpreter else None))
    return json.dumps(answers).encode()

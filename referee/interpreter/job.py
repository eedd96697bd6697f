"""The worker's half of the CPU path: executes launch plans on an arena shared with the judge, kernel by kernel.

Runs inside the sandbox, in a process started with TRITON_INTERPRET=1. It sees inputs, never expected values, and what
it answers decides nothing but how a failure is worded: the judge checks the arena itself.
"""

from __future__ import annotations

import importlib.util
import json
import math
import mmap
import os
import pickle
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
import triton.runtime.interpreter as triton_interpreter
from torch import Tensor

from referee.interpreter import arithmetic, hints, language, libdevice, logic, memory, remembered
from referee.interpreter.arguments import apart_from_addresses, arguments, tensors
from referee.interpreter.choices import Choices
from referee.interpreter.libdevice import Unsupported
from referee.interpreter.memory import CheckedMemory, Violation
from referee.interpreter.picking import NotRun, picked
from referee.interpreter.recording import Recorder
from referee.interpreter.request import Request, Run
from referee.interpreter.tape import Tape
from referee.interpreter.turns import Program, Turns, together
from referee.interpreter.written import Written
from referee.plans.arena import window
from referee.plans.plan import Copy, Fill, Launch, LaunchConfig, Value, View

MAX_MESSAGE = 400


class Interpreter:
    """Triton's interpreter with checked memory, running the kernels of one module."""

    def __init__(self, text: str, scratch: str, unread: frozenset[int] = frozenset()) -> None:
        self.choices = Choices()
        arithmetic.install(triton_interpreter, self.choices)
        libdevice.install(triton_interpreter)
        hints.install(triton_interpreter)
        self._builder = triton_interpreter.interpreter_builder
        self.memory = CheckedMemory(triton_interpreter._interpreter, lambda: tuple(self._builder.grid_idx))
        memory.install(triton_interpreter, self.memory)
        language.patch()
        remembered.patch()
        self._recorder = Recorder(triton_interpreter, self.choices, [(CheckedMemory, "early"), (CheckedMemory, "in_place")])
        self._tapes: dict[Hashable, Tape | None] = {}
        self._met: dict[tuple[int, tuple[int, int, int]], dict[Program, int]] = {}
        names = {logic.UNREAD: self.memory.unread, logic.AHEAD: self.memory.ahead}
        self._kernels = _import_text(logic.elementwise(text, unread), scratch, names)

    def run(self, run: Run, region: Tensor) -> None:
        """Executes every step of the plan in order. Raises whatever a kernel raises."""
        self.choices.relaxed, self.choices.again, self.memory.open_lanes = run.relaxed, run.backwards, run.open_lanes
        base = region.data_ptr()
        written = Written(run.places, base)
        slots = [(run.places.slots[buffer], every) for buffer, every in run.again.items()]
        self.memory.start(written, [(base + slot.start, base + slot.end, every) for slot, every in slots])
        # What programs may write that did not run.
        partly: set[int] = set()
        for number, step in enumerate(run.plan.steps):
            if isinstance(step, Fill):
                written.fill(step.target)
                window(region, run.places, step.target).fill_(step.value)
            elif isinstance(step, Copy):
                written.copy(step.source, step.target)
                partly |= {step.target.buffer} if step.source.buffer in partly else set()
                window(region, run.places, step.target).copy_(window(region, run.places, step.source))
            elif not self._launch(number, step, run, region, partly):
                partly |= _buffers([argument.value for argument in step.configs[min(run.config, len(step.configs) - 1)].arguments])

    def _launch(self, number: int, step: Launch, run: Run, region: Tensor, partly: Collection[int]) -> bool:
        """Whether all of its programs ran to their end."""
        config = step.configs[min(run.config, len(step.configs) - 1)]
        base = region.data_ptr()
        names = _buffer_names(config)
        slots = {names.get(number, f"buffer {number}"): slot for number, slot in enumerate(run.places.slots)}
        ranges = {name: (base + slot.start, base + slot.end) for name, slot in slots.items()}
        inputs, unsure = [name for name, slot in slots.items() if slot.input is not None], [run.places.slots[one] for one in partly]
        self.memory.allow(ranges, inputs, [name for name, slot in slots.items() if slot in unsure])
        kernel = getattr(self._kernels, step.kernel)
        function, given = kernel.rewrite(), arguments(kernel, config, run.places, base)
        self._builder.set_grid_dim(*config.grid)
        few = None if run.picked is None else list(picked(config.grid, run.picked))
        order = _programs(config.grid, run.backwards) if few is None else iter(few)
        complete = few is None or len(few) == math.prod(config.grid)
        met = self._met.setdefault((number, config.grid), {})
        if run.turns is None:
            self.memory.at_atomic = lambda address: met.setdefault(tuple(self._builder.grid_idx), address)
            key = step.kernel, run.relaxed, apart_from_addresses(given.values())
            complete &= self._in_order(key, order, lambda: function(**given), list(tensors(given.values())))
        else:
            self._in_turns(run.turns, together(order, met), lambda: function(**given))
        self.memory.end()
        return complete

    def _in_order(self, key: Hashable, programs: Iterable[Program], function: Callable[[], None], given: list[Any]) -> bool:
        """One after the other, from a tape where there is one: launches with the same `key`, given other tensors, may have the same.
        Whether all ran to their end."""
        pointers, complete = [tensor.handle for tensor in given if tensor.dtype.is_ptr()], True
        for program in programs:
            self._builder.set_grid_idx(*program)
            self.memory.begin()
            try:
                if key not in self._tapes:
                    self._tapes[key] = self._recorder.record(function, given)
                elif (tape := self._tapes[key]) is not None:
                    tape.play(pointers)
                else:
                    function()
            except Exception as error:
                # Triton wraps what a helper of a kernel raises.
                if not any(isinstance(one, NotRun) for one in _causes(error)):
                    raise
                complete = False
        return complete

    def _in_turns(self, seed: int, programs: list[Program], function: Callable[[], None]) -> None:
        turns, numbers = Turns(seed), dict[int, int]()
        self.memory.at_atomic = lambda address: turns.pause()

        def switch(place: int, program: Program) -> None:
            self._builder.set_grid_idx(*program)
            if place in numbers:
                self.memory.go_on(numbers[place])
            else:
                numbers[place] = self.memory.begin()

        def body() -> None:
            # What numpy warns of is each thread's own.
            with np.errstate(all="ignore"):
                function()

        turns.run(programs, body, switch)


def _programs(grid: tuple[int, int, int], backwards: bool) -> Iterator[tuple[int, ...]]:
    # `itertools.product` would make a tuple of each axis first, of billions of numbers.
    x, y, z = (range(size - 1, -1, -1) if backwards else range(size) for size in grid)
    return ((i, j, k) for i in x for j in y for k in z)


def _buffers(values: Iterable[Value]) -> set[int]:
    """Those that arguments name, or the items of tuples."""
    found = set()
    for value in values:
        found |= {value.buffer} if isinstance(value, View) else _buffers(value) if isinstance(value, tuple) else set()
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
    module.__dict__.update(logic.NAMES, range=language.counted, **names)
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
    """Entry point in the sandbox: a pickled `Request` from the judge, the arena's descriptor; answers JSON.

    The answer is a list with one item for each run that was begun: null, or what went wrong in it; nothing runs after a
    failure. The first eight bytes of the shared memory hold the number of runs begun, for a judge whose worker never answered.
    """
    request: Request = pickle.loads(payload)
    torch.set_num_threads(1)
    region = torch.frombuffer(mmap.mmap(fds[0], request.size), dtype=torch.uint8)
    begun = region[:8].view(torch.int64)
    # A job that is run again after its worker was lost counts from the start.
    begun.zero_()
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

"""Traces a candidate: runs its Python in the sandbox, without a GPU or data, and records plans.

This is the worker's side; `trace.py` is the judge's. The candidate's file is imported with torch,
triton and tl at hand. Its `run` is called twice for each cell, on tensors that have shapes but no
values, the second time as in torch_answers. Two calls that differ show state, or a launch that depends
on something that no verdict covers. The candidate could forge this process's answer, so the judge
parses it as data.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import string
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import ModuleType
from typing import Any

# torch imports this module at the first operation on a tensor without data. The fork server imports
# it once instead.
import torch.fx.experimental.symbolic_shapes  # noqa: F401

from referee.reading.source import parse
from referee.target import Target
from referee.tracing.absent import Absent
from referee.tracing.calls import Calls, late
from referee.tracing.candidate_file import (
    IMPORT_SECONDS,
    MAX_MESSAGE,
    Kernels,
    Raised,
    describe,
    import_run,
    within,
)
from referee.tracing.cell_shape import CellShape, shape_of
from referee.tracing.launch_recorder import LaunchRecorder
from referee.tracing.module_state import changed, state_of
from referee.tracing.pretended_cuda import pretended_cuda
from referee.tracing.recorder import Recorder
from referee.tracing.taken import Taken
from referee.tracing.violation import Violation, Violations
from referee.triton_compat import jit_kernels, stand_in_driver
from referee.versions import check_triton

NAME_LETTERS = 12
_IMPORTS = (
    "importing the file takes too long; outside of functions it must only name constants and"
    " kernels"
)
_MADE = "tensors are made while the file is being imported; make them in `run`"
_KEPT = "`run` changes `{}`, which outlives the call; keep nothing between calls"

Tell = Callable[[int, dict[str, Any]], None]
"""Takes a cell's index and its plan."""


def trace_entry(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """Sandbox entry. The payload is JSON: the source, the target, the cells, and whether the
    launcher must hold everywhere (`whole`).

    A cell has the specs of its inputs, its scalars and the number of outputs. The answer is the
    JSON of `trace_source`. If there is a descriptor, the worker first writes a line of JSON to it
    for each cell. The line has the cell's index, and the plan of its first call.
    """
    request = json.loads(payload)
    cells = [shape_of(cell) for cell in request["cells"]]
    # The name is random, so that no candidate can behave well under this name only.
    letters = "".join(secrets.choice(string.ascii_lowercase) for _ in range(NAME_LETTERS))
    found = trace_source(
        request["source"],
        os.path.join(scratch, f"{letters}.py"),
        Target.from_json(request["target"]),
        cells,
        partial(_tell, fds[0]) if fds else _tell_nobody,
        whole=request.get("whole", True),
    )
    return json.dumps(found, allow_nan=False).encode()


def _tell(descriptor: int, number: int, plan: dict[str, Any]) -> None:
    line = json.dumps([number, plan], allow_nan=False).encode() + b"\n"
    # The reader may be gone.
    with contextlib.suppress(OSError):
        while line:
            line = line[os.write(descriptor, line) :]


def _tell_nobody(number: int, plan: dict[str, Any]) -> None:
    return


def trace_source(
    source: str,
    path: str,
    target: Target,
    cells: Sequence[CellShape],
    tell: Tell = _tell_nobody,
    *,
    whole: bool = True,
) -> dict[str, Any]:
    """Write the source to `path`, import it under the file's name, and trace every cell.

    Returns {"plans", "taken", "circumstances"}, or {"rejection": {"guard", "reason", "cell"}} with
    the cell's index or null. `taken` has for each cell the outcomes of the comparisons of sizes
    (`taken.py`). Without `whole`, the plan of a cell is {"refused": words} if the file itself
    raises. `circumstances` then lists those in which `run` launches something else. `changed` lists
    the inputs that it changes in place and gives back, as the reference does.
    """
    check_triton()
    absent = Absent(parse(source))
    with absent.importable():
        found = _Trace(source, path, target, absent, whole, tell).found(cells)
    if absent.used:
        names = ", ".join(f"`{name}`" for name in dict.fromkeys(absent.used))[:MAX_MESSAGE]
        reason = f"`run` comes to {names}, which is not installed here"
        return {"rejection": {"guard": "missing_module", "reason": reason, "cell": None}}
    return found


class _Trace:
    """One trace of a file."""

    def __init__(
        self,
        source: str,
        path: str,
        target: Target,
        absent: Absent,
        whole: bool,
        tell: Tell,
    ) -> None:
        self._source, self._path, self._target = source, path, target
        self._absent, self._whole, self._tell = absent, whole, tell
        self._violations = Violations()
        self._launches = LaunchRecorder(self._violations)
        self._taken = Taken()
        self._plans: list[dict[str, Any]] = []
        self._outcomes: list[list[int]] = []
        self._unlike: dict[str, None] = {}
        self._changed: dict[str, None] = {}

    def found(self, cells: Sequence[CellShape]) -> dict[str, Any]:
        """Return the answer. Never raises, whatever the file does."""
        module = ModuleType(os.path.splitext(os.path.basename(self._path))[0])
        try:
            with pretended_cuda(self._target, self._violations) as torch_answers:
                refuse = partial(self._violations.add, "device")
                with (
                    stand_in_driver.active_driver(
                        self._target,
                        torch_answers.stream,
                        refuse,
                        lambda: torch_answers.device.index,
                    ),
                    jit_kernels.launches_go_to(self._launches.launch, self._launches.warm_up),
                ):
                    run = self._import(module)
                    calls = Calls(
                        run=run,
                        path=self._path,
                        violations=self._violations,
                        launches=self._launches,
                        torch_answers=torch_answers,
                        raised=None if self._whole else Raised(self._source, self._path),
                        unlike=self._unlike,
                        changed=self._changed,
                    )
                    self._trace(calls, cells, module)
        except BaseException as error:
            return {"rejection": self._rejection(error)}
        finally:
            sys.modules.pop(module.__name__, None)
        answer: dict[str, Any] = {"plans": self._plans, "taken": self._outcomes}
        listed = {"circumstances": self._unlike, "changed": self._changed}
        return answer | {name: list(texts) for name, texts in listed.items() if texts}

    def _import(self, module: ModuleType) -> Callable[..., Any]:
        violations, self._absent.running = self._violations, False
        too_late = partial(late, violations, "module_level", _IMPORTS)
        with Recorder(violations, ()) as outside, within(IMPORT_SECONDS, self._path, too_late):
            run = import_run(module, self._source, self._path, self._taken)
        if violations.first is not None:
            raise violations.first
        if outside.used:
            raise violations.add("module_level", _MADE)
        self._launches.kernels = Kernels(self._source, module)
        self._absent.running = True
        return run

    def _trace(self, calls: Calls, cells: Sequence[CellShape], module: ModuleType) -> None:
        before = state_of(module)
        for number, cell in enumerate(_rounds(cells, self._launches)):
            if number == len(cells):
                self._plans.clear()
                self._outcomes.clear()
            self._taken.begin()
            self._plans.append(calls.plan(cell, partial(self._tell, number)))
            self._outcomes.append(self._taken.outcomes())
            if (name := changed(before, state_of(module))) is not None:
                self._plans.pop()
                raise self._violations.add("state", _KEPT.format(name))

    def _rejection(self, error: BaseException) -> dict[str, Any]:
        found = self._violations.first or error
        if not isinstance(found, Violation):
            found = Violation("trace_error", describe(error, self._path))
        cell = None if self._launches.kernels is None else len(self._plans)
        return {"guard": found.guard, "reason": found.reason, "cell": cell}


def _rounds(cells: Sequence[CellShape], launches: LaunchRecorder) -> Iterator[CellShape]:
    """Yield every cell, and all again if a later launch has added to an earlier key."""
    yield from cells
    if launches.pruning.grew:
        yield from cells

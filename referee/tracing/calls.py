"""The calls of `run` for one test case, which must all come to the same plan.

Runs in the trace worker.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from referee.plans.plan_parse import dump
from referee.tracing.candidate_file import CALL_SECONDS, Raised, describe, within
from referee.tracing.cell_shape import CellShape
from referee.tracing.circumstances import (
    DEFAULT_DTYPE,
    FIRST,
    IN_TRAINING,
    Circumstances,
    TorchAnswers,
    alone,
    state,
)
from referee.tracing.launch_recorder import LaunchRecorder
from referee.tracing.recorder import Recorder
from referee.tracing.violation import Violation, Violations

STEADY_CALLS = 6
"""Number of further calls that show whether a difference lies in the circumstances alone."""

_CALLS = "`run` takes too long; it must only prepare launches"
_INPUTS = "`run` changes the type or layout of an input; leave the inputs as they are"

Plan = dict[str, Any]


def late(violations: Violations, guard: str, words: str, where: str) -> Violation:
    """The violation of a file that takes too long. `where` names the line that it has reached."""
    return violations.add(guard, f"{where}{words}")


@dataclass(frozen=True, kw_only=True)
class Calls:
    """The calls of one trace.

    `raised` knows the lines of the file that raise; None where the file must hold everywhere.
    `unlike` collects the circumstances in which `run` does something else, if it may. `changed`
    collects the inputs that it changes in place as the reference does, if it may.
    """

    run: Callable[..., Any]
    path: str
    violations: Violations
    launches: LaunchRecorder
    torch_answers: TorchAnswers
    raised: Raised | None = None
    unlike: dict[str, None] = field(default_factory=dict)
    changed: dict[str, None] = field(default_factory=dict)

    def plan(self, cell: CellShape, tell: Callable[[Plan], None]) -> Plan:
        """The plan of the first call, which `tell` gets before the second call is made.

        It is {"refused": words} where the file itself raises, if it may. Raises Violation.
        """
        # Autograd would refuse some calls with its own messages.
        with torch.no_grad():
            try:
                plan = self._call(cell, FIRST)
            except TypeError as error:
                if re.search(r"\(\) (missing|takes|got)", str(error)):
                    error.add_note(f"it is called as run({', '.join(cell.names)})")
                raise
            except Exception as error:
                if not self._by_itself(error):
                    raise
                self._steady(cell, FIRST, None, None)
                return {"refused": describe(error, self.path)}
            tell(plan)
            if not writes_an_input(plan):
                self._in_training(cell, json.dumps(plan))
        return plan

    def _by_itself(self, error: BaseException) -> bool:
        raised = self.raised if self.violations.first is None else None
        return raised is not None and raised.by_itself(error)

    def _in_training(self, cell: CellShape, plan: str) -> None:
        """Call `run` as in training, and compare the plans. Raises Violation."""
        try:
            # Texts are compared, because NaN differs from itself and True equals 1.
            found: str | None = json.dumps(self._call(cell, IN_TRAINING))
        except Exception as error:
            if self.raised is None or self.violations.first is not None:
                error.add_note(f"in {IN_TRAINING.words()}")
                raise
            found = None
        if found == plan:
            return
        if self.raised is None or self.violations.first is not None:
            raise self.violations.add("state", IN_TRAINING.differs())
        self._steady(cell, IN_TRAINING, plan, found)
        parts = []
        for one in alone(list(self.torch_answers.asked)):
            other = self._attempt(cell, one)
            if other != plan:
                self._steady(cell, one, plan, other)
                parts.append(one.words())
        self.unlike.update(dict.fromkeys(parts or [IN_TRAINING.words()]))

    def _attempt(self, cell: CellShape, circumstances: Circumstances) -> str | None:
        """The text of a call's plan, or None where it raises. Raises Violation."""
        try:
            return json.dumps(self._call(cell, circumstances))
        except Exception:
            if self.violations.first is not None:
                raise
            return None

    def _steady(
        self, cell: CellShape, circumstances: Circumstances, plan: str | None, other: str | None
    ) -> None:
        """Repeat usual calls and calls in these circumstances, in a random order.

        Raises Violation where a call depends on the calls before it. A plan of None stands for an
        error.
        """
        for _ in range(STEADY_CALLS):
            this, expected = secrets.choice([(FIRST, plan), (circumstances, other)])
            if self._attempt(cell, this) != expected:
                raise self.violations.add("state", circumstances.differs())

    def _call(self, cell: CellShape, circumstances: Circumstances) -> Plan:
        """The plan of one call.

        Inputs that the reference changes in place and that `run` gives back are copies. The plan
        then changes no input, and can run many times on the same inputs.
        """
        copied = () if self.raised is None else cell.changes
        plan, returned = self._called(cell, circumstances, copied)
        if returned != copied:
            plan, returned = self._called(cell, circumstances, returned)
        self.changed.update(dict.fromkeys(cell.inputs[place].name for place in returned))
        return plan

    def _called(
        self, cell: CellShape, circumstances: Circumstances, copied: tuple[int, ...]
    ) -> tuple[Plan, tuple[int, ...]]:
        """The plan of a call with copies at these positions, and those that are outputs."""
        recorder = Recorder(self.violations, cell.inputs)
        tensors = [
            circumstances.make(recorder.copy_of(place) if place in copied else x)
            for place, x in enumerate(recorder.inputs)
        ]
        before = state(tensors)
        self.launches.recorder = recorder
        self.torch_answers.begin(circumstances.otherwise)
        usual = torch.get_default_dtype()
        other = self.torch_answers.is_other(DEFAULT_DTYPE)
        torch.set_default_dtype(torch.bfloat16 if other else usual)
        try:
            too_late = partial(late, self.violations, "trace_error", _CALLS)
            with (
                within(CALL_SECONDS, self.path, too_late),
                torch.autograd.set_grad_enabled(self.torch_answers.gradients),
                recorder,
            ):
                result = self.run(*cell.called(tensors))
        finally:
            self.launches.recorder = None
            self.torch_answers.end()
            torch.set_default_dtype(usual)
        if self.violations.first is not None:
            raise self.violations.first
        if state(tensors) != before:
            raise self.violations.add("state", _INPUTS)
        if result is None and cell.silent and copied == cell.changes:
            result = [tensors[place] for place in copied]
            result = result[0] if cell.outputs == 1 else result
        outputs = output_tensors(result, cell.outputs, tensors, self.violations)
        shared = {recorder.view(tensor).buffer for tensor in outputs}
        returned = tuple(
            place for place in copied if recorder.view(tensors[place]).buffer in shared
        )
        return dump(recorder.plan(outputs)), returned


def writes_an_input(plan: dict[str, Any]) -> bool:
    """True when a fill or a copy of the plan changes an input."""
    targets = [step["target"]["buffer"] for step in plan["steps"] if step["kind"] != "launch"]
    return any(plan["buffers"][target]["input"] is not None for target in targets)


def output_tensors(
    result: Any, outputs: int, inputs: Sequence[torch.Tensor], violations: Violations
) -> Sequence[torch.Tensor]:
    """The plain tensors that `run` returned, as many as `outputs`. Raises Violation."""
    if outputs == 1:
        result = (result,)
    elif not isinstance(result, (tuple, list)) or len(result) != outputs:
        raise violations.add("output_contract", f"`run` must return {outputs} tensors")
    for tensor in result:
        if type(tensor) is not torch.Tensor and not any(tensor is one for one in inputs):
            reason = f"`run` returns a {type(tensor).__name__}; return a plain torch.Tensor"
            raise violations.add("output_contract", reason)
    return tuple(result)

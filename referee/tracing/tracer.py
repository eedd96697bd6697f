"""Traces a candidate: runs its Python, in the sandbox and without a GPU or data, and records launch plans.

The worker's side; `trace.py` is the judge's. The candidate's file is imported with torch, triton and tl at hand, and its
`run` is called twice for each cell on tensors that have shapes but no values, the second time as if in training: two calls that
differ show state, or a launch that depends on what a verdict does not cover. What this process reports could be forged by the
candidate in it, and is parsed as data by the judge.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import secrets
import string
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import Any

import torch

# torch imports it at the first operation on a tensor without data; here the fork server does, once.
import torch.fx.experimental.symbolic_shapes
import triton
import triton.language as tl

from referee import triton_private
from referee.ops.spec import TensorSpec
from referee.plans.plan_parse import dump
from referee.reading.optional_imports import MAX_OPTIONAL, optional_imports, pretended_modules
from referee.reading.source import parse
from referee.target import Target
from referee.tracing import call_forms, cuda_version, given
from referee.tracing.attribute_guard import guarded
from referee.tracing.caches import Caches
from referee.tracing.kept_state import KeptObject, changed, kept
from referee.tracing.launch_recorder import LaunchRecorder
from referee.tracing.pretended_cuda import pretended_cuda
from referee.tracing.recorder import Recorder
from referee.tracing.training import OTHERWISE, USUAL, Training
from referee.tracing.unchanged import Changed, Unchanged
from referee.tracing.violation import Violation, Violations
from referee.tracing.ways import Way, ways
from referee.triton_version import check_triton

MAX_MESSAGE = 240
IMPORT_FAILED = re.compile(r"line \d+: (ImportError|ModuleNotFoundError)\b")

CellShape = tuple[tuple[TensorSpec, ...], int]
# Takes a cell's index and its plan.
Tell = Callable[[int, dict[str, Any]], None]

_ANOTHER = (
    "a cached function answers for another argument that compares equal, as True and 1 do, so that `run` does something else after calls"
    " for other shapes; give it arguments of one type, or do not cache it"
)


def trace_entry(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """Sandbox entry. JSON in: source, target, cells (each: the inputs' specs and the number of outputs).

    JSON out: {"plans": [...]}, or {"rejection": {"guard", "reason", "cell"}} with the cell's index or null. Before that, if there is a
    descriptor, a line of JSON on it for each cell: its index, and the plan of its first call.
    """
    request = json.loads(payload)
    cells = [(tuple(_spec(spec) for spec in cell["inputs"]), cell["outputs"]) for cell in request["cells"]]
    # A name that no candidate can know beforehand, so that none behaves well under this one only.
    path = os.path.join(scratch, f"{''.join(secrets.choice(string.ascii_lowercase) for _ in range(12))}.py")
    tell = partial(_tell, fds[0]) if fds else _tell_nobody
    return json.dumps(trace_source(request["source"], path, Target.from_json(request["target"]), cells, tell), allow_nan=False).encode()


def _tell(descriptor: int, number: int, plan: dict[str, Any]) -> None:
    line = json.dumps([number, plan], allow_nan=False).encode() + b"\n"
    # Nobody may be listening any more.
    with contextlib.suppress(OSError):
        while line:
            line = line[os.write(descriptor, line) :]


def _tell_nobody(number: int, plan: dict[str, Any]) -> None:
    return


def trace_source(source: str, path: str, target: Target, cells: Sequence[CellShape], tell: Tell = _tell_nobody) -> dict[str, Any]:
    """Write the source to `path`, import it under the file's name, and trace every cell. Returns what `trace_entry` sends."""
    check_triton()
    tree = parse(source)
    optional, tells = optional_imports(tree), _Tells(given.tells_kinds(tree), given.tells_same(tree))
    names = ", ".join(f"`{name}`" for name in sorted(optional.modules) if "." not in name)[:MAX_MESSAGE]
    if len(optional.all) > MAX_OPTIONAL:
        return _refused(f"there is too much that not everybody can import, of {names}: at most {MAX_OPTIONAL} modules and names")
    with pretended_modules(optional, frozenset()):
        found = _trace_once(source, path, target, cells, tells, tell=tell)
    done = {frozenset[str]()}
    for present in optional.mixtures():
        if "plans" not in found or present in done:
            continue
        done.add(present)
        with pretended_modules(optional, present):
            otherwise = _trace_once(source, path, target, cells, tells)
        if json.dumps(otherwise) != json.dumps(found) and not (present != optional.all and _cannot_be_imported(otherwise)):
            return _refused(f"`run` does something else where {names} can be imported, or a part of it; launches may not depend on it")
    if "plans" in found and cuda_version.is_named(tree):
        with pretended_modules(optional, frozenset()):
            otherwise = _trace_once(source, path, target, cells, tells, cuda_version.another())
        if json.dumps(otherwise) != json.dumps(found):
            return _refused("`run` does something else where torch is built for another version of CUDA; launches may not depend on it")
    if "plans" in found and any(isinstance(node, ast.Assert) for node in ast.walk(tree)):
        with pretended_modules(optional, frozenset()):
            otherwise = _trace_once(source, path, target, cells, tells, asserts=False)
        if json.dumps(otherwise) != json.dumps(found):
            return _refused("`run` does something else under `python -O`, where asserts are gone; an assert may only look")
    return found


def _refused(reason: str) -> dict[str, Any]:
    return {"rejection": {"guard": "state", "reason": reason, "cell": None}}


def _cannot_be_imported(answer: dict[str, Any]) -> bool:
    """Whether the file itself asks for what is not there, which a user would be told."""
    told = answer.get("rejection", {})
    return told.get("guard") == "trace_error" and told["cell"] is None and IMPORT_FAILED.match(told["reason"]) is not None


@dataclass(frozen=True)
class _Tells:
    """Whether a file has words that could ask what kinds of tensors the inputs are, and whether two are the same."""

    kinds: bool
    same: bool


def _trace_once(
    source: str, path: str, target: Target, cells: Sequence[CellShape], tells: _Tells, cuda: str = "", *, asserts: bool = True,
    tell: Tell = _tell_nobody,
) -> dict[str, Any]:
    violations = Violations()
    launches = LaunchRecorder(violations)
    plans: list[dict[str, Any]] = []
    module = ModuleType(os.path.splitext(os.path.basename(path))[0])
    launches.module = module.__name__
    try:
        with (
            pretended_cuda(target, violations, cuda) as training,
            triton_private.active_driver(target, training.stream, lambda reason: violations.add("device", reason)),
            triton_private.launches_go_to(launches.launch, launches.warm_up),
        ):
            kernels, caches = Unchanged(source, path), Caches(module, violations, training)
            with Recorder(violations, ()) as outside, caches.noted():
                run = _import_run(module, source, path, violations, asserts)
            if violations.first is not None:
                raise violations.first
            if outside.used:
                raise violations.add("module_level", "tensors are made while the file is being imported; make them in `run`")
            for asked in training.asked:
                raise violations.add("module_level", f"`{asked}` is asked while the file is being imported; ask in `run`")
            launches.kernels = _as_written(kernels, module, violations)
            tracing = _Tracing(run, violations, launches, training, caches, tells)
            before = _kept(module, violations)
            for number, (inputs, outputs) in enumerate(_rounds(cells, launches)):
                if number == len(cells):
                    plans.clear()
                plans.append(tracing.cell(inputs, outputs, partial(tell, number)))
                if (name := changed(before, _kept(module, violations))) is not None:
                    plans.pop()
                    raise violations.add("state", f"`run` changes `{name}`, which outlives the call; keep nothing between calls")
            if (after_others := tracing.answered_for_another(cells, plans)) is not None:
                del plans[after_others:]
                raise violations.add("state", _ANOTHER)
            kernels.after()
    except BaseException as error:
        if isinstance(error, Changed):
            error = violations.add(error.guard, f"{error}; kernels must stay as they are written")
        reason = violations.first or (error if isinstance(error, Violation) else Violation("trace_error", _describe(error, path)))
        return {"rejection": {"guard": reason.guard, "reason": reason.reason, "cell": None if launches.kernels is None else len(plans)}}
    finally:
        sys.modules.pop(module.__name__, None)
    return {"plans": plans}


def _rounds(cells: Sequence[CellShape], launches: LaunchRecorder) -> Iterator[CellShape]:
    """Every cell, and once more where only then it is known which configurations its launches may be of."""
    yield from cells
    if launches.pruning.grew:
        yield from cells


@dataclass(frozen=True)
class _Tracing:
    """What the calls of one trace share."""

    run: Callable[..., Any]
    violations: Violations
    launches: LaunchRecorder
    training: Training
    caches: Caches
    tells: _Tells

    def cell(self, inputs: tuple[TensorSpec, ...], outputs: int, tell: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """The plan of a call, which must be that of a call in training as well, and in any mixture of what the file asks about.

        Whom it is told to gets it before it is compared.
        """
        # What is made for a call, and the first call, are without autograd, which would refuse what is for the judge to refuse.
        with torch.no_grad():
            first = Way(USUAL, given.plain(inputs))
            try:
                plan = self._call(inputs, outputs, first)
            except TypeError as error:
                if re.search(r"\(\) (missing|takes|got)", str(error)):
                    error.add_note(f"it is called as run({', '.join(spec.name for spec in inputs)})")
                raise
            tell(plan)
            if _writes_an_input(plan):
                # For the judge to refuse, where autograd would refuse it in other words.
                return plan
            # In a way in which inputs are the same tensor the plan is this one with their buffers merged.
            expected: dict[given.Same | None, str] = {None: json.dumps(plan)}
            expected.update((same, json.dumps(given.merged(plan, same))) for same in self._sames(inputs))
            done = {first}
            while wanted := [way for way in self._ways(inputs) if way not in done]:
                for way in wanted:
                    done.add(way)
                    try:
                        found = self._call(inputs, outputs, way)
                    except Exception as error:
                        # What takes no names, deeper down, does nothing wrong.
                        if way.named and self.violations.first is None:
                            continue
                        error.add_note(f"called with {way.told()}")
                        raise
                    # Compared as data, because NaN differs from itself and True equals 1.
                    if json.dumps(found) != expected[way.same]:
                        raise self.violations.add("state", way.differs())
        return plan

    def _sames(self, inputs: tuple[TensorSpec, ...]) -> list[given.Same]:
        return given.sames(inputs) if self.tells.same else []

    def _ways(self, inputs: tuple[TensorSpec, ...]) -> Iterator[Way]:
        """Every mixture of what the file asks about, also with inputs that are the same tensor."""
        for way in ways(self.training, inputs, self.tells.kinds):
            yield way
            yield from (replace(way, same=same) for same in self._sames(inputs))
        for count in call_forms.named(self.run, [spec.name for spec in inputs]):
            yield Way(USUAL, given.plain(inputs), named=count)

    def answered_for_another(self, cells: Sequence[CellShape], plans: Sequence[dict[str, Any]]) -> int | None:
        """The number of a cell whose plan is another where cached functions remember the cells before it, or those after it."""
        if not self.caches.made:
            return None
        forwards = list(enumerate(cells))
        with torch.no_grad():
            for order in (forwards, forwards[::-1]):
                # In between too, because what the first order left would answer in the second.
                self.caches.clear()
                # Twice, because what a cached function does besides answering, it does once.
                for number, (inputs, outputs) in (one for one in order for _ in range(2)):
                    try:
                        plan = json.dumps(self._call(inputs, outputs, Way(USUAL, given.plain(inputs)), clear=False))
                    except Exception:
                        if self.violations.first is not None:
                            raise
                        # `run` fails on an answer that it did not get when it was called alone.
                        return number
                    if plan != json.dumps(plans[number]):
                        return number
        return None

    def _call(self, inputs: tuple[TensorSpec, ...], outputs: int, way: Way, *, clear: bool = True) -> dict[str, Any]:
        """One call in this way; without `clear` what is cached may answer."""
        if clear:
            self.caches.clear()
        recorder = Recorder(self.violations, inputs)
        tensors = [kind.make(x) for kind, x in zip(way.kinds, recorder.inputs, strict=True)]
        tensors = tensors if way.same is None else [tensors[number] for number in way.same]
        before = given.state(tensors)
        positional = len(inputs) - way.named
        names = {spec.name: tensor for spec, tensor in zip(inputs[positional:], tensors[positional:], strict=True)}
        self.launches.recorder = recorder
        self.training.begin(way.on, tensors)
        usual = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16 if way.on == OTHERWISE else usual)
        try:
            with torch.autograd.set_grad_enabled(self.training.gradients), recorder:
                result = self.run(*tensors[:positional], **names)
        finally:
            self.launches.recorder = None
            self.training.end()
            torch.set_default_dtype(usual)
        if self.violations.first is not None:
            raise self.violations.first
        if given.state(tensors) != before:
            raise self.violations.add("state", "`run` changes what an input is, as `requires_grad_` does; leave the inputs as they are")
        if self.caches.changed():
            raise self.violations.add("state", "what a cached function returned is changed by a call; let it return numbers or a tuple")
        return dump(recorder.plan(_tensors(result, outputs, tensors, self.violations)))


def _writes_an_input(plan: dict[str, Any]) -> bool:
    targets = [step["target"]["buffer"] for step in plan["steps"] if step["kind"] != "launch"]
    return any(plan["buffers"][target]["input"] is not None for target in targets)


def _tensors(result: Any, outputs: int, inputs: Sequence[torch.Tensor], violations: Violations) -> Sequence[torch.Tensor]:
    if outputs == 1:
        result = (result,)
    elif not isinstance(result, (tuple, list)) or len(result) != outputs:
        raise violations.add("output_contract", f"`run` must return {outputs} tensors")
    for tensor in result:
        if type(tensor) is not torch.Tensor and not any(tensor is one for one in inputs):
            raise violations.add("output_contract", f"`run` returns a {type(tensor).__name__}; return a plain torch.Tensor")
    return tuple(result)


def _kept(module: ModuleType, violations: Violations) -> dict[str, tuple[object, ...]]:
    try:
        return kept(vars(module), module.__name__)
    except KeptObject as error:
        raise violations.add("state", str(error)) from None


def _as_written(kernels: Unchanged, module: ModuleType, violations: Violations) -> Unchanged:
    try:
        kernels.imported(vars(module))
    except Changed as error:
        raise violations.add("module_level", f"while the file is being imported, {error}") from None
    return kernels


def _import_run(module: ModuleType, source: str, path: str, violations: Violations, asserts: bool) -> Callable[..., Any]:
    """Import the candidate's file as a module and return its `run`. Triton reads kernel sources back from the file."""
    with open(path, "w", encoding="utf-8", errors="surrogatepass") as file:
        file.write(source)
    module.__file__ = path
    module.__dict__.update(torch=torch, triton=triton, tl=tl)
    sys.modules[module.__name__] = module
    exec(guarded(source, path, module, violations, asserts=asserts), module.__dict__)
    run = module.__dict__.get("run")
    if not callable(run):
        raise AttributeError("the file does not define `run`")
    checked: Callable[..., Any] = run
    return checked


def _describe(error: BaseException, path: str) -> str:
    """One line: where in the candidate's file, which exception, and its message's first line."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    where = f"line {lines[-1]}: " if lines else ""
    message = " ".join(str(error).split())[:MAX_MESSAGE]
    called = f" ({notes[-1]})" if (notes := getattr(error, "__notes__", ())) else ""
    return f"{where}{type(error).__name__}{': ' if message else ''}{message}{called}"


def _spec(data: dict[str, Any]) -> TensorSpec:
    return TensorSpec(data["name"], tuple(data["shape"]), data["dtype"], tuple(data["strides"]), data["offset"])

"""Making tapes: noting what one program does, where every other one does the same.

Another program, or another run with the same numbers for arguments, does the same as long as no Python has looked at a value that comes
from a program's number, a pointer or memory. So every look is watched, and after one at anything but a constant there is no tape
(`if pid == 0`, a loop up to a loaded number): every program is run. It is the same with whatever is not known to be an operation.

Limits: no tape of block pointers, descriptors or atomics, nor of more than MOST operations. Runs in the interpreter worker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import triton.language as tl

from referee.interpreter.choices import Choices
from referee.interpreter.tape import Step, Tape, compact

MOST = 20_000
"""Operations of one program: a tape of more takes much memory, and such a program takes long in any case."""

_MARK = "_on_tape"
_PURE = frozenset(
    [
        *(f"icmp{word}" for word in "SLE SLT SGE SGT ULE ULT UGE UGT EQ NE".split()),
        *(f"fcmp{word}" for word in "OLT OGT OLE OGE OEQ ONE ULT UGT ULE UGE UEQ UNE".split()),
        *"add sub mul fadd fsub fmul fdiv precise_divf frem sdiv udiv idiv srem urem shl lshr ashr and or xor select".split(),
        *"minsi minui minimumf minnumf maxsi maxui maximumf maxnumf clampf fabs iabs".split(),
        *"exp exp2 log log2 sqrt precise_sqrt rsqrt floor ceil fma".split(),
        *"si_to_fp ui_to_fp fp_to_si fp_to_ui fp_ext fp_trunc int_cast fp_to_fp bitcast".split(),
        *"make_range expand_dims broadcast splat unsplat reshape trans".split(),
    ]
)
"""Operations that do nothing but give a value, always the same for the same ones; what they make of constants is a constant."""

_PLAIN = (type(None), bool, int, float, str, tl.dtype)


@dataclass
class _Mark:
    """What is known of a value while the tape with this number is made: whether it is a constant, and its place if it needed one."""

    number: int
    constant: bool
    place: int | None = None


class Recorder:
    """Makes tapes. Patches the `triton.runtime.interpreter` module given, once per process, after all else that patches it.

    `others` are methods that are operations too, and return what is the same for every program.
    """

    def __init__(self, interpreter: Any, choices: Choices, others: Sequence[tuple[type, str]] = ()) -> None:
        self._handle, builder, reductions = interpreter.TensorHandle, interpreter.InterpreterBuilder, interpreter.ReduceScanOpInterface
        self._owners = (builder, reductions, *(owner for owner, _ in others))
        self._native = type(interpreter._ir.ROUNDING_MODE.RTNE).__module__
        self._choices = choices
        self._watching = False
        self._number = 0
        self._steps: list[Step] = []
        self._start: list[Any] = []
        for name in dir(builder):
            if name.startswith("create_") and "atomic" not in name:
                setattr(builder, name, self._operation(getattr(builder, name), pure=name.removeprefix("create_") in _PURE))
        for owner, name in others:
            setattr(owner, name, self._operation(getattr(owner, name), silent=True))
        self._handle.set_attr = self._operation(self._handle.set_attr)
        reductions.apply = self._reduction(reductions.apply)
        truth = tl.tensor.__bool__
        # Triton asks whether there is a block; that needs no look at its values.
        tl.tensor.__bool__ = lambda self: self.numel.value > 1 or truth(self)

    def record(self, program: Callable[[], None], arguments: Sequence[Any]) -> Tape | None:
        """Run the program, and keep what it does if all others do the same. `arguments` are tensors. Raises what the program raises."""
        self._number, self._steps, self._start = self._number + 1, [], []
        for argument in arguments:
            self._mark(argument.handle, constant=True)
        pointers = [self._new_place(self._mark(one.handle, constant=False)) for one in arguments if one.dtype.is_ptr()]
        self._handle.data = property(self._look, self._change)
        self._watching = True
        try:
            program()
            complete = self._watching
        finally:
            self._watching = False
            del self._handle.data
        return compact(self._steps, self._start, pointers) if complete else None

    def _look(self, handle: Any) -> Any:
        if self._watching:
            mark = self._marked(handle)
            self._watching = mark is not None and mark.constant
        return vars(handle)["data"]

    def _change(self, handle: Any, value: Any) -> None:
        vars(handle)["data"] = value
        if self._watching:
            # What Python makes without a look at anything else is a constant, and nothing is one that it changes later.
            self._watching = self._marked(handle) is None
            self._mark(handle, constant=True)

    def _mark(self, handle: Any, *, constant: bool) -> _Mark:
        mark = vars(handle)[_MARK] = _Mark(self._number, constant)
        return mark

    def _marked(self, handle: Any) -> _Mark | None:
        mark: _Mark | None = vars(handle).get(_MARK)
        return mark if mark is not None and mark.number == self._number else None

    def _new_place(self, mark: _Mark, constant: Any = None) -> int:
        mark.place = len(self._start)
        self._start.append(constant)
        return mark.place

    def _place(self, handle: Any) -> int:
        mark: _Mark = vars(handle)[_MARK]
        return self._new_place(mark, handle) if mark.place is None else mark.place

    def _note(self, function: Callable[..., Any], given: Sequence[Any], found: Any, *, pure: bool = False) -> bool:
        """Whether the call could be put on the tape, or is of constants only and `pure`, and so gives constants."""
        single = {position: one for position, one in enumerate(given) if isinstance(one, self._handle)}
        several = {position: one for position, one in enumerate(given) if self._holds_handles(one)}
        rest = [None if position in single or position in several else one for position, one in enumerate(given)]
        handles = [*single.values(), *(part for some in several.values() for part in some)]
        marks = [self._marked(one) if isinstance(one, self._handle) else None for one in handles]
        results = () if found is None else found if isinstance(found, tuple) else (found,)
        if not (all(marks) and self._plain(rest) and all(isinstance(one, self._handle) for one in results)):
            return False
        if pure and all(mark.constant for mark in marks if mark):
            for one in results:
                self._mark(one, constant=True)
            return True
        if len(self._steps) == MOST:
            return False
        places = [(position, self._place(one)) for position, one in single.items()]
        lists = [(position, [self._place(part) for part in some]) for position, some in several.items()]
        new = [self._new_place(self._mark(one, constant=False)) for one in results]
        self._steps.append(Step(function, rest, places, lists, new))
        return True

    def _holds_handles(self, value: Any) -> bool:
        return isinstance(value, (list, tuple)) and any(isinstance(part, self._handle) for part in value)

    def _plain(self, value: Any) -> bool:
        """Whether nothing that a program got can be in it."""
        if isinstance(value, (list, tuple)):
            return all(self._plain(part) for part in value)
        return isinstance(value, self._owners + _PLAIN) or type(value).__module__ == self._native

    def _operation(self, function: Callable[..., Any], *, pure: bool = False, silent: bool = False) -> Callable[..., Any]:
        def operation(*given: Any, **named: Any) -> Any:
            if not self._watching:
                return function(*given, **named)
            self._watching, before = False, self._choices.left_open
            found = function(*given, **named)
            # What is left open is no constant: in another run, or the next time, it is something else.
            constant = pure and self._choices.left_open == before
            self._watching = not named and self._note(function, given, None if silent else found, pure=constant)
            return found

        return operation

    def _reduction(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A reduction or scan is given tensors; on a tape it is an operation on what these hold."""

        def on_handles(operation: Any, kinds: Sequence[Any], *handles: Any) -> Any:
            given = tuple(tl.tensor(handle, kind) for handle, kind in zip(handles, kinds, strict=True))
            return tuple(tensor.handle for tensor in function(operation, given))

        def apply(operation: Any, given: Any) -> Any:
            if not self._watching:
                return function(operation, given)
            self._watching = False
            found = function(operation, given)
            before, after = (value if isinstance(value, tuple) else (value,) for value in (given, found))
            call = operation, tuple(tensor.type for tensor in before), *(tensor.handle for tensor in before)
            self._watching = self._note(on_handles, call, tuple(tensor.handle for tensor in after))
            return found

        return apply

"""Records the operations of one program for replay in other programs that do the same.

A value may depend on the program's number, an argument or memory. Another program or run does the
same as long as no Python code looks at such a value. So the recorder watches every look. After a
look at a value that is not constant (`if pid == 0`, a loop up to a loaded number) every program
runs, without a recording. An unknown operation has the same effect. If Python looks at an argument
that is a number (a loop up to `n`), a recording holds for launches with the same numbers.

Limits: no recording of block pointers, descriptors or atomics, nor of more than MOST operations.
Runs in the interpreter worker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import triton.language as tl

from referee.interpreter.numeric_freedom import NumericFreedom
from referee.interpreter.recorded_program import RecordedCall, RecordedProgram, compact

MOST = 20_000
"""Maximum number of operations of a recorded program, which bounds the memory of a recording."""

REDUCTION = "reduction"
"""The name of a step that reduces or scans."""

_MARK = "_on_tape"
_PURE = frozenset(
    [
        *(f"icmp{word}" for word in "SLE SLT SGE SGT ULE ULT UGE UGT EQ NE".split()),
        *(f"fcmp{word}" for word in "OLT OGT OLE OGE OEQ ONE ULT UGT ULE UGE UEQ UNE".split()),
        *(
            "add sub mul fadd fsub fmul fdiv precise_divf frem sdiv udiv idiv srem urem "
            "shl lshr ashr and or xor select"
        ).split(),
        *"minsi minui minimumf minnumf maxsi maxui maximumf maxnumf clampf fabs iabs".split(),
        *"exp exp2 log log2 sqrt precise_sqrt rsqrt floor ceil fma".split(),
        *"si_to_fp ui_to_fp fp_to_si fp_to_ui fp_ext fp_trunc int_cast fp_to_fp bitcast".split(),
        *"make_range expand_dims broadcast splat unsplat reshape trans".split(),
    ]
)
"""Operations without effects: equal operands give equal results, and constants give constants."""

_PLAIN = (type(None), bool, int, float, str, tl.dtype)


@dataclass
class _Mark:
    """A value in recording `number`: whether it is constant, and its place."""

    number: int
    constant: bool
    place: int | None = None


class Recorder:
    """Records programs. Patches the given `triton.runtime.interpreter` module, once per process and
    last.

    `others` are further methods that count as operations. Their results are equal for every
    program.
    """

    def __init__(
        self, interpreter: Any, freedom: NumericFreedom, others: Sequence[tuple[type, str]] = ()
    ) -> None:
        self._handle, builder, reductions = (
            interpreter.TensorHandle,
            interpreter.InterpreterBuilder,
            interpreter.ReduceScanOpInterface,
        )
        self._owners = (builder, reductions, *(owner for owner, _ in others))
        self._native = type(interpreter._ir.ROUNDING_MODE.RTNE).__module__
        self._freedom = freedom
        self._watching = False
        self._number = 0
        self._steps: list[RecordedCall] = []
        self._start: list[Any] = []
        for name in dir(builder):
            if name.startswith("create_") and "atomic" not in name:
                setattr(
                    builder,
                    name,
                    self._operation(
                        name, getattr(builder, name), pure=name.removeprefix("create_") in _PURE
                    ),
                )
        for owner, name in others:
            setattr(owner, name, self._operation(name, getattr(owner, name), silent=True))
        self._handle.set_attr = self._operation("set_attr", self._handle.set_attr)
        reductions.apply = self._reduction(reductions.apply)
        truth = tl.tensor.__bool__
        # Triton asks whether a block is there; that does not look at its values.
        tl.tensor.__bool__ = lambda self: self.numel.value > 1 or truth(self)

    def record(
        self, program: Callable[[], None], constant: Sequence[Any], varying: Sequence[Any]
    ) -> RecordedProgram | None:
        """Runs the program and returns its recording; None if other programs may do something else.

        `constant` and `varying` are the handles of its arguments. Raises the exceptions of the
        program.
        """
        self._number, self._steps, self._start = self._number + 1, [], []
        for handle in constant:
            self._mark(handle, constant=True)
        arguments = [self._new_place(self._mark(handle, constant=False)) for handle in varying]
        self._handle.data = property(self._look, self._change)
        self._watching = True
        try:
            program()
            complete = self._watching
        finally:
            self._watching = False
            del self._handle.data
        return compact(self._steps, self._start, arguments) if complete else None

    def _look(self, handle: Any) -> Any:
        if self._watching:
            mark = self._marked(handle)
            self._watching = mark is not None and mark.constant
        return vars(handle)["data"]

    def _change(self, handle: Any, value: Any) -> None:
        vars(handle)["data"] = value
        if self._watching:
            # A value that Python makes without a look at others is constant; a later change ends
            # that.
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

    def _note(
        self,
        name: str,
        function: Callable[..., Any],
        given: Sequence[Any],
        found: Any,
        *,
        pure: bool = False,
    ) -> bool:
        """Whether the call could be recorded, or is `pure` with constant operands and results."""
        single = {
            position: one for position, one in enumerate(given) if isinstance(one, self._handle)
        }
        several = {position: one for position, one in enumerate(given) if self._holds_handles(one)}
        rest = [
            None if position in single or position in several else one
            for position, one in enumerate(given)
        ]
        handles = [*single.values(), *(part for some in several.values() for part in some)]
        marks = [self._marked(one) if isinstance(one, self._handle) else None for one in handles]
        results = () if found is None else found if isinstance(found, tuple) else (found,)
        if not (
            all(marks)
            and self._plain(rest)
            and all(isinstance(one, self._handle) for one in results)
        ):
            return False
        if pure and all(mark.constant for mark in marks if mark):
            for one in results:
                self._mark(one, constant=True)
            return True
        if len(self._steps) == MOST:
            return False
        places = [(position, self._place(one)) for position, one in single.items()]
        lists = [
            (position, [self._place(part) for part in some]) for position, some in several.items()
        ]
        new = [self._new_place(self._mark(one, constant=False)) for one in results]
        shapes = [one.data.shape for one in results]
        self._steps.append(
            RecordedCall(
                name=name,
                function=function,
                given=rest,
                single=places,
                several=lists,
                results=new,
                shapes=shapes,
            )
        )
        return True

    def _holds_handles(self, value: Any) -> bool:
        return isinstance(value, (list, tuple)) and any(
            isinstance(part, self._handle) for part in value
        )

    def _plain(self, value: Any) -> bool:
        if isinstance(value, (list, tuple)):
            return all(self._plain(part) for part in value)
        return isinstance(value, self._owners + _PLAIN) or type(value).__module__ == self._native

    def _operation(
        self, name: str, function: Callable[..., Any], *, pure: bool = False, silent: bool = False
    ) -> Callable[..., Any]:
        def operation(*given: Any, **named: Any) -> Any:
            if not self._watching:
                return function(*given, **named)
            self._watching, before = False, self._freedom.left_open
            found = function(*given, **named)
            # An undetermined result is no constant: it differs in another run or at the next use.
            constant = pure and self._freedom.left_open == before
            self._watching = not named and self._note(
                name, function, given, None if silent else found, pure=constant
            )
            return found

        return operation

    def _reduction(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A reduction or scan takes tensors; its recorded operation takes their handles."""

        def on_handles(operation: Any, kinds: Sequence[Any], *handles: Any) -> Any:
            given = tuple(
                tl.tensor(handle, kind) for handle, kind in zip(handles, kinds, strict=True)
            )
            return tuple(tensor.handle for tensor in function(operation, given))

        def apply(operation: Any, given: Any) -> Any:
            if not self._watching:
                return function(operation, given)
            self._watching = False
            found = function(operation, given)
            before, after = (
                value if isinstance(value, tuple) else (value,) for value in (given, found)
            )
            call = (
                operation,
                tuple(tensor.type for tensor in before),
                *(tensor.handle for tensor in before),
            )
            self._watching = self._note(
                REDUCTION, on_handles, call, tuple(tensor.handle for tensor in after)
            )
            return found

        return apply

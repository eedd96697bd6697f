"""Replays a recorded program for many programs at once, with one array row per program.

For small blocks, calling an operation takes many times as long as computing it, and a launch may
have a thousand programs. Values that programs share (constants, ranges, loads from equal addresses)
are computed once. The results have the same bits as sequential programs. If a step fails, or
programs may depend on each other (`batch_memory`), `replay` changes nothing and returns False. The
programs then run one after the other, which shows the faulty program. Runs in the interpreter
worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import triton.language as tl
from numpy.typing import NDArray

from referee.interpreter import reductions
from referee.interpreter.batch_memory import BatchMemory, NotBatchable
from referee.interpreter.gpu_semantics import EXACT
from referee.interpreter.memory import CheckedMemory
from referee.interpreter.numeric_freedom import NumericFreedom
from referee.interpreter.recorded_program import RecordedCall, RecordedProgram
from referee.interpreter.recorder import REDUCTION

Array = NDArray[Any]
Program = tuple[int, ...]

ELEMENTS = 1 << 15
"""Maximum number of elements of a batch's largest array, for a processor's cache."""

_ROWS = "_rows"
"""Attribute of a value that has one row per program; other values are the same for all programs."""

_SILENT = frozenset({"create_barrier", "enter_pipelined_loop", "leave_pipelined_loop"})
"""Steps that only order the threads' accesses; no order matters in a batch."""

_ELEMENTWISE = frozenset(
    f"create_{name}"
    for name in (
        *(f"icmp{word}" for word in "SLE SLT SGE SGT ULE ULT UGE UGT EQ NE".split()),
        *(f"fcmp{word}" for word in "OLT OGT OLE OGE OEQ ONE ULT UGT ULE UGE UEQ UNE".split()),
        *(
            "add sub mul fadd fsub fmul fdiv precise_divf frem sdiv udiv idiv srem urem "
            "shl lshr ashr and or xor"
        ).split(),
        *(
            "minsi minui minimumf minnumf maxsi maxui maximumf maxnumf clampf fabs iabs "
            "umulhi select addptr"
        ).split(),
        *(
            "exp exp2 log log2 sqrt precise_sqrt rsqrt sin cos erf floor ceil fma "
            "extern_elementwise"
        ).split(),
        *(
            "si_to_fp ui_to_fp fp_to_si fp_to_ui fp_ext fp_trunc int_cast fp_to_fp bitcast "
            "ptr_to_int int_to_ptr"
        ).split(),
        *"dot split assume assert".split(),
    )
)
"""Steps that take arrays with rows unchanged: they work by element, or along the last axes."""

_MOVES: Mapping[str, Callable[..., Array]] = {
    "create_reshape": lambda data, shape, *_: data.reshape(len(data), *shape),
    "create_trans": lambda data, order: data.transpose(0, *(axis + 1 for axis in order)),
    "create_expand_dims": lambda data, axis: np.expand_dims(data, axis + 1),
    "create_broadcast": lambda data, shape: np.broadcast_to(data, (len(data), *shape)),
}
"""Steps that move the elements of one value, as functions of an array with rows."""


class Batches:
    """Replays recorded programs for many programs on this memory.

    `interpreter` is the `triton.runtime.interpreter` module.
    """

    def __init__(self, interpreter: Any, memory: CheckedMemory, freedom: NumericFreedom) -> None:
        self._interpreter, self._memory, self._freedom = interpreter, memory, freedom

    def replay(
        self, recorded: RecordedProgram, arguments: Sequence[Any], programs: Sequence[Program]
    ) -> bool:
        """Does the work of these programs. Returns False, with no effect, if it cannot."""
        size = max((prod(shape) for step in recorded.steps for shape in step.shapes), default=1)
        count = max(1, ELEMENTS // max(size, 1))
        # Only a single program can replace masked-off lanes by NaN (`memory_patches`).
        if not programs or self._memory.open_lanes:
            return False
        access, left_open = BatchMemory(self._memory), self._freedom.left_open
        try:
            for first in range(0, len(programs), count):
                _Batch(
                    self._interpreter, self._freedom, access, programs[first : first + count]
                ).replay(recorded, arguments)
        except Exception:
            # A program that runs alone reports the error, or runs without it.
            self._freedom.left_open = left_open
            return False
        access.commit()
        return True


class _Batch:
    """Some programs at once."""

    def __init__(
        self,
        interpreter: Any,
        freedom: NumericFreedom,
        access: BatchMemory,
        programs: Sequence[Program],
    ) -> None:
        self._handle, self._dtype = interpreter.TensorHandle, interpreter._get_np_dtype
        self._freedom, self._access, self._programs = freedom, access, programs
        self._rows = len(programs)

    def replay(self, recorded: RecordedProgram, arguments: Sequence[Any]) -> None:
        places = recorded.places(arguments)
        left_open = self._freedom.left_open
        for step in recorded.steps:
            if step.name not in _SILENT:
                results = self._step(step, step.filled(places))
                for place, part in zip(step.results, results, strict=True):
                    places[place] = part
        if self._freedom.left_open != left_open:
            # Each program must get separate bits for undetermined results.
            raise NotBatchable

    def _step(self, step: RecordedCall, given: list[Any]) -> Sequence[Any]:
        handles = list(self._handles(given))
        varies = step.name == "create_get_program_id" or any(map(_varies, handles))
        found: Any = None
        if step.name in ("create_load", "create_masked_load"):
            found = self._loaded(given, masked="masked" in step.name)
        elif step.name in ("create_store", "create_masked_store"):
            self._store(given, masked="masked" in step.name)
        elif step.name == "create_get_program_id":
            found = self._handle(
                np.array([[program[given[1]]] for program in self._programs], np.int32), tl.int32
            )
        elif not varies:
            found = step.function(*given)
        elif step.name in _ELEMENTWISE:
            self._aligned(handles)
            found = step.function(*given)
        elif step.name == REDUCTION:
            found = self._reduced(*given)
        elif step.name == "create_splat":
            found = self._splat(*given[1:])
        elif step.name in _MOVES:
            found = self._moved(_MOVES[step.name], *given[1:])
        else:
            found = self._one_by_one(step, given)
        if not step.results:
            return ()
        results = found if isinstance(found, tuple) else (found,)
        rows = (self._rows,) if varies else ()
        for part, shape in zip(results, step.shapes, strict=True):
            if part.data.shape != (*rows, *shape):
                raise NotBatchable
            setattr(part, _ROWS, varies)
        return results

    def _handles(self, given: Sequence[Any]) -> Iterator[Any]:
        for one in given:
            if isinstance(one, self._handle):
                yield one
            elif isinstance(one, list):
                yield from self._handles(one)

    @staticmethod
    def _aligned(handles: Sequence[Any]) -> None:
        """Raises NotBatchable unless NumPy's broadcasting aligns rows with rows."""
        ranks = {handle.data.ndim for handle in handles if _varies(handle)}
        if len(ranks) != 1 or any(
            handle.data.ndim >= max(ranks) for handle in handles if not _varies(handle)
        ):
            raise NotBatchable

    def _with_rows(self, handle: Any) -> Array:
        data: Array = handle.data
        return data if _varies(handle) else np.broadcast_to(data, (self._rows, *data.shape))

    def _loaded(self, given: Sequence[Any], *, masked: bool) -> Any:
        # The arguments after the mask differ between versions of Triton, except the last one.
        pointers, (mask, other), volatile = (
            given[1],
            given[2:4] if masked else (None, None),
            given[-1],
        )
        if volatile:
            raise NotBatchable
        handles = [one for one in (pointers, mask, other) if one is not None]
        kind = pointers.get_element_ty()
        dtype = np.dtype(self._dtype(kind))
        if any(map(_varies, handles)):
            self._aligned(handles)
        shape = np.broadcast_shapes(*(one.data.shape for one in handles))
        lanes = (
            np.ones(shape, bool)
            if mask is None
            else np.broadcast_to(mask.data, shape).astype(bool, copy=False)
        )
        instead = np.zeros(shape, dtype) if other is None else np.broadcast_to(other.data, shape)
        found = self._access.load(np.broadcast_to(pointers.data, shape), lanes, instead, dtype)
        return self._handle(found, kind)

    def _store(self, given: Sequence[Any], *, masked: bool) -> None:
        pointers, value, mask = given[1], given[2], given[3] if masked else None
        handles = [one for one in (pointers, value, mask) if one is not None]
        arrays = [self._with_rows(one) for one in handles]
        if len({array.shape for array in arrays}) != 1:
            raise NotBatchable
        lanes = (
            np.ones(arrays[0].shape, bool) if mask is None else arrays[2].astype(bool, copy=False)
        )
        self._access.store(arrays[0], arrays[1], lanes)

    def _reduced(self, operation: Any, kinds: Sequence[Any], *handles: Any) -> tuple[Any, ...]:
        tensors = tuple(
            tl.tensor(self._handle(self._with_rows(handle), handle.dtype), kind)
            for handle, kind in zip(handles, kinds, strict=True)
        )
        found = reductions.combined(operation, tensors, self._freedom.relaxed, leading=1)
        return tuple(
            self._handle(_scalars(array).astype(self._dtype(tensor.dtype)), tensor.dtype.scalar)
            for array, tensor in zip(found, tensors, strict=True)
        )

    def _splat(self, kind: Any, given: Any) -> Any:
        def spread(data: Array, shape: Sequence[int]) -> Array:
            return np.broadcast_to(data.reshape(len(data), *(1,) * len(shape)), (len(data), *shape))

        return self._moved(spread, given, tuple(kind.shape))

    def _moved(self, move: Callable[..., Array], given: Any, *how: Any) -> Any:
        """An unrounded product moves with its value (`gpu_semantics`)."""
        found = self._handle(move(given.data, *how), given.dtype.scalar)
        if EXACT in given.attr:
            found.attr[EXACT] = move(given.attr[EXACT], *how)
        return found

    def _one_by_one(self, step: RecordedCall, given: Sequence[Any]) -> tuple[Any, ...]:
        """Runs a step of unknown kind for one row after the other."""
        made = [step.function(*(self._row(one, row) for one in given)) for row in range(self._rows)]
        if not step.results:
            return ()
        parts = zip(*(one if isinstance(one, tuple) else (one,) for one in made), strict=True)
        return tuple(
            self._handle(np.stack([one.data for one in part]), part[0].dtype) for part in parts
        )

    def _row(self, one: Any, row: int) -> Any:
        if isinstance(one, list):
            return [self._row(part, row) for part in one]
        if not isinstance(one, self._handle) or not _varies(one):
            return one
        exact = {EXACT: one.attr[EXACT][row]} if EXACT in one.attr else {}
        return self._handle(one.data[row], one.dtype, exact)


def _varies(handle: Any) -> bool:
    return bool(getattr(handle, _ROWS, False))


def _scalars(array: Array) -> Array:
    """Triton's interpreter gives a program's scalar a shape of one element."""
    return array.reshape(-1, 1) if array.ndim == 1 else array

"""Puts `CheckedMemory` in the place of the memory of Triton's interpreter.

Runs in the interpreter worker.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from referee.interpreter.memory import CheckedMemory


def install(interpreter: Any, memory: CheckedMemory) -> None:
    """Replaces the memory of the given `triton.runtime.interpreter` module, once per process."""
    interpreter._interpreter = memory
    builder, semantic = interpreter.InterpreterBuilder, interpreter._ir.MEM_SEMANTIC
    update, swap = builder.create_atomic_rmw, builder.create_atomic_cas
    combine, product = interpreter.ReduceScanOpInterface.apply, builder.create_dot
    load = builder.create_masked_load

    def between_programs(semantics: Any, scope: Any) -> Any:
        return semantic.RELAXED if scope == interpreter._ir.MEM_SYNC_SCOPE.CTA else semantics

    def loaded(self: Any, pointers: Any, mask: Any, other: Any, *given: Any) -> Any:
        memory.volatile = bool(given[-1])
        if other is None and memory.open_lanes:
            other = undefined_lanes(pointers)
        try:
            return load(self, pointers, mask, other, *given)
        finally:
            memory.volatile = False

    def undefined_lanes(pointers: Any) -> Any:
        kind = pointers.get_element_ty()
        dtype = np.dtype(interpreter._get_np_dtype(kind))
        # All bits set is NaN in every float format.
        bits = (
            np.ones(1, dtype)
            if dtype == np.bool_
            else np.full(dtype.itemsize, 0xFF, np.uint8).view(dtype)
        )
        return interpreter.TensorHandle(np.broadcast_to(bits, pointers.data.shape).copy(), kind)

    def combined(self: Any, given: Any) -> Any:
        if any(
            part.handle.data.size > 1 for part in (given if isinstance(given, tuple) else (given,))
        ):
            memory.reads_complete()
        return combine(self, given)

    def multiplied(self: Any, *given: Any) -> Any:
        memory.reads_complete()
        return product(self, *given)

    builder.create_barrier = lambda self: memory.barrier()
    builder.create_masked_load = loaded
    interpreter.ReduceScanOpInterface.apply, builder.create_dot = combined, multiplied
    builder.create_atomic_rmw = lambda self, *given: update(
        self, *given[:-2], between_programs(*given[-2:]), given[-1]
    )
    builder.create_atomic_cas = lambda self, *given: swap(
        self, *given[:-2], between_programs(*given[-2:]), given[-1]
    )

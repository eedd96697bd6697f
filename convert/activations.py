"""Measures the inputs of each weight while llama.cpp computes: the mean of x squared by column.

llama.cpp shows every computed tensor to a callback (`cb_eval`), by pointer. Its C interface has no
function for a tensor's operands. So this module reads the structure itself, in the layout of ggml
0.25 (llama-cpp-python 0.3.36). It first compares size, name and element count with the answers of
ggml's own functions; any difference ends the collection.

Limits: CPU only; dense matrix products of the layers' weights without the head, as in llama.cpp's
own imatrix tool.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

_DIMS, _OP_BYTES, _SOURCES, _NAME_BYTES = 4, 64, 10, 64
_F32 = 0
# ggml counts a small list entry with every tensor.
_OBJECT_BYTES = 32


class _Tensor(ctypes.Structure):
    """`struct ggml_tensor`."""


_Tensor._fields_ = [
    ("type", ctypes.c_int),
    ("buffer", ctypes.c_void_p),
    ("ne", ctypes.c_int64 * _DIMS),
    ("nb", ctypes.c_size_t * _DIMS),
    ("op", ctypes.c_int),
    ("op_params", ctypes.c_int32 * (_OP_BYTES // 4)),
    ("flags", ctypes.c_int32),
    ("src", ctypes.POINTER(_Tensor) * _SOURCES),
    ("view_src", ctypes.c_void_p),
    ("view_offs", ctypes.c_size_t),
    ("data", ctypes.c_void_p),
    ("name", ctypes.c_char * _NAME_BYTES),
    ("extra", ctypes.c_void_p),
    ("padding", ctypes.c_char * 8),
]


class CollectionFailed(Exception):
    """llama.cpp showed an unknown layout; the message describes it."""


class Observer:
    """Sums squared inputs by weight. `callback` goes into a context's `cb_eval`.

    Keep the observer as long as the context.
    """

    def __init__(self, ggml: Any, callback_type: Any) -> None:
        self._ggml = _declared(ggml)
        self._sums: dict[str, npt.NDArray[np.float64]] = {}
        self._counts: dict[str, int] = {}
        self._failure: BaseException | None = None
        self._checked = False
        self._product = next(
            number for number in range(200) if self._ggml.ggml_op_name(number) == b"MUL_MAT"
        )
        self.callback = callback_type(self._seen)

    def means(self) -> dict[str, npt.NDArray[np.float32]]:
        """Mean squared input by weight name.

        Raises an exception of the callback, if there was one.
        """
        if self._failure is not None:
            raise self._failure
        return {
            name: (total / self._counts[name]).astype(np.float32)
            for name, total in self._sums.items()
        }

    def _seen(self, pointer: int, ask: bool, user_data: int | None) -> bool:
        """llama.cpp calls this first to choose a tensor, then to read it.

        An exception must not reach C, so it is kept.
        """
        if self._failure is not None:
            return not ask
        try:
            tensor = _Tensor.from_address(pointer)
            if not self._checked:
                self._check(pointer, tensor)
            if tensor.op != self._product or not tensor.src[0].contents.name.startswith(b"blk."):
                return not ask
            if not ask:
                self._add(tensor.src[0].contents.name.decode(), tensor.src[1].contents)
            return True
        except BaseException as error:
            self._failure = error
            return not ask

    def _check(self, pointer: int, tensor: _Tensor) -> None:
        size = self._ggml.ggml_tensor_overhead() - _OBJECT_BYTES
        elements = int(np.prod(list(tensor.ne), dtype=np.int64))
        named = self._ggml.ggml_get_name(pointer) == tensor.name
        if (
            size != ctypes.sizeof(_Tensor)
            or not named
            or self._ggml.ggml_nelements(pointer) != elements
        ):
            raise CollectionFailed(
                "the installed llama.cpp lays its tensors out differently from "
                "llama-cpp-python 0.3.36's"
            )
        self._checked = True

    def _add(self, name: str, inputs: _Tensor) -> None:
        if inputs.type != _F32 or inputs.ne[2] != 1 or inputs.ne[3] != 1:
            raise CollectionFailed(f"the input of {name} is not a float32 matrix")
        columns, rows = inputs.ne[0], inputs.ne[1]
        size = (rows - 1) * inputs.nb[1] + columns * 4
        raw = (ctypes.c_char * size).from_address(inputs.data)
        values = np.ndarray((rows, columns), np.float32, raw, 0, (inputs.nb[1], inputs.nb[0]))
        total = np.einsum("rc,rc->c", values, values, dtype=np.float64)
        self._sums[name] = self._sums[name] + total if name in self._sums else total
        self._counts[name] = self._counts.get(name, 0) + rows


def _declared(ggml: Any) -> Any:
    """The four functions of ggml that this module uses, with their types."""
    for name, result, arguments in (
        ("ggml_op_name", ctypes.c_char_p, [ctypes.c_int]),
        ("ggml_tensor_overhead", ctypes.c_size_t, []),
        ("ggml_get_name", ctypes.c_char_p, [ctypes.c_void_p]),
        ("ggml_nelements", ctypes.c_int64, [ctypes.c_void_p]),
    ):
        function = getattr(ggml, name)
        function.restype, function.argtypes = result, arguments
    return ggml

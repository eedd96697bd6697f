"""A thin typed layer over llama.cpp's C API, as bound by llama-cpp-python's low-level module.

Only the engine's child process imports this. llama.cpp answers a wrong call with abort(), so every
size and index is checked here first; the parent survives the rest. The bindings are pinned to one
version, because struct layouts and argument orders change between releases. The high-level class
`Llama` is not used: it has one sequence only and copies every row of logits.

Source: include/llama.h of the revision vendored by llama-cpp-python 0.3.36.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kmint_tui.installed import llama_version

PINNED = "0.3.36"
MAX_SEQUENCES = 256
LEVEL_INFO, LEVEL_WARN, LEVEL_ERROR, LEVEL_DEBUG, LEVEL_CONTINUED = 1, 2, 3, 4, 5
DECODED, NO_SLOT, ABORTED = 0, 1, 2
_DEVICE_IS_GPU = 1

Logits = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int32]


class NativeError(Exception):
    """llama.cpp refused; `code` is a code of `events.py`, `reason` one line for the user."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


def library() -> Any:
    """The low-level bindings of the pinned version.

    Raises NativeError("environment") without them.
    """
    installed = llama_version()
    if installed is None:
        raise NativeError(
            "environment",
            f"llama-cpp-python is not installed: pip install llama-cpp-python=={PINNED}",
        )
    if installed != PINNED:
        raise NativeError(
            "environment",
            f"llama-cpp-python {installed} is installed and kmint needs {PINNED}: pip "
            f"install llama-cpp-python=={PINNED}",
        )
    try:
        from llama_cpp import llama_cpp
    except (ImportError, OSError, RuntimeError) as error:
        raise NativeError("environment", f"llama-cpp-python does not load: {error}") from None
    return llama_cpp


def free_on_gpu(lib: Any) -> int:
    """Free bytes of the fullest GPU that llama.cpp uses; 0 without a GPU."""
    # The bindings lack these calls of ggml, whose library is loaded together with llama.cpp's.
    count = ctypes.CFUNCTYPE(ctypes.c_size_t)(("ggml_backend_dev_count", lib._lib))
    get = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)(("ggml_backend_dev_get", lib._lib))
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(("ggml_backend_dev_type", lib._lib))
    size = ctypes.POINTER(ctypes.c_size_t)
    memory = ctypes.CFUNCTYPE(None, ctypes.c_void_p, size, size)(
        ("ggml_backend_dev_memory", lib._lib)
    )
    free, total, found = ctypes.c_size_t(), ctypes.c_size_t(), []
    for device in map(get, range(count())):
        if kind(device) == _DEVICE_IS_GPU:
            memory(device, ctypes.byref(free), ctypes.byref(total))
            found.append(free.value)
    return min(found, default=0)


class Log:
    """Routes llama.cpp's log lines, except debugging ones, to `sink(level, line)`.

    Keep the object: llama.cpp would crash in a collected callback.
    """

    def __init__(self, lib: Any, sink: Callable[[int, str], None]) -> None:
        self._begun: dict[int, tuple[int, str]] = {}
        self._sink = sink
        self._callback = lib.llama_log_callback(self._receive)
        lib.llama_log_set(self._callback, ctypes.c_void_p(0))

    def _receive(self, level: int, text: bytes, _data: object) -> None:
        # Several threads may log at once, so each thread has its own unfinished line.
        thread = threading.get_ident()
        before, begun = self._begun.get(thread, (LEVEL_INFO, ""))
        level = before if level == LEVEL_CONTINUED else level
        *lines, rest = (begun + text.decode("utf-8", "replace")).split("\n")
        self._begun[thread] = level, rest
        for line in lines:
            if line and level != LEVEL_DEBUG:
                self._sink(level, line)


class Model:
    """A loaded GGUF file and its vocabulary."""

    def __init__(
        self,
        lib: Any,
        path: Path,
        *,
        gpu_layers: int,
        memory_map: bool,
        plain_weights: bool,
        progress: Callable[[float], bool],
    ) -> None:
        """Load the file. `plain_weights` forgoes weights repacked for the CPU's matrix units.

        `progress` returns False to stop. Raises NativeError("model") when llama.cpp refuses the
        file; the reason is in its log.
        """
        self.lib = lib
        parameters = lib.llama_model_default_params()
        parameters.n_gpu_layers = gpu_layers
        parameters.load_mode = lib.LLAMA_LOAD_MODE_MMAP if memory_map else lib.LLAMA_LOAD_MODE_NONE
        parameters.use_extra_bufts = not plain_weights
        callback = lib.llama_progress_callback(lambda fraction, _data: progress(fraction))
        parameters.progress_callback = callback
        self.pointer = lib.llama_model_load_from_file(str(path).encode(), parameters)
        if not self.pointer:
            raise NativeError("model", "llama.cpp does not accept the file")
        self.vocabulary = lib.llama_model_get_vocab(self.pointer)
        self.tokens = int(lib.llama_vocab_n_tokens(self.vocabulary))
        self.layers = int(lib.llama_model_n_layer(self.pointer))
        self.trained_context = int(lib.llama_model_n_ctx_train(self.pointer))
        self.parameters = int(lib.llama_model_n_params(self.pointer))
        self.bytes = int(lib.llama_model_size(self.pointer))
        self.recurrent = bool(
            lib.llama_model_is_recurrent(self.pointer) or lib.llama_model_is_hybrid(self.pointer)
        )
        self.adds_bos = bool(lib.llama_vocab_get_add_bos(self.vocabulary))
        self._ends: dict[int, bool] = {}
        self._pieces: dict[int, bytes] = {}

    def meta(self, key: str) -> str:
        """One metadata value as text; "" for a missing one."""
        size = int(self.lib.llama_model_meta_val_str(self.pointer, key.encode(), None, 0))
        if size < 0:
            return ""
        buffer = ctypes.create_string_buffer(size + 1)
        self.lib.llama_model_meta_val_str(self.pointer, key.encode(), buffer, size + 1)
        return buffer.value.decode("utf-8", "replace")

    def describe(self) -> str:
        """llama.cpp's short name of the file, for example "llama 1B Q8_0"."""
        buffer = ctypes.create_string_buffer(256)
        self.lib.llama_model_desc(self.pointer, buffer, 256)
        return buffer.value.decode("utf-8", "replace")

    def bos(self) -> str:
        """Text of the beginning-of-sequence token; "" without one."""
        token = int(self.lib.llama_vocab_bos(self.vocabulary))
        text = self.lib.llama_vocab_get_text(self.vocabulary, token) if token >= 0 else None
        return text.decode("utf-8", "replace") if text else ""

    def template(self) -> str:
        """The chat template in the file; "" without one."""
        text = self.lib.llama_model_chat_template(self.pointer, None)
        return text.decode("utf-8", "replace") if text else ""

    def tokenize(self, text: str) -> list[int]:
        """Token ids of rendered text: special tokens are parsed and none is added."""
        raw = text.encode("utf-8", "replace")
        room = len(raw) + 8
        buffer = (ctypes.c_int32 * room)()
        count = int(
            self.lib.llama_tokenize(self.vocabulary, raw, len(raw), buffer, room, False, True)
        )
        if count < 0:
            raise NativeError("native", f"tokenising {len(raw)} bytes failed ({count})")
        return list(buffer[:count])

    def is_end(self, token: int) -> bool:
        """True for a token that ends an answer (end of sequence, end of turn)."""
        known = self._ends.get(token)
        if known is None:
            known = self._ends[token] = bool(self.lib.llama_vocab_is_eog(self.vocabulary, token))
        return known

    def piece(self, token: int) -> bytes:
        """The bytes of a token; none for control tokens."""
        known = self._pieces.get(token)
        if known is None:
            buffer = ctypes.create_string_buffer(256)
            size = int(self.lib.llama_token_to_piece(self.vocabulary, token, buffer, 256, 0, False))
            if size < 0:
                buffer = ctypes.create_string_buffer(-size)
                size = int(
                    self.lib.llama_token_to_piece(self.vocabulary, token, buffer, -size, 0, False)
                )
            known = self._pieces[token] = buffer.raw[: max(size, 0)]
        return known

    def close(self) -> None:
        """Free the weights; the model must have no contexts left."""
        if self.pointer:
            self.lib.llama_model_free(self.pointer)
            self.pointer = None


class Batch:
    """A buffer of `capacity` tokens, each in one sequence, that llama.cpp reads without a copy."""

    def __init__(self, lib: Any, capacity: int) -> None:
        self.capacity = capacity
        self._tokens = np.zeros(capacity, np.int32)
        self._positions = np.zeros(capacity, np.int32)
        self._sequences = np.zeros(capacity, np.int32)
        self._counts = np.ones(capacity, np.int32)
        self._outputs = np.zeros(capacity, np.int8)
        self._pointers = self._sequences.ctypes.data + 4 * np.arange(capacity, dtype=np.uint64)
        integers = ctypes.POINTER(ctypes.c_int32)
        self.struct = lib.llama_batch(
            n_tokens=0,
            token=self._tokens.ctypes.data_as(integers),
            embd=None,
            pos=self._positions.ctypes.data_as(integers),
            n_seq_id=self._counts.ctypes.data_as(integers),
            seq_id=self._pointers.ctypes.data_as(ctypes.POINTER(integers)),
            logits=self._outputs.ctypes.data_as(ctypes.POINTER(ctypes.c_int8)),
        )

    def fill(
        self,
        tokens: Sequence[int],
        positions: Sequence[int],
        sequences: Sequence[int],
        outputs: Sequence[bool],
    ) -> None:
        """Set the batch, one entry a token in each argument; `outputs` marks the rows that give
        logits.
        """
        count = len(tokens)
        if not 0 < count <= self.capacity:
            raise NativeError("native", f"a batch of {count} tokens does not fit {self.capacity}")
        self._tokens[:count] = tokens
        self._positions[:count] = positions
        self._sequences[:count] = sequences
        self._outputs[:count] = outputs
        self.struct.n_tokens = count


class Context:
    """The key-value cache of up to `sequences` sequences in one pool of `cells`, and its calls."""

    def __init__(
        self, model: Model, *, cells: int, sequences: int, batch: int, threads: int, on_gpu: bool
    ) -> None:
        """Make the context. Raises NativeError("memory") when llama.cpp cannot.

        llama.cpp chooses flash attention on a GPU. On a CPU it is off, because it reads the cells
        one by one there. Without it a step of eight drafts takes half the time and does not depend
        on the number of threads.
        """
        if not 0 < sequences <= MAX_SEQUENCES:
            raise NativeError(
                "request", f"{sequences} sequences requested, llama.cpp has {MAX_SEQUENCES}"
            )
        lib = model.lib
        parameters = lib.llama_context_default_params()
        parameters.n_ctx = cells
        parameters.n_batch = parameters.n_ubatch = batch
        parameters.n_seq_max = sequences
        parameters.n_outputs_max = sequences
        parameters.n_threads = parameters.n_threads_batch = threads
        parameters.kv_unified = True
        parameters.flash_attn_type = (
            lib.LLAMA_FLASH_ATTN_TYPE_AUTO if on_gpu else lib.LLAMA_FLASH_ATTN_TYPE_DISABLED
        )
        self._abort = ctypes.create_string_buffer(2)
        # llama.cpp calls this between two operations of a graph; a non-zero result stops the
        # decode. strlen needs no interpreter lock and returns non-zero once the first byte of
        # `_abort` is set.
        parameters.abort_callback = ctypes.cast(ctypes.CDLL(None).strlen, lib.ggml_abort_callback)
        parameters.abort_callback_data = ctypes.addressof(self._abort)
        self.model, self._lib, self.cells, self.sequences = model, lib, cells, sequences
        self.pointer = lib.llama_init_from_model(model.pointer, parameters)
        if not self.pointer:
            raise NativeError(
                "memory", f"no memory for a context of {cells} tokens in {sequences} sequences"
            )
        self._memory = lib.llama_get_memory(self.pointer)
        self._place = (0, 0)
        self._logits: Logits = np.empty((0, 0), np.float32)
        self.batch = Batch(lib, batch)

    def decode(self) -> int:
        """Run the batch: DECODED, NO_SLOT (cache full, nothing changed) or ABORTED.

        Raises NativeError("native") for any other result.
        """
        code = int(self._lib.llama_decode(self.pointer, self.batch.struct))
        if code not in (DECODED, NO_SLOT, ABORTED):
            raise NativeError("native", f"llama_decode failed with {code}")
        return code

    def logits(self, rows: int) -> Logits:
        """The logits of the last decode's output rows, in batch order: shape (rows, vocabulary).

        The view is valid until the next decode.
        """
        pointer = self._lib.llama_get_logits(self.pointer)
        if not pointer:
            raise NativeError("native", "llama.cpp has no logits")
        place = (ctypes.addressof(pointer.contents), rows)
        if place != self._place:
            self._place, self._logits = (
                place,
                np.ctypeslib.as_array(pointer, shape=(rows, self.model.tokens)),
            )
        return self._logits

    def synchronize(self) -> None:
        """Wait until the device has finished."""
        self._lib.llama_synchronize(self.pointer)

    def set_threads(self, threads: int) -> None:
        """Set the number of CPU threads of all following decodes."""
        self._lib.llama_set_n_threads(self.pointer, threads, threads)

    def abort(self, wanted: bool) -> None:
        """Stop a decode on the CPU within one operation, from any thread; False allows decoding
        again.
        """
        self._abort[0] = b"\1" if wanted else b"\0"

    def copy(self, source: int, target: int) -> None:
        """Let sequence `target` share all of sequence `source`."""
        self._lib.llama_memory_seq_cp(self._memory, source, target, -1, -1)

    def remove(self, sequence: int, start: int = 0) -> bool:
        """Remove a sequence from position `start`. Returns False where only whole ones can be
        removed.

        Recurrent models keep one state a sequence and can remove only the whole sequence.
        """
        return bool(
            self._lib.llama_memory_seq_rm(self._memory, sequence, start if start else -1, -1)
        )

    def clear(self) -> None:
        """Remove every sequence."""
        self._lib.llama_memory_clear(self._memory, True)

    def attach(self, sequence: int, chain: object | None) -> bool:
        """Let a chain run on the device for a sequence; None takes it off again."""
        return bool(self._lib.llama_set_sampler(self.pointer, sequence, chain))

    def close(self) -> None:
        """Free the cache."""
        if self.pointer:
            self._lib.llama_free(self.pointer)
            self.pointer = None

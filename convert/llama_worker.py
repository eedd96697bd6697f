"""llama.cpp's part of a conversion, run as its own process.

`python -m convert.llama_worker COMMAND PARENT < request.json`; PARENT is the caller's process id.
The process ends with its caller.

llama.cpp ends the whole process on many errors, so the caller's process never calls it. Each
command reads one JSON object and writes one. Arrays of logits go to a file in numpy's .npy format.
llama.cpp's own messages stay on stderr.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import Any

import llama_cpp
import numpy as np

from convert.parent_death import end_with


class WorkerFailure(Exception):
    """llama.cpp refused; the message names the step."""


def quantize(request: dict[str, Any]) -> dict[str, Any]:
    """Quantise `source` to `target` as llama.cpp's `file_type`; only predict on `dry_run`."""
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = request["file_type"]
    params.nthread = request["threads"]
    params.dry_run = request.get("dry_run", False)
    kept = _importance(params, request["imatrix"]) if request.get("imatrix") else None
    code = llama_cpp.llama_model_quantize(
        os.fsencode(request["source"]), os.fsencode(request["target"]), ctypes.byref(params)
    )
    if code != 0:
        raise WorkerFailure(f"llama_model_quantize returned {code}")
    return {"weighted": len(kept or ())}


def _importance(params: Any, path: str) -> list[Any]:
    """Put the importance arrays of an .npz, by tensor name, into `params`.

    The caller must keep the returned objects, because C points to them.
    """
    with np.load(path, allow_pickle=False) as stored:
        kept: list[Any] = [
            (name.encode(), np.ascontiguousarray(stored[name], np.float32)) for name in stored.files
        ]
    entries = (llama_cpp.llama_model_imatrix_data * (len(kept) + 1))()
    for entry, (name, values) in zip(entries, kept, strict=False):
        entry.name, entry.size = name, values.size
        entry.data = values.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
    params.imatrix = entries
    return kept


def activations(request: dict[str, Any]) -> dict[str, Any]:
    """Mean squared input of each layer weight over the texts; `output` is an .npz by name."""
    from llama_cpp._ggml import libggml

    from convert.activations import CollectionFailed, Observer

    model = _load(request["model"], vocab_only=False)
    prompts = [_ids(model, text)[: request["longest"]] for text in request["texts"]]
    observer = Observer(libggml, llama_cpp.ggml_backend_sched_eval_callback)
    context = _context(model, {**request, "prompts": prompts}, observer.callback)
    try:
        for ids in prompts:
            _decode(context, ids)
        means = observer.means()
    except CollectionFailed as error:
        raise WorkerFailure(str(error)) from None
    np.savez(request["output"], **means)  # type: ignore[arg-type]  # numpy's stub takes the names for flags
    return {"tokens": sum(len(ids) for ids in prompts), "tensors": len(means)}


def tokenize(request: dict[str, Any]) -> dict[str, Any]:
    """Token ids of each text; special tokens in the text are recognised and none is added."""
    model = _load(request["model"], vocab_only=True)
    return {"ids": [_ids(model, text) for text in request["texts"]]}


def _ids(model: Any, text: str) -> list[int]:
    raw = text.encode("utf-8")
    room = (llama_cpp.llama_token * (len(raw) + 8))()
    count = llama_cpp.llama_tokenize(
        llama_cpp.llama_model_get_vocab(model), raw, len(raw), room, len(room), False, True
    )
    if count < 0:
        raise WorkerFailure(f"llama_tokenize needs room for {-count} tokens for {len(raw)} bytes")
    return list(room[:count])


def logits(request: dict[str, Any]) -> dict[str, Any]:
    """Float32 logits after every token of each prompt, one (tokens, vocabulary) array a prompt.

    The array goes to `output`. `adapter` is the path of a LoRA GGUF, applied at full strength.
    """
    model = _load(request["model"], vocab_only=False)
    vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    context = _context(model, request)
    if request.get("adapter"):
        _apply_adapter(model, context, request["adapter"])
    parts = []
    for ids in request["prompts"]:
        _decode(context, ids)
        rows = llama_cpp.llama_get_logits(context)
        parts.append(np.ctypeslib.as_array(rows, shape=(len(ids), vocabulary)).copy())
    np.save(request["output"], np.concatenate(parts), allow_pickle=False)
    return {"vocabulary": vocabulary}


def _context(model: Any, request: dict[str, Any], observer: Any = None) -> Any:
    """A context for the longest prompt, exact rather than fast; `observer` sees every computed
    tensor.
    """
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = (
        max(len(ids) for ids in request["prompts"]) + 8
    )
    params.n_threads = params.n_threads_batch = request["threads"]
    params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.type_k = params.type_v = llama_cpp.GGML_TYPE_F32
    params.op_offload = params.offload_kqv = False
    if observer is not None:
        params.cb_eval = observer
    context = llama_cpp.llama_init_from_model(model, params)
    if not context:
        raise WorkerFailure("llama_init_from_model failed")
    return context


def _apply_adapter(model: Any, context: Any, path: str) -> None:
    adapter = llama_cpp.llama_adapter_lora_init(model, os.fsencode(path))
    if not adapter:
        raise WorkerFailure(f"llama.cpp cannot apply the adapter {path} to this model")
    code = llama_cpp.llama_set_adapters_lora(
        context, (llama_cpp.llama_adapter_lora_p_ctypes * 1)(adapter), 1, (ctypes.c_float * 1)(1.0)
    )
    if code != 0:
        raise WorkerFailure(f"llama_set_adapters_lora returned {code}")


def _decode(context: Any, ids: list[int]) -> None:
    """One prompt from the start, with logits for every token."""
    llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
    batch = llama_cpp.llama_batch_init(len(ids), 0, 1)
    batch.n_tokens = len(ids)
    for position, token in enumerate(ids):
        batch.token[position], batch.pos[position], batch.n_seq_id[position] = token, position, 1
        batch.seq_id[position][0], batch.logits[position] = 0, 1
    code = llama_cpp.llama_decode(context, batch)
    llama_cpp.llama_batch_free(batch)
    if code != 0:
        raise WorkerFailure(f"llama_decode returned {code}")


def _load(path: str, *, vocab_only: bool) -> Any:
    llama_cpp.llama_backend_init()
    params = llama_cpp.llama_model_default_params()
    params.vocab_only = vocab_only
    if vocab_only:
        params.load_mode = (
            llama_cpp.LLAMA_LOAD_MODE_NONE
        )  # a mapping would bring the weights into memory for nothing
    params.n_gpu_layers = 0
    # Repacked and AMX weight buffers are for speed. The AMX one of llama-cpp-python 0.3.36 crashes
    # on Q8_0 batches.
    params.use_extra_bufts = False
    model = llama_cpp.llama_model_load_from_file(os.fsencode(path), params)
    if not model:
        raise WorkerFailure(f"llama.cpp cannot load {path}")
    return model


def main() -> int:
    """Run one command; the answer is `{"ok": …}` or `{"error": …}` on stdout."""
    end_with(int(sys.argv[2]))
    command = {
        "quantize": quantize,
        "tokenize": tokenize,
        "logits": logits,
        "activations": activations,
    }[sys.argv[1]]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        answer: dict[str, Any] = {"ok": command(json.load(sys.stdin))}
    except WorkerFailure as error:
        answer = {"error": str(error)}
    json.dump(answer, answers)
    answers.flush()
    return 0


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)

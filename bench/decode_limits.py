"""Where a decoding step's time goes: llama.cpp alone, with nothing around it, by way of using it.

    python bench/decode_limits.py [--model FILE] [--widths 1 8 32] [--json FILE]

For each number of rows: the time until `llama_decode` returns (on a GPU: until the work is handed over), the time until the
results are there, the median and the mean of the whole step (the mean holds the steps in which llama.cpp plans its graph
anew), with one cache for all sequences or one for each, and with 1 or 4 threads. Then the time of choosing tokens from such
logits on the host, with 1 to 8 workers. Tokens are arbitrary and nothing is sampled in the first part, so an engine on one
context of llama.cpp cannot be faster. Last, the rows shared out among several contexts that work at the same time, each with
a thread of its own, without and with choosing. `--tiny` makes a tiny file, to see that the code runs.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.decode_figures import MINICPM5, TINY, environment, make_random  # noqa: E402
from kmint_tui.smith.draw import Dice  # noqa: E402
from kmint_tui.smith.native import Batch, Log, Model, library  # noqa: E402
from kmint_tui.smith.sampler import Picker  # noqa: E402
from kmint_tui.smith.sampling import Sampling  # noqa: E402

PROMPT, PIECE = 900, 512


def main() -> None:
    """Measure and print one line a case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--widths", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    result: dict[str, Any] = {"schema": "kmint.bench.decode_limits/1", "environment": environment(), "cases": []}
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.model or make_random(Path(folder) / "random-q8_0.gguf", TINY if arguments.tiny else MINICPM5)
        lib = library()
        log = Log(lib, lambda level, line: None)
        model = Model(lib, path, gpu_layers=-1, memory_map=False, plain_weights=True, progress=lambda fraction: True)
        for case in _cases(model, arguments.widths, arguments.steps):
            print(json.dumps(case), flush=True)
            result["cases"].append(case)
            if arguments.json:
                arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        model.close()
        del log


def _cases(model: Model, widths: list[int], steps: int) -> Iterator[dict[str, Any]]:
    for width in widths:
        for threads in (1, 4):
            yield decoding(model, width, steps, threads=threads, unified=True)
        if width > 1:
            yield decoding(model, width, steps, threads=1, unified=False)
        for workers in (1, 2, 4, 8):
            yield choosing(model.tokens, width, workers)
        for contexts in (count for count in (1, 2, 4, 8) if count <= width):
            for chosen in (False, True):
                yield side_by_side(model, width, steps, contexts=contexts, chosen=chosen)


def decoding(model: Model, width: int, steps: int, *, threads: int, unified: bool) -> dict[str, Any]:
    """Steps of `width` rows after a shared prompt, in milliseconds."""
    lib = model.lib
    context, batch = _prompted(model, width, steps, threads=threads, unified=unified)
    handed: list[float] = []
    waited: list[float] = []
    for step in range(steps):
        batch.fill([step % 1000] * width, [PROMPT + step] * width, range(1, width + 1), [True] * width)
        began = time.perf_counter()
        _decode(lib, context, batch)
        handed.append(time.perf_counter() - began)
        lib.llama_synchronize(context)
        waited.append(time.perf_counter() - began - handed[-1])
    lib.llama_free(context)
    whole = [one + other for one, other in zip(handed, waited, strict=True)][5:]
    return {
        "rows": width,
        "cache": "unified" if unified else "split",
        "threads": threads,
        "handed_over_ms": round(1000 * statistics.median(handed[5:]), 3),
        "waited_ms": round(1000 * statistics.median(waited[5:]), 3),
        "median_ms": round(1000 * statistics.median(whole), 3),
        "mean_ms": round(1000 * statistics.mean(whole), 3),
        "slowest_tenth_ms": round(1000 * sorted(whole)[-len(whole) // 10], 3),
        "tokens_a_second": round(width / statistics.mean(whole)),
    }


def side_by_side(model: Model, width: int, steps: int, *, contexts: int, chosen: bool) -> dict[str, Any]:
    """Steps of `width` rows in all, shared out among `contexts`, each in a thread; with `chosen`, tokens are chosen as well."""
    lib, rows = model.lib, width // contexts
    made = [_prompted(model, rows, steps, threads=1, unified=True) for _ in range(contexts)]
    start = threading.Barrier(contexts + 1)

    def work(context: ctypes.c_void_p, batch: Batch) -> list[float]:
        dice, picker, tokens, taken = [Dice(Sampling(), 0.7, seed) for seed in range(rows)], Picker(), [7] * rows, []
        start.wait()
        for step in range(steps):
            began = time.perf_counter()
            batch.fill(tokens, [PROMPT + step] * rows, range(1, rows + 1), [True] * rows)
            _decode(lib, context, batch)
            lib.llama_synchronize(context)
            if chosen:
                tokens = picker.pick(np.ctypeslib.as_array(lib.llama_get_logits(context), shape=(rows, model.tokens)), dice)
            taken.append(time.perf_counter() - began)
        return taken

    with ThreadPoolExecutor(contexts) as pool:
        futures = [pool.submit(work, *one) for one in made]
        start.wait()
        began = time.perf_counter()
        taken = [future.result() for future in futures]
        seconds = time.perf_counter() - began
    for context, _ in made:
        lib.llama_free(context)
    return {
        "rows": width,
        "contexts": contexts,
        "chosen": chosen,
        "median_ms": round(1000 * statistics.median([one for each in taken for one in each[5:]]), 3),
        "tokens_a_second": round(rows * contexts * steps / seconds),
    }


def choosing(vocabulary: int, width: int, workers: int) -> dict[str, Any]:
    """Choosing tokens from random logits, in milliseconds."""
    rows = np.random.default_rng(0).standard_normal((width, vocabulary)).astype(np.float32)
    dice = [Dice(Sampling(), 0.7, seed) for seed in range(width)]
    picker = Picker(workers)
    taken = []
    for _ in range(60):
        start = time.perf_counter()
        picker.pick(rows, dice)
        taken.append(time.perf_counter() - start)
    picker.close()
    return {"rows": width, "choosing": True, "workers": workers, "median_ms": round(1000 * statistics.median(taken), 3)}


def _prompted(model: Model, width: int, steps: int, *, threads: int, unified: bool) -> tuple[ctypes.c_void_p, Batch]:
    """A context that has read a prompt and shares it among `width` sequences, and a batch for it."""
    lib = model.lib
    parameters = lib.llama_context_default_params()
    cells = PROMPT + steps + 8 if not unified else 0
    parameters.n_ctx = (width + 1) * (-(-cells // 256) * 256) if cells else -(-(PROMPT + width * (steps + 8)) // 256) * 256
    parameters.n_batch = parameters.n_ubatch = PIECE
    parameters.n_seq_max = parameters.n_outputs_max = width + 1
    parameters.n_threads = parameters.n_threads_batch = threads
    parameters.kv_unified = unified
    context = lib.llama_init_from_model(model.pointer, parameters)
    if not context:
        raise SystemExit("no memory for the context")
    memory = lib.llama_get_memory(context)
    batch = Batch(lib, PIECE)
    for start in range(0, PROMPT, PIECE):
        count = min(PIECE, PROMPT - start)
        batch.fill([7] * count, range(start, start + count), [0] * count, [False] * (count - 1) + [True])
        _decode(lib, context, batch)
    for sequence in range(1, width + 1):
        lib.llama_memory_seq_cp(memory, 0, sequence, -1, -1)
    return context, batch


def _decode(lib: Any, context: ctypes.c_void_p, batch: Batch) -> None:
    if lib.llama_decode(context, batch.struct) != 0:
        raise SystemExit("llama_decode failed")


if __name__ == "__main__":
    main()

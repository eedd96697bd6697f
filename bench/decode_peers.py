"""The peers of `bench/decode.py`: llama-cpp-python's `Llama`, transformers' `generate`, llama.cpp's
llama-batched-bench.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

from bench.decode_figures import Figure, cores, gpu_memory_used, peak_of
from tests.tiny_models import Shape


def high_level(model: Path, drafts: int, tokens: int, prompt: str, repeats: int) -> Figure:
    """llama-cpp-python's `Llama`, one draft after the other; the prompt is read by the first one
    only.
    """
    from llama_cpp import Llama, llama_cpp

    note = without_broken_kernels(llama_cpp)
    before = gpu_memory_used()
    llama = Llama(
        str(model),
        n_ctx=len(prompt) + tokens + 64,
        n_gpu_layers=-1,
        n_threads=cores(),
        n_threads_batch=cores(),
        verbose=False,
    )
    runs: list[tuple[float, float, int, int]] = []
    for repeat in range(repeats):
        ids = llama.tokenize(f"{repeat} {prompt}".encode(), add_bos=False, special=True)
        start, first, made = time.perf_counter(), 0.0, 0
        for draft in range(drafts):
            answer: Any = llama.create_completion(
                ids, max_tokens=tokens, temperature=0.7, top_p=0.97, top_k=40, min_p=0.0, seed=draft
            )
            made += answer["usage"]["completion_tokens"]
            first = first or time.perf_counter() - start
        runs.append((time.perf_counter() - start, first, made, len(ids)))
    taken, first, made, prompt_tokens = min(runs)
    start = time.perf_counter()
    llama.reset()
    llama.eval(ids)
    prefill = time.perf_counter() - start
    return Figure(
        peer="llama",
        drafts=drafts,
        tokens=made,
        prompt_tokens=prompt_tokens,
        rate=made / taken,
        decode_rate=made / (taken - prefill),
        first_draft=first,
        all_drafts=taken,
        prefill=prefill,
        step=(taken - prefill) / max(1, made),
        sampling_share=0.0,
        peak_memory=peak_of(os.getpid()),
        gpu_memory=max(0, gpu_memory_used() - before),
        note=note,
    )


def transformers(
    shape: Shape, drafts: int, tokens: int, prompt_tokens: int, repeats: int
) -> Figure:
    """transformers' `generate` with N return sequences and random weights in the same shape;
    bfloat16 on a GPU, else float32.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    on_gpu = torch.cuda.is_available()
    config = LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.feed_forward,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head,
        max_position_embeddings=shape.context,
        tie_word_embeddings=False,
    )
    torch.set_default_device("cuda" if on_gpu else "cpu")
    torch.set_default_dtype(torch.bfloat16 if on_gpu else torch.float32)
    network = LlamaForCausalLM(config).eval()
    ids = torch.randint(0, 1000, (1, prompt_tokens))
    common: dict[str, Any] = {
        "attention_mask": torch.ones_like(ids),
        "do_sample": True,
        "temperature": 0.7,
        "top_p": 0.97,
        "top_k": 40,
        "num_return_sequences": drafts,
        "pad_token_id": 0,
    }

    def timed(length: int) -> float:
        start = time.perf_counter()
        network.generate(ids, min_new_tokens=length, max_new_tokens=length, **common)
        if on_gpu:
            torch.cuda.synchronize()
        return time.perf_counter() - start

    timed(8)
    prefill, taken = (
        min(timed(1) for _ in range(repeats)),
        min(timed(tokens) for _ in range(repeats)),
    )
    made = drafts * tokens
    return Figure(
        peer="transformers",
        drafts=drafts,
        tokens=made,
        prompt_tokens=prompt_tokens,
        rate=made / taken,
        decode_rate=made / (taken - prefill),
        first_draft=taken,
        all_drafts=taken,
        prefill=prefill,
        step=(taken - prefill) / max(1, tokens - 1),
        sampling_share=0.0,
        peak_memory=peak_of(os.getpid()),
        gpu_memory=int(torch.cuda.max_memory_allocated()) if on_gpu else 0,
        note=f"{config.num_hidden_layers} layers, {'bfloat16' if on_gpu else 'float32'}",
    )


def batched_bench(
    program: Path, model: Path, drafts: list[int], tokens: int, prompt_tokens: int
) -> list[Figure]:
    """llama.cpp's llama-batched-bench with a shared prompt; it does not sample, so it bounds what
    an engine can reach.
    """
    cells = prompt_tokens + max(drafts) * (tokens + 8)
    command = [
        str(program),
        "-m",
        str(model),
        "-c",
        str(cells),
        "-npp",
        str(prompt_tokens),
        "-ntg",
        str(tokens),
    ]
    command += ["-npl", ",".join(map(str, drafts)), "-pps", "-ngl", "99", "-kvu"]
    return [
        _of_row(*row, tokens, prompt_tokens)
        for row in rows(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    ]


def rows(shown: str) -> list[tuple[int, float, float, float, float]]:
    """Batch size, seconds of the prompt, seconds of decoding, tokens a second of decoding, and
    seconds in all, of each row.
    """
    found = []
    for line in shown.splitlines():
        cells = (
            [float(cell) for cell in re.findall(r"[\d.]+", line)]
            if re.match(r"\|\s*\d", line)
            else []
        )
        if len(cells) == 10:
            _pp, _tg, batch, _kv, prompt, _prompt_rate, decoding, rate, whole, _whole_rate = cells
            found.append((int(batch), prompt, decoding, rate, whole))
    return found


def _of_row(
    batch: int,
    prompt: float,
    decoding: float,
    rate: float,
    whole: float,
    tokens: int,
    prompt_tokens: int,
) -> Figure:
    return Figure(
        peer="batched-bench",
        drafts=batch,
        tokens=batch * tokens,
        prompt_tokens=prompt_tokens,
        rate=batch * tokens / whole,
        decode_rate=rate,
        first_draft=whole,
        all_drafts=whole,
        prefill=prompt,
        step=decoding / tokens,
        sampling_share=0.0,
        peak_memory=0,
        note="no sampling",
    )


def without_broken_kernels(bindings: Any) -> str:
    """Give the peer the plain weights that kmint chooses on such machines: with AMX it may crash
    (see kmint_tui/smith/loading.py).
    """
    if b"AMX_INT8 = 1" not in bindings.llama_print_system_info():
        return ""
    defaults = bindings.llama_model_default_params

    def plain() -> Any:
        parameters = defaults()
        parameters.use_extra_bufts = False
        return parameters

    bindings.llama_model_default_params = plain
    return "AMX off"

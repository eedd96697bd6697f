"""How fast drafts are decoded: kmint's engine against its peers, on the same GGUF file, prompt and sampling.

    python bench/decode.py [--model FILE] [--drafts 1 8 16 32] [--peers llama transformers] [--out bench/results]

Without --model, a file of random weights in the shape of MiniCPM5-1B is made (Q8_0, every layer the same); such a model
writes noise and never ends a draft early, so every run makes exactly drafts x tokens tokens. Peers: `llama` is
llama-cpp-python's high-level `Llama`, called once a draft; `transformers` is `generate(num_return_sequences=N)` in
bfloat16 on the same shape, on a GPU only; `batched-bench` is llama.cpp's own, given with --batched-bench PROGRAM.
Each measurement has a process of its own. Figures hold for the machine named in the output.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

MINICPM5 = {
    "layers": 24,
    "hidden": 1536,
    "heads": 16,
    "kv_heads": 2,
    "head": 128,
    "feed_forward": 4608,
    "context": 8192,
    "spread": 0.02,
    "vocabulary": 130560,
    "same_layers": True,
}
SENTENCE = "tl.load(x_ptr + row * N + cols, mask=cols < N, other=0.0) "


@dataclass(frozen=True)
class Figure:
    """One measurement. Seconds; rates are tokens of all drafts a second, `decode_rate` without the prompt."""

    peer: str
    drafts: int
    tokens: int
    prompt_tokens: int
    rate: float
    decode_rate: float
    first_draft: float
    all_drafts: float
    prefill: float
    step: float
    sampling_share: float
    peak_memory: int
    cancel: float = 0.0
    note: str = ""


def ours(model: Path, drafts: int, tokens: int, prompt: str, repeats: int, way: Literal["turn", "pool", "device"] | None) -> Figure:
    """kmint's engine; the best of some runs, the prompt read anew in each. `way` is how tokens are chosen, None its own choice."""
    from kmint_tui.smith import DraftDone, Failed, Loaded, Options, RunDone, Smith

    runs: list[tuple[RunDone, float]] = []
    with tempfile.TemporaryDirectory() as folder, Smith(model, Options(log=Path(folder) / "log", sampling=way)) as smith:
        note = ""
        for event in smith.load():
            if isinstance(event, Loaded):
                note = "; ".join(f"{choice.name} {choice.value}" for choice in event.choices)
            if isinstance(event, Failed):
                raise SystemExit(event.reason)
        for repeat in range(repeats):
            first = 0.0
            for event in smith.draft(f"{repeat} {prompt}", drafts, max_tokens=tokens, seed=repeat):
                if isinstance(event, DraftDone):
                    first = first or event.seconds
                elif isinstance(event, Failed):
                    raise SystemExit(event.reason)
                elif isinstance(event, RunDone):
                    runs.append((event, first))
        peak = _peak_of(smith.pid)
        cancel = _cancel_seconds(smith, drafts, tokens, prompt)
    done, first = min(runs, key=lambda run: run[0].seconds)
    return Figure(
        peer="kmint",
        drafts=drafts,
        tokens=done.tokens,
        prompt_tokens=done.prompt_tokens,
        rate=done.tokens / done.seconds,
        decode_rate=done.tokens / (done.seconds - done.prefill_seconds),
        first_draft=first,
        all_drafts=done.seconds,
        prefill=done.prefill_seconds,
        step=done.step_seconds,
        sampling_share=done.sampling_share,
        peak_memory=peak,
        cancel=cancel,
        note=note,
    )


def _cancel_seconds(smith: Any, drafts: int, tokens: int, prompt: str) -> float:
    """The longest of five waits from `cancel` to the end of the run, at different moments."""
    from kmint_tui.smith import RunDone, Token

    waits = []
    for moment in range(1, 6):
        seen, asked = 0, 0.0
        for event in smith.draft(f"0 {prompt}", drafts, max_tokens=4 * tokens, seed=moment):
            seen += isinstance(event, Token)
            if seen == moment and not asked:
                asked = time.perf_counter()
                smith.cancel()
            if isinstance(event, RunDone) and asked:
                waits.append(time.perf_counter() - asked)
    return max(waits, default=0.0)


def high_level(model: Path, drafts: int, tokens: int, prompt: str, repeats: int) -> Figure:
    """llama-cpp-python's `Llama`, one draft after the other; the prompt is read by the first one only."""
    from llama_cpp import Llama, llama_cpp

    note = _without_broken_kernels(llama_cpp)
    llama = Llama(str(model), n_ctx=len(prompt) + tokens + 64, n_gpu_layers=-1, n_threads=_cores(), n_threads_batch=_cores(), verbose=False)
    runs: list[tuple[float, float, int, int]] = []
    for repeat in range(repeats):
        ids = llama.tokenize(f"{repeat} {prompt}".encode(), add_bos=False, special=True)
        start, first, made = time.perf_counter(), 0.0, 0
        for draft in range(drafts):
            answer: Any = llama.create_completion(ids, max_tokens=tokens, temperature=0.7, top_p=0.97, top_k=40, min_p=0.0, seed=draft)
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
        peak_memory=_own_peak(),
        note=note,
    )


def transformers(drafts: int, tokens: int, prompt_tokens: int, repeats: int) -> Figure:
    """transformers' `generate` with N return sequences, bfloat16, random weights in the same shape."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=MINICPM5["vocabulary"],
        hidden_size=MINICPM5["hidden"],
        intermediate_size=MINICPM5["feed_forward"],
        num_hidden_layers=MINICPM5["layers"],
        num_attention_heads=MINICPM5["heads"],
        num_key_value_heads=MINICPM5["kv_heads"],
        head_dim=MINICPM5["head"],
        max_position_embeddings=MINICPM5["context"],
        tie_word_embeddings=False,
    )
    torch.set_default_device("cuda")
    torch.set_default_dtype(torch.bfloat16)
    network = LlamaForCausalLM(config).eval()
    ids = torch.randint(0, 1000, (1, prompt_tokens))
    common: dict[str, Any] = {
        "do_sample": True,
        "temperature": 0.7,
        "top_p": 0.97,
        "top_k": 40,
        "num_return_sequences": drafts,
        "pad_token_id": 0,
    }
    times: dict[int, float] = {}
    for length in (1, tokens):
        samples = []
        for _ in range(repeats + 1):
            torch.cuda.synchronize()
            start = time.perf_counter()
            network.generate(ids, min_new_tokens=length, max_new_tokens=length, **common)
            torch.cuda.synchronize()
            samples.append(time.perf_counter() - start)
        times[length] = min(samples[1:])
    made, taken, prefill = drafts * tokens, times[tokens], times[1]
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
        peak_memory=int(torch.cuda.max_memory_allocated()),
        note="bfloat16",
    )


def batched_bench(program: Path, model: Path, drafts: list[int], tokens: int, prompt_tokens: int) -> list[Figure]:
    """llama.cpp's llama-batched-bench with a shared prompt; it does not sample."""
    cells = prompt_tokens + max(drafts) * (tokens + 8)
    command = [str(program), "-m", str(model), "-c", str(cells), "-npp", str(prompt_tokens), "-ntg", str(tokens)]
    command += ["-npl", ",".join(map(str, drafts)), "-pps", "-ngl", "99", "-kvu"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    figures = []
    for line in shown.splitlines():
        cells_of_row = re.findall(r"[\d.]+", line)
        if line.startswith("|") and len(cells_of_row) == 10:
            _pp, _tg, batch, _kv, t_pp, _s_pp, t_tg, s_tg, t_all, _s = map(float, cells_of_row)
            made = int(batch) * tokens
            figures.append(
                Figure(
                    peer="batched-bench",
                    drafts=int(batch),
                    tokens=made,
                    prompt_tokens=prompt_tokens,
                    rate=made / t_all,
                    decode_rate=s_tg,
                    first_draft=t_all,
                    all_drafts=t_all,
                    prefill=t_pp,
                    step=t_tg / tokens,
                    sampling_share=0.0,
                    peak_memory=0,
                    note="no sampling",
                )
            )
    return figures


def make_random(path: Path) -> Path:
    """A file of random weights in the shape of MiniCPM5-1B, Q8_0."""
    from tests import tiny_models

    return tiny_models.llama(path, tiny_models.Shape(**MINICPM5), quant="Q8_0", end=-9)  # type: ignore[arg-type]


def environment() -> dict[str, Any]:
    """The machine and the versions that the figures hold for."""
    versions = {name: _version(name) for name in ("llama-cpp-python", "numpy", "torch", "transformers")}
    info = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    model = next((line.partition(":")[2].strip() for line in info.splitlines() if line.startswith("model name")), platform.processor())
    return {
        "processor": model,
        "cores": _cores(),
        "load": os.getloadavg()[0],
        "gpu": _gpu(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "versions": versions,
    }


def main() -> None:
    """Measure, print a table, and write JSON when asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--drafts", type=int, nargs="+", default=[1, 8, 16, 32])
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--prompt-tokens", type=int, default=900)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peers", nargs="*", default=["llama", "transformers"], choices=["llama", "transformers"])
    parser.add_argument("--sampling", choices=["turn", "pool", "device"], help="how kmint's engine chooses tokens; its own choice without")
    parser.add_argument("--batched-bench", type=Path)
    parser.add_argument("--out", type=Path, help="folder for the JSON file")
    parser.add_argument("--label", default="decode")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    prompt = SENTENCE * max(1, round(arguments.prompt_tokens / 27))
    if arguments.only:
        peer, drafts = arguments.only.split(":")
        print(json.dumps(asdict(_one(peer, int(drafts), arguments, prompt))))
        return
    with tempfile.TemporaryDirectory() as folder:
        model = arguments.model or make_random(Path(folder) / "random-1b-q8_0.gguf")
        figures = [_apart("kmint", drafts, model) for drafts in arguments.drafts]
        if "llama" in arguments.peers:
            figures += [_apart("llama", drafts, model) for drafts in (min(arguments.drafts), *[n for n in arguments.drafts if n == 8])]
        if "transformers" in arguments.peers and _gpu():
            figures += [_apart("transformers", drafts, model) for drafts in arguments.drafts]
        if arguments.batched_bench:
            figures += batched_bench(arguments.batched_bench, model, arguments.drafts, arguments.tokens, figures[0].prompt_tokens)
        result = {
            "schema": "kmint.bench.decode/1",
            "model": str(arguments.model.name) if arguments.model else "random weights, MiniCPM5-1B shape, Q8_0",
            "bytes": model.stat().st_size,
            "environment": environment(),
            "figures": [asdict(figure) for figure in figures],
        }
    print(table(figures))
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / f"{arguments.label}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def table(figures: list[Figure]) -> str:
    """The figures as a Markdown table."""
    lines = [
        "| peer | drafts | tok/s decoding | tok/s in all | first s | all s | prefill s | ms a step | sampling | peak MiB | cancel ms |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in figures:
        sampling = f"{100 * one.sampling_share:.0f} %" if one.peer == "kmint" else "-"
        peak = f"{one.peak_memory / 2**20:.0f}" if one.peak_memory else "-"
        lines.append(
            f"| {one.peer} | {one.drafts} | {one.decode_rate:.0f} | {one.rate:.0f} | {one.first_draft:.2f} | {one.all_drafts:.2f} "
            f"| {one.prefill:.3f} | {1000 * one.step:.2f} | {sampling} | {peak} | {1000 * one.cancel:.1f} |"
        )
    return "\n".join(lines)


def _one(peer: str, drafts: int, arguments: argparse.Namespace, prompt: str) -> Figure:
    if peer == "kmint":
        return ours(arguments.model, drafts, arguments.tokens, prompt, arguments.repeats, arguments.sampling)
    if peer == "llama":
        return high_level(arguments.model, drafts, arguments.tokens, prompt, 1)
    return transformers(drafts, arguments.tokens, arguments.prompt_tokens, arguments.repeats)


def _apart(peer: str, drafts: int, model: Path) -> Figure:
    """One measurement in a process of its own, with this process's options."""
    options = [argument for argument in sys.argv[1:] if argument]
    command = [sys.executable, __file__, *options, "--model", str(model), "--only", f"{peer}:{drafts}"]
    shown = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return Figure(**json.loads(shown.splitlines()[-1]))


def _without_broken_kernels(bindings: Any) -> str:
    """Give the peer the plain weights that kmint chooses on such machines: with AMX it may crash (see kmint_tui/smith/loading.py)."""
    if b"AMX_INT8 = 1" not in bindings.llama_print_system_info():
        return ""
    defaults = bindings.llama_model_default_params

    def plain() -> Any:
        parameters = defaults()
        parameters.use_extra_bufts = False
        return parameters

    bindings.llama_model_default_params = plain
    return "AMX off"


def _peak_of(pid: int | None) -> int:
    status = Path(f"/proc/{pid}/status")
    found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text(encoding="utf-8")) if status.exists() else None
    return int(found.group(1)) * 1024 if found else 0


def _own_peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _cores() -> int:
    from kmint_tui.smith.machine import cores

    return cores().count


def _gpu() -> str:
    try:
        shown = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True)
    except OSError:
        return ""
    return shown.stdout.strip().splitlines()[0] if shown.returncode == 0 and shown.stdout.strip() else ""


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


if __name__ == "__main__":
    main()

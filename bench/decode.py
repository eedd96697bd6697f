"""How fast drafts are decoded: kmint's engine against its peers, on the same GGUF file, prompt and
sampling.

    python bench/decode.py [--model FILE] [--drafts 1 8 16 32] [--peers kmint llama transformers]
    [--json FILE]

Without --model, the script makes a file of random weights in the shape of MiniCPM5-1B (Q8_0, every
layer the same). Such a model writes noise and never ends a draft early, so every run makes exactly
drafts x tokens tokens.

Peers: `llama` is llama-cpp-python's high-level `Llama`, called once a draft. `transformers` is
`generate(num_return_sequences=N)` in bfloat16 on the same shape. `--batched-bench PROGRAM` adds
llama.cpp's own llama-batched-bench. `--tiny` takes a tiny shape for all, to see that the code runs.

Each measurement has a separate process. Its row is printed and the JSON file written as soon as it
is done. Figures hold for the machine named in the output.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.decode_figures import (  # noqa: E402
    HEAD,
    MINICPM5,
    TINY,
    Figure,
    environment,
    gpu,
    gpu_memory_used,
    make_random,
    peak_of,
)
from bench.decode_peers import batched_bench, high_level, transformers  # noqa: E402

SENTENCE = "tl.load(x_ptr + row * N + cols, mask=cols < N, other=0.0) "
TOKENS_A_SENTENCE = 27
LIMIT_SECONDS = 400


def ours(
    model: Path,
    drafts: int,
    tokens: int,
    prompt: str,
    repeats: int,
    way: Literal["turn", "pool", "device"] | None,
) -> Figure:
    """kmint's engine; the best of some runs, the prompt read anew in each. `way` is how tokens are
    chosen, None its own choice.
    """
    from kmint_tui.smith import DraftDone, Failed, ModelLoaded, Options, RunDone, Smith

    runs: list[tuple[RunDone, float]] = []
    before = gpu_memory_used()
    with (
        tempfile.TemporaryDirectory() as folder,
        Smith(model, Options(log=Path(folder) / "log", sampling=way)) as smith,
    ):
        note = ""
        for event in smith.load():
            if isinstance(event, ModelLoaded):
                note = "; ".join(
                    f"{choice.name} {choice.value} ({choice.reason})" for choice in event.choices
                )
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
        peak, on_gpu = peak_of(smith.pid), max(0, gpu_memory_used() - before)
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
        host=done.host_seconds,
        cancel=cancel,
        gpu_memory=on_gpu,
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


def main() -> None:
    """Measure, print the rows of a table, and write JSON on request."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path)
    parser.add_argument(
        "--tiny",
        action="store_true",
        help="a tiny shape for the random file and for transformers, also without a GPU",
    )
    parser.add_argument("--drafts", type=int, nargs="+", default=[1, 8, 16, 32])
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--prompt-tokens", type=int, default=900)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--peers",
        nargs="*",
        default=["kmint", "llama", "transformers"],
        choices=["kmint", "llama", "transformers"],
    )
    parser.add_argument(
        "--sampling",
        choices=["turn", "pool", "device"],
        help="how kmint's engine chooses tokens; its own choice without",
    )
    parser.add_argument("--batched-bench", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.only:
        peer, drafts = arguments.only.split(":")
        print(json.dumps(asdict(_one(peer, int(drafts), arguments))))
        return
    with tempfile.TemporaryDirectory() as folder:
        model = arguments.model or make_random(
            Path(folder) / "random-q8_0.gguf", TINY if arguments.tiny else MINICPM5
        )
        shape = "tiny" if arguments.tiny else "MiniCPM5-1B"
        result: dict[str, Any] = {
            "schema": "kmint.bench.decode/2",
            "model": arguments.model.name
            if arguments.model
            else f"random weights, {shape} shape, Q8_0",
            "bytes": model.stat().st_size,
            "environment": environment(),
            "figures": [],
        }
        print(HEAD, flush=True)
        for figure in _figures(arguments, model):
            print(figure.row(), flush=True)
            result["figures"].append(asdict(figure))
            if arguments.json:
                arguments.json.parent.mkdir(parents=True, exist_ok=True)
                arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _figures(arguments: argparse.Namespace, model: Path) -> Iterator[Figure]:
    """One measurement after the other, ours first. A peer that fails is reported and left out."""
    plan = [("kmint", drafts) for drafts in arguments.drafts]
    plan += [("llama", drafts) for drafts in arguments.drafts if drafts in (1, 8)]
    if arguments.batched_bench:
        plan.append(("batched-bench", max(arguments.drafts)))
    if gpu() or arguments.tiny:
        plan += [("transformers", drafts) for drafts in arguments.drafts]
    prompt_tokens = arguments.prompt_tokens
    for peer, drafts in plan:
        if peer != "batched-bench" and peer not in arguments.peers:
            continue
        try:
            if peer == "batched-bench":
                yield from batched_bench(
                    arguments.batched_bench,
                    model,
                    arguments.drafts,
                    arguments.tokens,
                    prompt_tokens,
                )
                continue
            figure = _apart(peer, drafts, model)
        except (OSError, subprocess.SubprocessError) as error:
            if peer == "kmint":
                raise
            print(f"{peer} with {drafts} drafts: {error}", file=sys.stderr, flush=True)
            continue
        prompt_tokens = figure.prompt_tokens
        yield figure


def _one(peer: str, drafts: int, arguments: argparse.Namespace) -> Figure:
    prompt = SENTENCE * max(1, round(arguments.prompt_tokens / TOKENS_A_SENTENCE))
    if peer == "kmint":
        return ours(
            arguments.model, drafts, arguments.tokens, prompt, arguments.repeats, arguments.sampling
        )
    if peer == "llama":
        return high_level(arguments.model, drafts, arguments.tokens, prompt, 1)
    shape = TINY if arguments.tiny else MINICPM5
    return transformers(
        shape, drafts, arguments.tokens, arguments.prompt_tokens, min(arguments.repeats, 2)
    )


def _apart(peer: str, drafts: int, model: Path) -> Figure:
    """One measurement in a separate process, with this process's options."""
    command = [
        sys.executable,
        __file__,
        *sys.argv[1:],
        "--model",
        str(model),
        "--only",
        f"{peer}:{drafts}",
    ]
    shown = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True, timeout=LIMIT_SECONDS
    ).stdout
    return Figure(**json.loads(shown.splitlines()[-1]))


if __name__ == "__main__":
    main()

"""Times of eight drafts by the embedded smith: real prompts over the catalogue, first runs and
resident prompts alike.

    python bench/embedded_smith.py [--ops 12] [--drafts 8] [--json FILE]

Each run is a prompt that the engine has not seen, so the whole prompt is read; the drafts end where
the smith ends them. The peer is llama-cpp-python's `Llama` with the same file, prompts and
sampling, one draft after the other. Loading is apart.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.decode_figures import cores, environment  # noqa: E402
from bench.decode_peers import without_broken_kernels  # noqa: E402
from kmint_tui.graph.operations import program_of  # noqa: E402
from kmint_tui.smith import (  # noqa: E402
    DraftDone,
    Failed,
    ModelLoaded,
    Options,
    Prompt,
    RunDone,
    Sampling,
    Smith,
)
from kmint_tui.smith.prompts import graph_prompt  # noqa: E402
from referee.ops import catalogue  # noqa: E402

MAX_TOKENS = 768


def main() -> None:
    """Measure, print a line for each run and the medians, and write JSON on request."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model", type=Path, default=ROOT / "kmint_tui/smith/embedded/kmint-embedded-Q8_0.gguf"
    )
    parser.add_argument(
        "--ops", type=int, default=12, help="how many operations, spread over the catalogue"
    )
    parser.add_argument("--drafts", type=int, default=8)
    parser.add_argument(
        "--peer-ops", type=int, default=3, help="how many of them the peer is asked for as well"
    )
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    known = catalogue()
    chosen = [known[index * len(known) // arguments.ops] for index in range(arguments.ops)]
    programs = {op.name: program_of(op, op.name) for op in chosen}
    prompts = {name: graph_prompt(made.stages[made.main]) for name, made in programs.items()}
    runs = list(ours(arguments.model, prompts, arguments.drafts))
    peer = list(
        high_level(
            arguments.model, dict(list(prompts.items())[: arguments.peer_ops]), arguments.drafts
        )
    )
    result: dict[str, Any] = {
        "schema": "kmint.bench.embedded_smith/1",
        "environment": environment(),
        "drafts": arguments.drafts,
        "median": {
            key: statistics.median(run[key] for run in runs)
            for key in ("seconds", "first_draft", "tokens_a_draft", "rate")
        },
        "slowest": max(run["seconds"] for run in runs),
        "peer_median": {
            key: statistics.median(run[key] for run in peer) for key in ("seconds", "rate")
        }
        if peer
        else None,
        "runs": runs,
        "peer_runs": peer,
    }
    print(json.dumps({key: result[key] for key in ("median", "slowest", "peer_median")}))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def ours(model: Path, prompts: dict[str, Prompt], drafts: int) -> Iterator[dict[str, Any]]:
    """kmint's engine: one run an operation."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Smith(model, Options(log=Path(folder) / "log")) as smith,
    ):
        for event in smith.load():
            if isinstance(event, Failed):
                raise SystemExit(event.reason)
            if isinstance(event, ModelLoaded):
                print(f"loaded in {event.seconds:.2f} s", flush=True)
        for seed, (name, prompt) in enumerate(prompts.items()):
            ended: list[DraftDone] = []
            for event in smith.draft(prompt, drafts, seed=seed, max_tokens=MAX_TOKENS):
                if isinstance(event, Failed):
                    raise SystemExit(event.reason)
                if isinstance(event, DraftDone):
                    ended.append(event)
                if isinstance(event, RunDone):
                    run = {
                        "op": name,
                        "seconds": round(event.seconds, 3),
                        "first_draft": round(ended[0].seconds, 3),
                        "tokens_a_draft": round(event.tokens / drafts, 1),
                        "prompt_tokens": event.prompt_tokens,
                        "rate": round(event.tokens / event.seconds, 1),
                        "step_ms": round(1000 * event.step_seconds, 3),
                        "host_ms": round(1000 * event.host_seconds, 3),
                        "sampling_share": round(event.sampling_share, 4),
                        "threads": event.threads,
                        "ended": sum(draft.finish == "stop" for draft in ended),
                    }
                    print(json.dumps(run), flush=True)
                    yield run


def high_level(model: Path, prompts: dict[str, Prompt], drafts: int) -> Iterator[dict[str, Any]]:
    """llama-cpp-python's `Llama`, chat template and stop string included."""
    from llama_cpp import Llama, llama_cpp

    without_broken_kernels(llama_cpp)
    llama = Llama(str(model), n_ctx=2048, n_threads=cores(), n_threads_batch=cores(), verbose=False)
    usual = Sampling()
    for name, prompt in prompts.items():
        messages: Any = [
            {"role": "system", "content": prompt.system},
            {"role": "user", "content": prompt.user},
        ]
        start, made = time.perf_counter(), 0
        for draft in range(drafts):
            answer: Any = llama.create_chat_completion(
                messages,
                max_tokens=MAX_TOKENS,
                temperature=usual.temperature,
                top_p=usual.top_p,
                top_k=usual.top_k,
                min_p=usual.min_p,
                seed=draft,
            )
            made += answer["usage"]["completion_tokens"]
        taken = time.perf_counter() - start
        run = {
            "op": name,
            "seconds": round(taken, 3),
            "tokens_a_draft": round(made / drafts, 1),
            "rate": round(made / taken, 1),
        }
        print("Llama", json.dumps(run), flush=True)
        yield run


if __name__ == "__main__":
    main()

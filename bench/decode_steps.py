"""Where a step of kmint's own decoding loop goes: the time of each of its parts, on the real engine in this process.

    python bench/decode_steps.py [--model FILE] [--drafts 1 8 32] [--json FILE]

Parts: handing the work to llama.cpp (`decode`), reading texts while a GPU works (`_read`), waiting for the results
(`synchronize`), choosing tokens (`pick`). Medians in milliseconds over the steps of the second of two runs of 200 tokens a
draft. Compare with `decode_limits.py`, which decodes with nothing around llama.cpp. `--tiny`: to see that the code runs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.decode import SENTENCE  # noqa: E402
from bench.decode_figures import MINICPM5, TINY, environment, make_random  # noqa: E402
from kmint_tui.smith import loading  # noqa: E402
from kmint_tui.smith.native import Batch, Context  # noqa: E402
from kmint_tui.smith.run import Job, Run  # noqa: E402
from kmint_tui.smith.sampler import Picker  # noqa: E402
from kmint_tui.smith.sampling import Sampling  # noqa: E402

PARTS = ((Batch, "fill"), (Context, "decode"), (Run, "_read"), (Context, "synchronize"), (Picker, "pick"), (Run, "_accept"), (Run, "_step"))


def main() -> None:
    """Measure and print one line a number of drafts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--drafts", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    spent: dict[str, list[float]] = {}
    for owner, name in PARTS:
        _watch(owner, name, spent)
    result: dict[str, Any] = {"schema": "kmint.bench.decode_steps/1", "environment": environment(), "cases": []}
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.model or make_random(Path(folder) / "random-q8_0.gguf", TINY if arguments.tiny else MINICPM5)
        ready = loading.load(loading.Order(path, lanes=1), lambda event: None, lambda line: None)
        prompt = tuple(ready.model.tokenize(SENTENCE * 33))
        for drafts in arguments.drafts:
            job = Job(prompt=prompt, drafts=drafts, sampling=Sampling(), seed=1, max_tokens=arguments.tokens, inside=False)
            for _ in range(2):
                spent.clear()
                done = ready.decoder.run(job, lambda events: None, lambda: False)
            case = {
                "drafts": drafts,
                "tokens_a_second": round(done.tokens / (done.seconds - done.prefill_seconds)),
                "median_ms": {name: round(1000 * statistics.median(taken), 3) for name, taken in spent.items()},
            }
            print(json.dumps(case), flush=True)
            result["cases"].append(case)
        ready.decoder.close()
        ready.model.close()
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _watch(owner: type, name: str, spent: dict[str, list[float]]) -> None:
    real = getattr(owner, name)

    def timed(*arguments: Any, **named: Any) -> Any:
        began = time.perf_counter()
        try:
            return real(*arguments, **named)
        finally:
            spent.setdefault(name, []).append(time.perf_counter() - began)

    setattr(owner, name, timed)


if __name__ == "__main__":
    main()

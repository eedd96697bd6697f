"""The memory estimate against llama.cpp's report for random models of many shapes, and the
referee's memory on a CPU.

    python bench/memory.py [--models 60] [--seed 0] [--json FILE]

The script makes every model with random weights, loads it with the smith's engine, and gives it one
prompt. The error is that of llama.cpp's buffers together (weights, cache, recurrent state, logits,
compute). The referee's memory is the largest sum of its processes' proportional set sizes while two
kernels are judged at once. Exit code 1 when an error reaches 10 %, or the referee takes more than
the estimate allows for.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import sys
import tempfile
import threading
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kmint_tui.doctor.kernel import OP, SOURCE
from kmint_tui.models import fit, usage
from kmint_tui.models.check import check
from kmint_tui.models.fit import reserve_on_cpu
from kmint_tui.smith import Options, Smith
from kmint_tui.smith.events import RunDone, Token
from referee.judge import Referee
from tests import tiny_models
from tests.tiny_models import Shape

MOST_ERROR = 0.10
SAMPLE_SECONDS = 0.05


def draw(chance: random.Random) -> tuple[str, Shape, str, int, int]:
    """Architecture, shape, file type, drafts and tokens a draft."""
    architecture = chance.choice(("llama", "llama", "qwen35"))
    kv_heads = chance.choice((1, 2, 4, 8))
    shape = Shape(
        layers=4 * chance.randint(1, 4),
        hidden=32 * chance.randint(4, 32),
        heads=kv_heads * chance.randint(1, 4),
        kv_heads=kv_heads,
        head=chance.choice((32, 64, 96, 128)),
        feed_forward=32 * chance.randint(8, 96),
        vocabulary=chance.choice((600, 8000, 32000, 64000)),
        context=16384,
        spread=0.03,
        same_layers=architecture == "llama",
    )
    quant = chance.choice(("F16", "Q8_0")) if architecture == "llama" else "F16"
    return (
        architecture,
        shape,
        quant,
        chance.choice((1, 2, 4, 8, 16)),
        chance.choice((16, 128, 512, 1024)),
    )


def compare(
    architecture: str, shape: Shape, quant: str, drafts: int, tokens: int, folder: Path
) -> tuple[float, int]:
    """The error of the estimate as a part of the real size, and the real size in bytes."""
    path, log = folder / "model.gguf", folder / "log"
    if architecture == "llama":
        tiny_models.llama(path, shape, quant=quant)
    else:
        tiny_models.qwen35(path, shape)
    done, last = None, None
    with Smith(path, Options(log=log, threads=1)) as smith:
        for event in smith.draft("def kernel(x):", drafts, max_tokens=tokens):
            done, last = event if isinstance(event, RunDone) else done, event
            if isinstance(event, Token):
                smith.cancel()
    real = usage.read(log)
    if done is None or real is None:
        raise RuntimeError(f"no figures for {architecture} {shape}: {last}")
    expected = fit.estimate(
        check(path), drafts=drafts, max_tokens=tokens, prompt_tokens=done.prompt_tokens
    )
    return real.error(expected), real.buffers


def referee_bytes() -> int:
    """The most that the referee's processes hold while it judges two kernels at once by
    interpretation.
    """
    most, over = 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not over.wait(SAMPLE_SECONDS):
            most = max(most, sum(_proportional(pid) for pid in _descendants(os.getpid())))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with Referee(mode="interpret") as judge:
            judges = [
                threading.Thread(target=judge.judge, args=(SOURCE, OP), kwargs={"level": "correct"})
                for _ in range(2)
            ]
            for thread in judges:
                thread.start()
            for thread in judges:
                thread.join()
    finally:
        over.set()
        watcher.join()
    return most


def _descendants(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(word) for word in task.read_text().split()]
        except OSError:
            continue
        for child in children:
            found += [child, *_descendants(child)]
    return found


def _proportional(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:")), 0)


def main() -> int:
    parser = argparse.ArgumentParser(description="The memory estimate against the real use.")
    parser.add_argument("--models", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    chance, rows = random.Random(options.seed), []
    with tempfile.TemporaryDirectory(
        dir="/dev/shm" if Path("/dev/shm").is_dir() else None
    ) as folder:
        for _ in range(options.models):
            architecture, shape, quant, drafts, tokens = draw(chance)
            error, size = compare(architecture, shape, quant, drafts, tokens, Path(folder))
            row = {
                "architecture": architecture,
                "quant": quant,
                "drafts": drafts,
                "tokens": tokens,
                "bytes": size,
                "error": error,
            }
            rows.append({**row, "shape": asdict(shape)})
    errors = sorted(abs(float(str(row["error"]))) for row in rows)
    sizes = sorted(int(str(row["bytes"])) for row in rows)
    taken = referee_bytes()
    print(
        f"{len(rows)} models of {fit.readable(sizes[0])} to {fit.readable(sizes[-1])} in llama.cpp's buffers"
    )
    print(
        f"error of the estimate: median {100 * statistics.median(errors):.1f} %, largest {100 * errors[-1]:.1f} %"
    )
    print(
        f"the referee took {fit.readable(taken)} at the most, {fit.readable(reserve_on_cpu().total)} are kept for it"
    )
    if options.json:
        names = ("llama-cpp-python", "torch", "triton")
        record = {
            "schema": "kmint.bench.memory/1",
            "python": platform.python_version(),
            "machine": platform.machine(),
            "cores": len(os.sched_getaffinity(0)),
            **{name: metadata.version(name) for name in names},
            "seed": options.seed,
            "median_error": statistics.median(errors),
            "largest_error": errors[-1],
            "referee_bytes": taken,
            "reserve_bytes": reserve_on_cpu().total,
            "models": rows,
        }
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    return 0 if errors[-1] < MOST_ERROR and taken <= reserve_on_cpu().total else 1


if __name__ == "__main__":
    sys.exit(main())

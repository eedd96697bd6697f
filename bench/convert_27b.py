"""`kmint convert` on the layout of Qwen3.6-27B with a rank-128 adapter: peak memory, time and disk.

    python -m bench.convert_27b [--quant Q8_0] [--layers 4 8 [64]] [--json FILE]

The base is sparse, with every name, shape and shard of the real layout (54 GB by the files' sizes).
A DeltaNet layer and a full-attention layer hold real bytes; all other reads give zeros from holes.
`--plan` runs on the whole layout. Then models with fewer layers are converted completely, with
digests and default verification. Embedding and head, the largest tensors, are always whole.

The largest run's time, by bytes written, gives the time of all 64 layers. All 64 can be converted
too: 29 GB of disk for Q8_0. Memory is anonymous memory of the process tree (`process_memory.py`),
and with mapped files.

Limits: holes read faster than a disk, so the time is that of a base in the page cache; zeros
compute as fast as numbers.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

from bench.fake_checkpoint import QWEN36_27B_TEXT, write_qwen36
from bench.process_memory import Measured, measure, processor

MEMORY_LIMIT_MB = 4 * 2**30 / 1e6
_PACKAGES = ("numpy", "gguf", "llama-cpp-python")
SUBFOLDER = "rl_adapter_v2"
LAYERS = QWEN36_27B_TEXT["num_hidden_layers"]


def main() -> int:
    """Print the figures; status 1 when a run fails or takes more memory than the limit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quant", default="Q8_0")
    parser.add_argument(
        "--layers", type=int, nargs="+", default=(4, 8), metavar="N", help="sizes of the runs"
    )
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    plan = _with_layout(LAYERS, given.quant, "--plan", "--json")
    plan_document = json.loads(plan.output)
    runs = {layers: _with_layout(layers, given.quant) for layers in given.layers}
    document = _document(given.quant, plan, plan_document, runs)
    print(json.dumps(document, indent=1))
    if given.json:
        given.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0 if document["holds"] else 1


def _with_layout(layers: int, quant: str, *options: str) -> Measured:
    """One `kmint convert` on a fresh layout of `layers` layers; raises SystemExit with what it said
    when it fails.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_qwen36(
            folder / "base",
            folder / "adapter" / SUBFOLDER,
            shards=max(2, 15 * layers // LAYERS),
            sizes={"num_hidden_layers": layers},
        )
        command = [
            sys.executable,
            "-m",
            "kmint_tui",
            "convert",
            "--base",
            str(folder / "base"),
            "--adapter",
            str(folder / "adapter"),
        ]
        command += [
            "--subfolder",
            SUBFOLDER,
            "--quant",
            quant,
            "--out",
            str(folder / "out.gguf"),
            *options,
        ]
        measured = measure(command, folder / "log")
        if measured.status != 0:
            raise SystemExit(
                f"status {measured.status} with {layers} layers:\n{measured.output[-2000:]}"
            )
        return measured


def _document(
    quant: str, plan: Measured, planned: dict[str, Any], runs: dict[int, Measured]
) -> dict[str, Any]:
    most = max(runs)
    share = (
        json.loads(_with_layout(most, quant, "--plan", "--json").output)["disk"] / planned["disk"]
    )
    peak = max(run.anonymous_mb for run in runs.values())
    resident = max(run.resident_mb for run in runs.values())
    return {
        "schema": "kmint.bench.convert_27b/1",
        "layout": f"Qwen3.6-27B, {LAYERS} layers, adapter rank 128 in {SUBFOLDER}, {quant}",
        "plan": {
            **plan.figures(),
            **{key: planned[key] for key in ("tensors", "parameters", "disk", "peak_memory")},
            "changed": len(planned["touched"]),
        },
        "runs": {str(layers): run.figures() for layers, run in runs.items()},
        "extrapolated": {
            "from_layers": most,
            "seconds": round(runs[most].seconds / share, 1),
            "disk_bytes": planned["disk"],
        },
        "peak_anonymous_mb": round(peak, 1),
        "peak_resident_mb": round(resident, 1),
        "limit_mb": round(MEMORY_LIMIT_MB, 1),
        "holds": peak <= MEMORY_LIMIT_MB and resident <= MEMORY_LIMIT_MB,
        "machine": {
            "processor": processor(),
            "processors": len(os.sched_getaffinity(0)),
            "system": platform.system(),
        },
        "versions": {
            "python": platform.python_version(),
            **{name: metadata.version(name) for name in _PACKAGES},
        },
    }


if __name__ == "__main__":
    sys.exit(main())

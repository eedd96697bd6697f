"""What a 64 x 64 call of a saved function costs the host, for an operation of each signature kind.

    python bench/saved_calls.py [--json FILE]

It measures kmint's own parts of a saved file on the CPU: the checks, with and without their quick
form, and PyTorch's answer. It also measures the way through the registered operator. There an
allocation replaces the kernel and its launch, so that the figures say nothing about a GPU. Each
figure is the least of many timings, in microseconds.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from kmint_tui.save.host_cost import CALLS, REPEATS, host_cost  # noqa: E402
from kmint_tui.save.support import support  # noqa: E402
from kmint_tui.save.wrapper import constants, imports, wrapper  # noqa: E402
from referee.ops import cells, get  # noqa: E402

SCHEMA = "kmint.bench.saved_calls/1"
OPERATIONS = (
    "softmax", "entropy", "rmsnorm", "layernorm", "add_rmsnorm", "add_layernorm", "swiglu",
    "bias_gelu", "softmax_scale", "dequant_int8", "cross_entropy", "rope", "kl_div",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """Microseconds of one operation; `operator_us` is the way through the registered operator."""

    op: str
    checks_us: float
    one_by_one_us: float
    reference_us: float
    operator_us: float


def measure(name: str) -> Row:
    """One operation, with everything that its cases judge."""
    op = get(name)
    passed = [{"name": cell.name, "status": "pass"} for cell in cells(op, profile="cpu")]
    able = support(op, [{"cells": passed}])
    cost = host_cost(op, name, able)
    text = [
        imports(),
        "from torch.library import triton_op, wrap_triton",
        constants(able),
        wrapper(op, name, "kmint_bench", able, "triton_op"),
    ]
    module: dict[str, Any] = {"__name__": f"bench_{name}"}
    exec(compile("\n".join(text), f"<{name}>", "exec", dont_inherit=True), module)
    module["reference"] = lambda first, *_: torch.empty_like(first)
    given = tuple(eval(one, module) for one in cost.inputs)
    operator = getattr(torch.ops.kmint_bench, name)
    least = float("inf")
    for _ in range(REPEATS):
        begun = time.perf_counter_ns()
        for _ in range(CALLS):
            operator(*given)
        least = min(least, (time.perf_counter_ns() - begun) / CALLS / 1e3)
    return Row(name, cost.checks_us, cost.one_by_one_us, cost.reference_us, round(least, 2))


def main() -> int:
    """Print the table; with --json also write it, with the machine and the versions."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = [measure(name) for name in OPERATIONS]
    names = list(asdict(rows[0]))
    print(" ".join(f"{name:>14}" for name in names))
    for row in rows:
        print(" ".join(f"{value:>14}" for value in asdict(row).values()))
    if given.json:
        document = {
            "schema": SCHEMA,
            "cores": len(os.sched_getaffinity(0)),
            "torch": torch.__version__,
            "rows": [asdict(row) for row in rows],
        }
        given.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What a small call of a saved function costs the host, by its parts and over Triton's bare launch.

    python bench/saved_calls.py [--json FILE]

The first table has kmint's own parts on the CPU, for an operation of each signature kind at 64 x 64.
They are the checks with and without their quick form, PyTorch's answer, the registered operator and
the direct launch. There an allocation replaces the kernel, and is subtracted from the direct launch.

The second table has whole saved files at small shapes. On a GPU it compares the function with Triton's
bare launch, the operator and PyTorch. Without one a launch that does nothing replaces Triton's, and only
kmint's share can be read. Each figure is the least of many timings, in microseconds of the host.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
import triton  # noqa: E402
from torch import Tensor  # noqa: E402

from bench.claims.using import MOST_OVER_US  # noqa: E402
from bench.saved_block import load  # noqa: E402
from kmint_tui.save.choosing import Choice, Row  # noqa: E402
from kmint_tui.save.host_code import check  # noqa: E402
from kmint_tui.save.host_cost import CALLS, REPEATS, host_cost  # noqa: E402
from kmint_tui.save.import_lines import in_order  # noqa: E402
from kmint_tui.save.judged_part import JudgedPart, build  # noqa: E402
from kmint_tui.save.support import Support, support  # noqa: E402
from kmint_tui.save.wrapper import constants, imports, wrapper  # noqa: E402
from referee.ops import cells, get  # noqa: E402

SCHEMA = "kmint.bench.saved_calls/2"
GOLD = ROOT / "referee" / "selftest" / "gold"
OPERATIONS = (
    "softmax", "entropy", "rmsnorm", "layernorm", "add_rmsnorm", "add_layernorm", "swiglu",
    "bias_gelu", "softmax_scale", "dequant_int8", "cross_entropy", "rope", "kl_div",
)  # fmt: skip
FILES = {
    "softmax": ("softmax", ("online_softmax",)),
    "softmax by shape": ("softmax", ("online_softmax", "rows_softmax")),
    "rmsnorm": ("rmsnorm", ("row_rmsnorm",)),
}
"""Operation and kernels of each saved file; one of several kernels chooses by shape."""
SHAPES = ((64, 1024), (1, 4096), (4, 16, 1024))
DTYPE = torch.bfloat16
ON_GPU = torch.cuda.is_available()


@dataclass(frozen=True)
class Part:
    """Microseconds of one operation's parts on the CPU.

    `operator_us` is the way through the registered operator, `direct_us` the function around a
    direct launch.
    """

    op: str
    checks_us: float
    one_by_one_us: float
    reference_us: float
    operator_us: float
    direct_us: float


@dataclass(frozen=True, kw_only=True)
class Call:
    """Microseconds of calls of one saved file at one shape.

    `bare_us` is `kernel[grid](...)` with prepared arguments, `allocated_us` the same with the
    allocation of the output. `saved_us` is the function under no_grad, `saved_grad_us` with gradients
    enabled, `operator_us` the function where it calls its operator. `over_us` is the more expensive
    of the first two over `allocated_us`.
    """

    file: str
    shape: str
    bare_us: float
    allocated_us: float
    saved_us: float
    saved_grad_us: float
    over_us: float
    operator_us: float | None = None
    torch_us: float | None = None
    reference_us: float | None = None


class Nothing:
    """A kernel whose launch does nothing."""

    def __getitem__(self, grid: object) -> Callable[..., None]:
        return lambda *_, **__: None


class Recorded:
    """A kernel that notes its launches."""

    def __init__(self, kernel: Any, launches: list[Callable[[], object]]) -> None:
        self.kernel, self.launches = kernel, launches

    def __getitem__(self, grid: Any) -> Callable[..., object]:
        def launch(*given: Any, **named: Any) -> object:
            self.launches.append(lambda: self.kernel[grid](*given, **named))
            return self.launches[-1]()

        return launch


def taking_cpu_tensors(text: str) -> str:
    """The text of a saved file, whose direct launch takes tensors of the CPU for those of a GPU."""
    edits = {
        r"or not (\w+)\.is_cuda\n": r"or not \1.is_cpu\n",
        r"\.type == \"cpu\" and not traced": '.type == "cuda" and not traced',
        r"\.get_device\(\) != torch\.cuda\.current_device\(\)": ".get_device() != -1",
    }
    for old, new in edits.items():
        text, count = re.subn(old, new, text)
        assert count == 1, "the saved function has another form"
    return text


def able(name: str) -> Support:
    """Everything that the cases of an operation judge."""
    passed = [{"name": cell.name, "status": "pass"} for cell in cells(get(name), profile="cpu")]
    return support(get(name), [{"cells": passed}])


def least(calls: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """The least microseconds of each call; the calls take turns."""
    found = dict.fromkeys(calls, float("inf"))
    for _ in range(REPEATS):
        for name, call in calls.items():
            if ON_GPU:
                # A full queue of launches would make the host wait for the device.
                torch.cuda.synchronize()
            begun = time.perf_counter_ns()
            for _ in range(CALLS):
                call()
            found[name] = min(found[name], (time.perf_counter_ns() - begun) / CALLS / 1e3)
    return found


def part(name: str) -> Part:
    """The parts of one operation."""
    op, limits = get(name), able(name)
    cost = host_cost(op, name, limits)
    text = [
        *imports("triton_op"),
        constants(limits),
        taking_cpu_tensors(wrapper(op, name, "kmint_bench", limits, "triton_op")),
    ]
    module: dict[str, Any] = {"__name__": f"bench_{name}"}
    exec(compile("\n".join(text), f"<{name}>", "exec", dont_inherit=True), module)
    module["reference"] = module["_run"] = lambda first, *_: torch.empty_like(first)
    given = tuple(eval(one, module) for one in cost.inputs)
    operator, public = getattr(torch.ops.kmint_bench, name), module[name]
    took = least(
        {
            "operator": lambda: operator(*given),
            "direct": lambda: public(*given),
            "allocation": lambda: module["_run"](*given),
        }
    )
    assert len(module["_KEPT"]) == 1, "the call was not a direct launch"
    return Part(
        name,
        cost.checks_us,
        cost.one_by_one_us,
        cost.reference_us,
        round(took["operator"], 2),
        round(took["direct"] - took["allocation"], 2),
    )


def saved_file(file: str, folder: Path) -> ModuleType:
    """A saved file of gold kernels as a module."""
    name, kernels = FILES[file]
    limits = able(name)
    codes = [check((GOLD / f"{one}.py.txt").read_text(encoding="utf-8")) for one in kernels]
    ends = [f"_{number}" for number, _ in enumerate(codes, 1)] if len(codes) > 1 else [""]
    parts = [
        build(code, public=name, wrap=True, suffix=end)
        for code, end in zip(codes, ends, strict=True)
    ]
    choice = _choice(parts) if len(parts) > 1 else None
    lines = imports("triton_op", chooses=choice is not None)
    text = "\n".join(
        [
            *in_order([*lines, *(line for one in parts for line in one.imports)]),
            constants(limits),
            *(one.text for one in parts),
            wrapper(get(name), name, f"kmint_bench_{len(parts)}", limits, "triton_op", choice),
        ]
    )
    path = folder / f"{file.replace(' ', '_')}.py"
    path.write_text(text if ON_GPU else taking_cpu_tensors(text), encoding="utf-8")
    return load(path)


def _choice(parts: list[JudgedPart]) -> Choice:
    """A table whose rows are the measured shapes, each with another kernel."""
    rows = tuple(
        Row(
            rows=rows, columns=columns, dtype="bfloat16", entry=one.entry, draft="", ratio=1.0,
            low=None, high=None, bar="", microseconds=0.0, decision="", where="",
        )
        for one, (rows, columns) in zip(parts, ((64, 1024), (1, 4096)), strict=True)
    )  # fmt: skip
    return Choice(rows=rows, outside="nearest")


def call(file: str, module: ModuleType, shape: tuple[int, ...]) -> Call:
    """The calls of one saved file at one shape."""
    name = FILES[file][0]
    x = torch.randn(shape, dtype=DTYPE, device="cuda" if ON_GPU else "cpu")
    given = (x,) if name == "softmax" else (x, torch.ones_like(x[(0,) * (x.dim() - 1)]))
    public: Callable[..., Tensor] = getattr(module, name)
    launches = _launches(module, lambda: public(*given))
    reference = module.reference

    def bare() -> None:
        for launch in launches:
            launch()

    def allocated() -> Tensor:
        out = torch.empty_like(x)
        bare()
        return out

    calls: dict[str, Callable[[], object]] = {
        "bare": bare,
        "allocated": allocated,
        "saved_grad": lambda: public(*given),
    }
    if ON_GPU:
        own = {
            "softmax": lambda: torch.softmax(x, -1),
            "rmsnorm": lambda: F.rms_norm(x, shape[-1:], given[-1], 1e-6),
        }
        calls |= {
            "torch": own[name],
            "reference": lambda: reference(*given),
        }
    took = least(calls)
    with torch.no_grad():
        took |= least({"saved": lambda: public(*given)})
    if ON_GPU:
        with patch.object(module, "_key", lambda *_: None):
            took |= least({"operator": lambda: public(*given)})
    over = max(took["saved"], took["saved_grad"]) - took["allocated"]
    values = {f"{one}_us": round(value, 2) for one, value in took.items()}
    size = "x".join(map(str, shape))
    return Call(file=file, shape=size, over_us=round(over, 2), **values)


def _launches(module: ModuleType, once: Callable[[], object]) -> list[Callable[[], object]]:
    """The launches of one direct call, each to be repeated with the same arguments."""
    kernels = {
        name: kernel if ON_GPU else Nothing()
        for name, kernel in vars(module).items()
        if isinstance(kernel, (triton.JITFunction, Nothing))
    }
    found: list[Callable[[], object]] = []
    vars(module).update(kernels)
    # The first call compiles.
    once()
    vars(module).update({name: Recorded(kernel, found) for name, kernel in kernels.items()})
    once()
    vars(module).update(kernels)
    assert found and module._KEPT, "the call was not a direct launch"
    return found


def table(rows: list[Any]) -> None:
    """Print dataclasses as a table."""
    names = list(asdict(rows[0]))
    print(" ".join(f"{name:>16}" for name in names))
    for row in rows:
        values = ("" if value is None else value for value in asdict(row).values())
        print(" ".join(f"{value:>16}" for value in values))


def raw(parts: list[Part], calls: list[Call]) -> dict[str, Any]:
    """The document of `--json`."""
    return {
        "schema": SCHEMA,
        "cores": len(os.sched_getaffinity(0)),
        "device": torch.cuda.get_device_name() if ON_GPU else "cpu",
        "python": sys.version.partition(" ")[0],
        "torch": torch.__version__,
        "triton": triton.__version__,
        "rows": [asdict(row) for row in parts],
        "calls": [asdict(row) for row in calls],
        "most_over_us": MOST_OVER_US,
    }


def main() -> int:
    """Print both tables; with --json also write them, with the machine and the versions."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    parts = [part(name) for name in OPERATIONS]
    table(parts)
    with tempfile.TemporaryDirectory() as folder:
        calls = [
            call(file, module, shape)
            for file in FILES
            for module in [saved_file(file, Path(folder))]
            for shape in SHAPES
        ]
    table(calls)
    worst = max(one.over_us for one in calls)
    over = "Triton's launch" if ON_GPU else "a launch that does nothing"
    print(
        f"over {over} with its allocation: {worst} us at most; the limit on a GPU is {MOST_OVER_US}"
    )
    if given.json:
        document = raw(parts, calls)
        given.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

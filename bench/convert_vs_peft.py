"""`kmint convert` against PEFT's merge_and_unload, save_pretrained and llama.cpp's own converter:
time, memory, every tensor.

    python -m bench.convert_vs_peft --converter DIR/convert_hf_to_gguf.py [--runs 1] [--json FILE]

Both ways make an F16 GGUF of a random model of MiniCPM5-1B's shape. A rank-64, alpha-128 adapter
changes every projection. Each command counts whole: start of the interpreter, merge, file on disk.
Ours also makes its digests and its default verification, which the other way does not have.

--converter is the script in the source distribution of llama-cpp-python (vendor/llama.cpp); it
needs transformers, peft and sentencepiece in this Python. It knows pre-tokenizers by a digest of
real vocabularies only, so the script gives it the name of this one.

Where the tensors differ, torch computes the merge twice more. One merge is in float32, rounded once
to F16. The other is that of PEFT and the converter: rounded to bfloat16, which PEFT saves, and then
to F16. Memory is anonymous memory of the process tree (`process_memory.py`). The run needs 12 GB of
disk for a while and, for PEFT, 4 GB of memory.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import safe_open

from bench.fake_checkpoint import MINICPM5_1B, llama_projections, write_minicpm5
from bench.process_memory import Measured, measure, processor
from convert.gguf_file import GgufFile, GgufTensor

MEMORY_TARGET, TIME_TARGET = 0.25, 0.6
RANK, ALPHA = 64, 128
_PACKAGES = ("numpy", "torch", "transformers", "peft", "gguf", "llama-cpp-python", "safetensors")

_PEFT = """
import shutil, sys, torch
from pathlib import Path
from peft import PeftModel
from transformers import AutoModelForCausalLM
base, adapter, out = map(Path, sys.argv[1:])
model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16)
PeftModel.from_pretrained(model, adapter).merge_and_unload().save_pretrained(out)
for name in ("tokenizer.json", "tokenizer_config.json"):
    shutil.copy(base / name, out)
"""
_REFERENCE = """
import runpy, sys
from pathlib import Path
script = Path(sys.argv[1])
sys.path[:0] = [str(script.parent), str(script.parent / "gguf-py")]
from conversion.base import TextModel
TextModel.get_vocab_base_pre = lambda self, tokenizer: "minicpm5"
sys.argv = [str(script), sys.argv[2], "--outtype", "f16", "--outfile", sys.argv[3]]
runpy.run_path(str(script), run_name="__main__")
"""


def main() -> int:
    """Print the comparison; status 1 when a target is missed or a difference is not explained by
    rounding.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--converter", type=Path, required=True, metavar="FILE")
    parser.add_argument(
        "--runs", type=int, default=1, help="of each way, alternating; the median is reported"
    )
    parser.add_argument(
        "--layers",
        type=int,
        default=MINICPM5_1B["num_hidden_layers"],
        help="fewer for a quick look",
    )
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_minicpm5(
            folder / "base",
            folder / "adapter",
            rank=RANK,
            alpha=ALPHA,
            num_hidden_layers=given.layers,
        )
        ours, theirs = [], []
        for _ in range(given.runs):
            theirs.append(_run_peft(folder, given.converter))
            ours.append(_run_kmint(folder))
        tensors = compare(
            folder / "ours.gguf", folder / "theirs.gguf", folder / "base", folder / "adapter"
        )
    document = _document(ours, theirs, tensors)
    print(json.dumps(document, indent=1))
    if given.json:
        given.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0 if document["holds"] else 1


def _run_kmint(folder: Path) -> Measured:
    command = [
        sys.executable,
        "-m",
        "kmint_tui",
        "convert",
        "--quant",
        "F16",
        "--out",
        str(folder / "ours.gguf"),
    ]
    return _succeeded(
        measure(
            [*command, "--base", str(folder / "base"), "--adapter", str(folder / "adapter")],
            folder / "log",
        )
    )


def _run_peft(folder: Path, converter: Path) -> tuple[Measured, Measured]:
    merged = folder / "merged"
    command = [
        sys.executable,
        "-c",
        _PEFT,
        str(folder / "base"),
        str(folder / "adapter"),
        str(merged),
    ]
    merge = _succeeded(measure(command, folder / "log"))
    command = [
        sys.executable,
        "-c",
        _REFERENCE,
        str(converter),
        str(merged),
        str(folder / "theirs.gguf"),
    ]
    convert = _succeeded(measure(command, folder / "log"))
    shutil.rmtree(merged)
    return merge, convert


def _succeeded(measured: Measured) -> Measured:
    if measured.status != 0:
        raise SystemExit(
            f"a command ended with status {measured.status}:\n{measured.output[-2000:]}"
        )
    return measured


def compare(ours: Path, theirs: Path, base: Path, adapter: Path) -> dict[str, Any]:
    """Differing elements, and what each side's are when computed again; sums over all tensors."""
    totals = {"tensors": 0, "equal_tensors": 0, "elements": 0, "differing": 0, "merged_elements": 0}
    again = {"ours_not_rounded_once": 0, "theirs_not_rounded_twice": 0, "unexplained": 0}
    errors: dict[str, list[float]] = {"ours": [0.0, 0.0], "theirs": [0.0, 0.0]}
    with GgufFile(ours) as one, GgufFile(theirs) as two:
        if set(one.tensors) != set(two.tensors):
            raise SystemExit(f"tensors differ: {sorted(set(one.tensors) ^ set(two.tensors))[:5]}")
        sources = dict(_projections(one))
        for name, tensor in one.tensors.items():
            left, right = _bits(ours, tensor), _bits(theirs, two.tensors[name])
            differing = left != right
            totals["tensors"] += 1
            totals["equal_tensors"] += not differing.any()
            totals["elements"] += left.size
            totals["differing"] += int(differing.sum())
            if name in sources:
                totals["merged_elements"] += left.size
                once, twice, exact = _merge_again(base, adapter, sources[name])
                not_once, not_twice = left != once, right != twice
                again["ours_not_rounded_once"] += int(not_once.sum())
                again["theirs_not_rounded_twice"] += int(not_twice.sum())
                again["unexplained"] += int((differing & (not_once | not_twice)).sum())
                for side, bits in (("ours", left), ("theirs", right)):
                    error = np.abs(bits.view(np.float16).astype(np.float32) - exact)
                    errors[side] = [
                        max(errors[side][0], float(error.max())),
                        errors[side][1] + float((error.astype(np.float64) ** 2).sum()),
                    ]
            elif differing.any():
                again["unexplained"] += int(differing.sum())
    count = totals["merged_elements"]
    return {
        **totals,
        **again,
        **{
            f"{side}_error": {"max": m, "rms": (s / count) ** 0.5}
            for side, (m, s) in errors.items()
        },
    }


def _projections(file: GgufFile) -> Iterator[tuple[str, str]]:
    """(GGUF tensor, Hugging Face module) of what the adapter changes."""
    names = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    for layer in range(
        max(int(name.split(".")[1]) for name in file.tensors if name.startswith("blk.")) + 1
    ):
        for short, module in zip(names, llama_projections(MINICPM5_1B), strict=True):
            yield f"blk.{layer}.{short}.weight", f"model.layers.{layer}.{module}"


def _bits(path: Path, tensor: GgufTensor) -> npt.NDArray[Any]:
    """A tensor's elements as unsigned integers of their size."""
    count = int(np.prod(tensor.shape, dtype=np.int64))
    kind = np.uint32 if tensor.type.name == "F32" else np.uint16
    return np.memmap(path, kind, "r", tensor.start, (count,)).reshape(tensor.shape)


def _merge_again(
    base: Path, adapter: Path, module: str
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[np.float32]]:
    """(rounded once, rounded to bfloat16 and then, float32), the first two as F16 bits, rows in
    llama.cpp's order.
    """
    with (
        safe_open(base / "model.safetensors", "pt") as file,
        safe_open(adapter / "adapter_model.safetensors", "pt") as change,
    ):
        weight = file.get_tensor(f"{module}.weight")
        a, b = (change.get_tensor(f"base_model.model.{module}.lora_{side}.weight") for side in "AB")
    delta = (b @ a) * (ALPHA / RANK)
    exact = weight.float() + delta
    twice = exact.to(torch.bfloat16)
    if module.endswith(("q_proj", "k_proj")):
        exact, twice = _pairs(exact), _pairs(twice)
    return (
        exact.half().numpy().view(np.uint16),
        twice.float().half().numpy().view(np.uint16),
        exact.numpy(),
    )


def _pairs(weight: torch.Tensor) -> torch.Tensor:
    """Rows of each head from two halves to neighbouring pairs."""
    half = MINICPM5_1B["head_dim"] // 2
    return weight.view(-1, 2, half, weight.shape[1]).transpose(1, 2).reshape(weight.shape)


def _document(
    ours: list[Measured], theirs: list[tuple[Measured, Measured]], tensors: dict[str, Any]
) -> dict[str, Any]:
    seconds = (
        statistics.median(run.seconds for run in ours),
        statistics.median(sum(step.seconds for step in run) for run in theirs),
    )
    memory = (
        max(run.anonymous_mb for run in ours),
        min(max(step.anonymous_mb for step in run) for run in theirs),
    )
    resident = (
        max(run.resident_mb for run in ours),
        min(max(step.resident_mb for step in run) for run in theirs),
    )
    ratios = {
        "seconds": seconds[0] / seconds[1],
        "anonymous": memory[0] / memory[1],
        "resident": resident[0] / resident[1],
    }
    return {
        "schema": "kmint.bench.convert_vs_peft/1",
        "shape": "MiniCPM5-1B, rank 64, alpha 128, all projections, F16",
        "kmint": [run.figures() for run in ours],
        "peft_then_converter": [
            {"merge": merge.figures(), "convert": convert.figures()} for merge, convert in theirs
        ],
        "ratio": {key: round(value, 3) for key, value in ratios.items()},
        "targets": {"anonymous": MEMORY_TARGET, "seconds": TIME_TARGET},
        "tensors": tensors,
        "holds": ratios["anonymous"] <= MEMORY_TARGET
        and ratios["seconds"] <= TIME_TARGET
        and tensors["unexplained"] == 0,
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

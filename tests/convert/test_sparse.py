"""Qwen3.6-27B's layout in sparse files: planned whole, converted in less memory than its tensors.

`bench/convert_27b.py` is the full measurement.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import gguf
import numpy as np

from bench.fake_checkpoint import write_qwen36
from bench.process_memory import measure
from tests.cli.runner import kmint

SUBFOLDER = "rl_adapter_v2"


def arguments(folder: Path, *more: str) -> tuple[str, ...]:
    paths = (
        "--base",
        str(folder / "base"),
        "--adapter",
        str(folder / "adapter"),
        "--out",
        str(folder / "m.gguf"),
    )
    return ("convert", *paths, "--subfolder", SUBFOLDER, *more)


def test_the_plan_of_the_whole_layout(tmp_path: Path) -> None:
    """27 billion parameters in 15 shards; the figures are the layout's own arithmetic."""
    write_qwen36(tmp_path / "base", tmp_path / "adapter" / SUBFOLDER, real_layers=())
    assert sum(path.stat().st_size for path in (tmp_path / "base").glob("*.safetensors")) > 54e9
    done = kmint(
        *arguments(tmp_path, "--quant", "Q8_0", "--plan", "--json"),
        KMINT_HOME=str(tmp_path / "home"),
    )
    assert done.code == 0, done.err
    plan = done.document
    hidden, ffn, rows = 5120, 17408, 248320
    mlp, norms = 3 * hidden * ffn, 2 * hidden
    full = hidden * (2 * 6144 + 2 * 1024 + 6144) + 2 * 256
    linear = hidden * (10240 + 6144 + 6144 + 2 * 48) + 10240 * 4 + 2 * 48 + 128
    assert plan["parameters"] == 2 * rows * hidden + hidden + 16 * full + 48 * linear + 64 * (
        mlp + norms
    )
    assert plan["tensors"] == 3 + 64 * 5 + 16 * 6 + 48 * 9
    assert len(plan["touched"]) == 16 * 4 + 64 * 3
    assert 0 < plan["disk"] / plan["parameters"] - 34 / 32 < 0.001
    assert plan["peak_memory"] < 4 * 2**30
    assert not (tmp_path / "m.gguf").exists()


def test_memory_does_not_grow_with_the_tensors(tmp_path: Path) -> None:
    """600 MB of weights in float32, on two processors; one tensor is larger than the allowed
    memory.
    """
    sizes = {
        "hidden_size": 512,
        "intermediate_size": 1024,
        "num_hidden_layers": 4,
        "vocab_size": 140_000,
    }
    heads = {
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "linear_num_key_heads": 4,
        "linear_num_value_heads": 12,
    }
    write_qwen36(
        tmp_path / "base",
        tmp_path / "adapter" / SUBFOLDER,
        shards=3,
        rank=16,
        sizes={**sizes, **heads},
    )
    processors = ",".join(str(number) for number in sorted(os.sched_getaffinity(0))[:2])
    kmint_command = ["taskset", "-c", processors, sys.executable, "-m", "kmint_tui"]
    measured = measure(
        [*kmint_command, *arguments(tmp_path, "--quant", "F16", "--verify", "structure")],
        tmp_path / "log",
    )
    assert measured.status == 0, measured.output
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(tmp_path / "m.gguf").tensors}
    assert measured.anonymous_mb < 4 * tensors["token_embd.weight"].n_elements / 1e6
    assert (
        measured.resident_mb < 4 * sum(tensor.n_elements for tensor in tensors.values()) / 1e6 / 2
    )
    changed = {
        name: bool(np.any(tensor.data[:-1]))
        for name, tensor in tensors.items()
        if name.endswith("ffn_up.weight")
    }
    assert changed == {f"blk.{layer}.ffn_up.weight": layer in (0, 3) for layer in range(4)}

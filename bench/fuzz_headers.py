"""Mutated safetensors headers against the strict reader, mutated GGUF headers through `kmint models
import`: no crash, no unbounded allocation, no hang.

    python bench/fuzz_headers.py --count 200000 [--seed 0] [--json FILE]

The script makes valid files, then flips bytes, splices, truncates, and rewrites numbers. A GGUF
goes through the command itself, in this process. A refusal is a ConvertError, or exit code 4 with
one line that gives the reason. Any other result but acceptance is a failure, and so is a peak of
memory far above the header's own size. The head of an accepted GGUF is still sound: the mutation
hit a token's name or a number that nothing depends on.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import platform
import random
import re
import resource
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import save

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from convert.errors import ConvertError
from convert.safetensors_file import SafetensorsFile
from kmint_tui.cli.main import main as kmint

MEMORY_LIMIT_MB = 400
REASONS: Counter[str] = Counter()
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant{{ '\\n' }}"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>{{ '\\n\\n' }}{% endif %}"
)
_NUMBERS = (
    0,
    1,
    0x7F,
    0xFF,
    0xFFFF,
    0x7FFFFFFF,
    0xFFFFFFFF,
    0x7FFFFFFFFFFFFFFF,
    0xFFFFFFFFFFFFFFFF,
)


def safetensors_seed() -> bytes:
    """A small valid safetensors file."""
    arrays = {f"layer.{i}.weight": np.zeros((4, 8), dtype=np.float32) for i in range(6)}
    return save(arrays, metadata={"format": "pt"})


class Refused(Exception):
    """`kmint models import` did not take the file; the message is its reason."""


def gguf_seed(folder: Path) -> bytes:
    """A small GGUF that `kmint models import` takes: vocabulary, template, sizes and a tensor."""
    path = folder / "seed.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(32)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_eos_token_id(1)
    writer.add_chat_template(TEMPLATE)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([f"t{i}" for i in range(40)])
    writer.add_token_types([1] * 40)
    writer.add_tensor("token_embd.weight", np.zeros((40, 32), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


def mutate(source: bytes, rng: random.Random, head: int) -> bytes:
    """One to eight random edits, most of them within the first `head` bytes."""
    data = bytearray(source)
    for _ in range(rng.randint(1, 8)):
        at = rng.randrange(min(head, len(data)) or 1)
        kind = rng.randrange(5)
        if kind == 0 and at < len(data):
            data[at] = rng.randrange(256)
        elif kind == 1:
            width = rng.choice("<I <Q".split())
            data[at : at + struct.calcsize(width)] = struct.pack(
                width, rng.choice(_NUMBERS) & (2 ** (8 * struct.calcsize(width)) - 1)
            )
        elif kind == 2:
            del data[at : at + rng.randrange(1, 16)]
        elif kind == 3:
            data[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 16)))
        else:
            del data[rng.randrange(len(data) + 1) :]
    return bytes(data)


def fuzz(
    name: str,
    seed_bytes: bytes,
    head: int,
    read: Callable[[Path], object],
    count: int,
    rng: random.Random,
    path: Path,
) -> Counter[str]:
    """Outcomes of `count` mutants; raises whatever a reader should never raise, after naming the
    mutant.
    """
    outcomes: Counter[str] = Counter()
    for _ in range(count):
        mutant = mutate(seed_bytes, rng, head)
        path.write_bytes(mutant)
        try:
            read(path)
            outcomes["accepted"] += 1
        except ConvertError:
            outcomes["refused"] += 1
        except Refused as reason:
            outcomes["refused"] += 1
            REASONS[_kind(str(reason))] += 1
        except BaseException:
            keep = Path(tempfile.gettempdir()) / f"kmint-fuzz-{name}.bin"
            keep.write_bytes(mutant)
            print(f"{name}: a mutant broke the reader, kept as {keep}", file=sys.stderr)
            raise
    return outcomes


def _import_gguf(path: Path) -> None:
    """`kmint models import PATH --as ID`, and the file out of the store again."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = kmint(["models", "import", str(path), "--as", "minicpm5-1b", "--quiet"])
    said = err.getvalue()
    if code == 0:
        link = Path(out.getvalue().strip())
        link.unlink()
        link.with_name(link.name + ".sha256").unlink()
    elif (
        code == 4
        and said.startswith("error: model not usable: ")
        and "Traceback" not in said
        and len(said.splitlines()) <= 2
    ):
        raise Refused(said.splitlines()[0])
    else:
        raise RuntimeError(f"exit code {code}: {said}")


def _kind(reason: str) -> str:
    """The reason without the parts that differ between files."""
    text = re.sub(
        r"'.*'|b'.*'|\(.*\)|-?\d[\d.e+-]*",
        "*",
        reason.partition("mutant")[2].removeprefix(".gguf").strip(": "),
    )
    return text[:90]


def _read_safetensors(path: Path) -> None:
    with SafetensorsFile(path) as file:
        for entry in file.entries.values():
            if entry.dtype in ("F32", "F16", "BF16") and entry.shape:
                file.rows(entry.name, slice(0, 1))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--count", type=int, default=200_000, help="mutants in all, half of each format"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    started, rng = time.monotonic(), random.Random(options.seed)
    with tempfile.TemporaryDirectory(
        dir="/dev/shm" if Path("/dev/shm").is_dir() else None
    ) as folder:
        os.environ["KMINT_HOME"] = str(Path(folder) / "home")
        path = Path(folder) / "mutant.gguf"
        seed = gguf_seed(Path(folder))
        seeds = {
            "safetensors": (safetensors_seed(), 500, _read_safetensors),
            "gguf": (seed, len(seed) - 40 * 32 * 4, _import_gguf),
        }
        path.write_bytes(seed)
        _import_gguf(path)
        results = {
            name: fuzz(name, data, head, read, options.count // 2, rng, path)
            for name, (data, head, read) in seeds.items()
        }
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    for name, outcomes in results.items():
        print(
            f"{name:12} {outcomes['accepted']:8} accepted {outcomes['refused']:8} refused, no crash"
        )
    print(f"peak memory {peak:.0f} MB, {time.monotonic() - started:.0f} s")
    if options.json:
        document = {
            "schema": "kmint.bench.fuzz_headers/1",
            "python": platform.python_version(),
            "machine": platform.machine(),
            "seed": options.seed,
            "outcomes": results,
            "gguf_reasons": dict(REASONS.most_common(40)),
            "gguf_reasons_in_all": len(REASONS),
            "peak_memory_mb": peak,
        }
        Path(options.json).write_text(json.dumps(document, indent=1) + "\n")
    return 0 if peak < MEMORY_LIMIT_MB else 1


if __name__ == "__main__":
    sys.exit(main())

"""Train the embedded smith on one GPU (or, for a smoke test, on the CPU).

    python -m forge.train CORPUS OUT

Needs torch and numpy only. The first steps are measured against `--seconds` and set the number of
steps, so that a run fits its time. Loss curve, sampled drafts and every setting are written next to
the weights. The weights are float16 safetensors in shards of at most 15 MB, in Hugging Face's
layout.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import struct
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.multiprocessing.spawn import spawn

from forge.batches import Corpus, batches, load, prefetched
from forge.model import Llama, Shape, describe
from forge.passed import read_passed
from forge.sample import sample

WARMUP = 100
CALIBRATION = (20, 60)
SHARD_BYTES = 15_000_000
BOS, PAD = 0, 2


def learning_rate(step: int, total: int, peak: float, warmup: int = WARMUP) -> float:
    """Linear warm-up over `warmup` steps, then a cosine to 2 % of the peak."""
    if step < warmup:
        return peak * (step + 1) / warmup
    share = min(1.0, (step - warmup) / max(1, total - warmup))
    return peak * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * share)))


def loss_of(model: Llama, tokens: Tensor, where: Tensor, labels: Tensor) -> Tensor:
    """Mean cross entropy over the answers' tokens.

    Under autocast the residual stream and the rotary tables stay float32.
    """
    hidden, _ = model(tokens)
    chosen = hidden.reshape(-1, hidden.shape[-1])[where]
    with torch.autocast(tokens.device.type, enabled=False):
        return F.cross_entropy(model.logits(chosen.float()), labels)


def optimiser_of(model: Llama, peak: float, decay: float, fused: bool) -> torch.optim.AdamW:
    """AdamW, weight decay on matrices only."""
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() != 2]
    return torch.optim.AdamW(
        [{"params": matrices, "weight_decay": decay}, {"params": vectors, "weight_decay": 0.0}],
        lr=peak,
        betas=(0.9, 0.95),
        eps=1e-8,
        fused=fused,
    )


def _averaged(model: Llama, world: int) -> None:
    """Replace every process's gradients by the mean of all."""
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    torch.distributed.all_reduce(flat)
    flat /= world
    parts = torch.split(flat, [gradient.numel() for gradient in gradients])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view_as(gradient))


def train(
    model: Llama, corpus: Corpus, arguments: argparse.Namespace, device: str, rank: int = 0
) -> dict[str, Any]:
    """Run the loop and return the loss curve and figures.

    With several processes, each one draws separate batches.
    """
    cuda = device == "cuda"
    optimiser = optimiser_of(model, arguments.lr, arguments.decay, fused=cuda)
    source = prefetched(
        batches(corpus, arguments.batch_tokens, arguments.seed + 1000 * rank, model.shape.context)
    )
    total = arguments.steps or 10**9
    run = torch.compile(loss_of, dynamic=True) if arguments.compile else loss_of
    curve: list[tuple[int, float]] = []
    running: list[Tensor] = []
    started, sequences, seen, mark = time.perf_counter(), 0, 0, 0.0
    step = 0
    while step < total:
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(step, total if total < 10**9 else 10 * WARMUP, arguments.lr)
        tokens, where, labels = (
            torch.from_numpy(part).to(device, non_blocking=True) for part in next(source)
        )
        with torch.autocast(device, dtype=torch.bfloat16, enabled=cuda):
            loss = run(model, tokens, where, labels)
        loss.backward()  # type: ignore[no-untyped-call]
        if arguments.gpus > 1:
            _averaged(model, arguments.gpus)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        running.append(loss.detach())
        sequences, seen, step = sequences + tokens.shape[0], seen + tokens.numel(), step + 1
        if not arguments.steps and step in CALIBRATION:
            if cuda:
                torch.cuda.synchronize()
            now = time.perf_counter()
            if step == CALIBRATION[0]:
                mark = now
            else:
                each = (now - mark) / (CALIBRATION[1] - CALIBRATION[0])
                total = step + max(1, int((arguments.seconds - (now - started)) / each))
                if arguments.gpus > 1:
                    agreed = torch.tensor(total, device=device)
                    torch.distributed.all_reduce(agreed, torch.distributed.ReduceOp.MIN)
                    total = int(agreed)
                print(f"{each * 1000:.1f} ms a step, {total} steps in all", flush=True)
        if step % 50 == 0 or step == total:
            mean = float(torch.stack(running).mean())
            running = []
            curve.append((step, round(mean, 5)))
            if not rank and (step % 500 == 0 or step == total):
                print(
                    f"step {step}/{total} loss {mean:.4f} {time.perf_counter() - started:.0f} s",
                    flush=True,
                )
        if (
            time.perf_counter() - started > 1.15 * arguments.seconds
            and not arguments.steps
            and arguments.gpus == 1
        ):
            break
    seconds = time.perf_counter() - started
    return {
        "steps": step,
        "planned_steps": total,
        "sequences": sequences,
        "padded_tokens": seen,
        "seconds": round(seconds, 1),
        "epochs": round(sequences / len(corpus.pairs), 2),
        "loss": curve,
    }


def save_safetensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """The safetensors format: header length, JSON header, raw little-endian data."""
    header: dict[str, Any] = {}
    offset = 0
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": "F16",
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + size],
        }
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(tensor.contiguous().numpy().tobytes())


def save(model: Llama, out: Path, eos: int) -> None:
    """config.json and float16 weights in shards with their index."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(
        json.dumps(model.shape.config(eos, PAD, BOS), indent=1) + "\n", encoding="utf-8"
    )
    shards: list[dict[str, Tensor]] = [{}]
    filled = 0
    for name, parameter in model.named_parameters():
        tensor = parameter.detach().to("cpu", torch.float16)
        if filled + tensor.numel() * 2 > SHARD_BYTES:
            shards.append({})
            filled = 0
        shards[-1][name] = tensor
        filled += tensor.numel() * 2
    weight_map: dict[str, str] = {}
    for index, shard in enumerate(shards):
        file = f"model-{index + 1:05d}-of-{len(shards):05d}.safetensors"
        save_safetensors(out / file, shard)
        weight_map |= dict.fromkeys(shard, file)
    size = sum(p.numel() * 2 for p in model.parameters())
    document = {"metadata": {"total_size": size}, "weight_map": weight_map}
    (out / "model.safetensors.index.json").write_text(
        json.dumps(document, indent=1) + "\n", encoding="utf-8"
    )


def write_drafts(model: Llama, corpus: Corpus, arguments: argparse.Namespace) -> None:
    """Sample drafts for every evaluation prompt and write them, one JSON object a line."""
    chosen = (
        range(len(corpus.eval_prompts)) if arguments.eval_ops is None else range(arguments.eval_ops)
    )
    with (arguments.out / "drafts.jsonl").open("w", encoding="utf-8") as file:
        for start in range(0, len(chosen), 64):
            part = chosen[start : start + 64]
            drawn = sample(
                model,
                [corpus.eval_prompts[i] for i in part],
                arguments.drafts,
                eos=corpus.eos,
                limit=arguments.max_tokens,
                seed=arguments.seed + start,
            )
            for index, rows in zip(part, drawn, strict=True):
                for number, row in enumerate(rows):
                    entry = {
                        **corpus.eval_names[index],
                        "index": number,
                        "tokens": len(row),
                        "cut": len(row) >= arguments.max_tokens,
                        "source": corpus.decode(row),
                    }
                    file.write(json.dumps(entry) + "\n")


def parse() -> argparse.Namespace:
    """Command-line arguments."""
    parser = argparse.ArgumentParser(description="train the embedded smith")
    parser.add_argument("corpus", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=270.0, help="training time")
    parser.add_argument(
        "--steps", type=int, default=0, help="fixed number of steps instead of a time"
    )
    parser.add_argument("--batch-tokens", type=int, default=65536)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--decay", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hidden", type=int, default=320)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--heads", type=int, default=5)
    parser.add_argument("--ffn", type=int, default=896)
    parser.add_argument("--drafts", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=768)
    parser.add_argument(
        "--eval-ops", type=int, default=None, help="sample for the first N evaluation prompts only"
    )
    parser.add_argument("--compile", action="store_true")
    parser.add_argument(
        "--passed",
        type=Path,
        help="digests of the kernels to train on, one a line, optionally gzipped",
    )
    parser.add_argument(
        "--gpus", type=int, default=1, help="processes, each with a GPU and batches of its own"
    )
    return parser.parse_args()


def main() -> None:
    """Command line."""
    arguments = parse()
    if arguments.gpus == 1:
        run(0, arguments)
        return
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29511")
    spawn(run, (arguments,), nprocs=arguments.gpus)  # type: ignore[no-untyped-call]


def run(rank: int, arguments: argparse.Namespace) -> None:
    """Train in one process; the first of several also saves and samples."""
    began = time.perf_counter()
    arguments.out.mkdir(parents=True, exist_ok=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if arguments.gpus > 1:
        torch.cuda.set_device(rank)
        torch.distributed.init_process_group("nccl", rank=rank, world_size=arguments.gpus)
    torch.set_float32_matmul_precision("high")
    corpus = load(arguments.corpus, read_passed(arguments.passed) if arguments.passed else None)
    vocabulary = -(-len(corpus.token_bytes) // 64) * 64
    shape = Shape(
        vocabulary=vocabulary,
        hidden=arguments.hidden,
        layers=arguments.layers,
        heads=arguments.heads,
        ffn=arguments.ffn,
    )
    model = Llama(shape, arguments.seed).to(device)
    parameters = sum(p.numel() for p in model.parameters())
    loaded = time.perf_counter() - began
    size = f"{parameters / 1e6:.2f} M parameters, {len(corpus.pairs)} pairs"
    print(f"{size}, {device}, loaded in {loaded:.1f} s", flush=True)
    figures = train(model, corpus, arguments, device, rank)
    if arguments.gpus > 1:
        torch.distributed.destroy_process_group()
    if rank:
        return
    save(model, arguments.out, corpus.eos)
    settings = {
        key: str(value) if isinstance(value, Path) else value
        for key, value in vars(arguments).items()
    }
    machine = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    about = {
        "settings": settings,
        "shape": describe(shape),
        "parameters": parameters,
        "torch": torch.__version__,
        "machine": machine,
    }
    (arguments.out / "training.json").write_text(
        json.dumps({**about, **figures}, indent=1) + "\n", encoding="utf-8"
    )
    print(f"saved after {time.perf_counter() - began:.0f} s", flush=True)
    model.eval()
    write_drafts(model, corpus, arguments)
    print(f"done after {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()

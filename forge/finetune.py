"""Trains the present model on the examples of a round, with checkpoints on the way.

The number of steps follows from the number of passes over the examples. A restart continues from
the last checkpoint with the same batches, so it gives the weights of a run without the restart.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from convert import files
from forge.batches import batches, in_memory
from forge.checkpoint import Checkpoint
from forge.packed import Pair, tokenised
from forge.train import learning_rate, loss_of, optimiser_of


@dataclass(frozen=True, kw_only=True)
class Training:
    """The settings of one round's training. `batch_tokens` counts padded tokens of a batch.

    `most_steps` is the upper bound of the steps, 0 for none. `every` counts the steps between two
    checkpoints on the disk.
    """

    passes: float = 3.0
    batch_tokens: int = 32_768
    rate: float = 3e-4
    decay: float = 0.1
    most_steps: int = 0
    every: int = 50


def finetune(
    checkpoint: Checkpoint,
    examples: Sequence[Pair],
    how: Training,
    *,
    seed: int,
    device: str,
    file: Path,
    tell: Callable[[str], object] = print,
) -> dict[str, Any]:
    """Train the model in place. Returns the steps, the sequences, and the loss of each tenth.

    `file` holds the last checkpoint; the caller removes it when the model is saved. Raises OSError.
    """
    found = tokenised(examples, checkpoint.tokenizer)
    corpus = in_memory(found)
    tokens = sum(found.lengths)
    steps = max(1, round(how.passes * tokens / how.batch_tokens))
    steps = min(steps, how.most_steps) if how.most_steps else steps
    model = checkpoint.model.to(device).train()
    optimiser = optimiser_of(model, how.rate, how.decay, fused=device == "cuda")
    losses: list[float] = []
    if file.exists():
        saved = torch.load(file, map_location=device, weights_only=True)
        model.load_state_dict(saved["model"])
        optimiser.load_state_dict(saved["optimiser"])
        losses = list(saved["losses"])
        tell(f"training continues after step {len(losses)}")
    source = batches(corpus, how.batch_tokens, seed, model.shape.context)
    warmup = max(1, steps // 10)
    sequences = 0
    for step, batch in enumerate(itertools.islice(source, steps)):
        sequences += len(batch[0])
        if step < len(losses):
            continue
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(step, steps, how.rate, warmup)
        inputs, where, labels = (torch.from_numpy(part).to(device) for part in batch)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
            loss = loss_of(model, inputs, where, labels)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        losses.append(float(loss.detach()))
        if len(losses) % how.every == 0 or len(losses) == steps:
            _keep(file, model, optimiser, losses)
            tell(f"step {len(losses)} of {steps}, loss {losses[-1]:.4f}")
    model.eval()
    if device == "cuda":
        torch.cuda.empty_cache()
    return {
        "steps": steps,
        "examples": len(found.pairs),
        "sequences": sequences,
        "tokens": tokens,
        "loss": [round(value, 4) for value in _tenths(losses)],
    }


def _keep(
    file: Path, model: torch.nn.Module, optimiser: torch.optim.Optimizer, losses: list[float]
) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with files.replacing(file) as target:
        torch.save(
            {"model": model.state_dict(), "optimiser": optimiser.state_dict(), "losses": losses},
            target,
        )


def _tenths(losses: list[float]) -> list[float]:
    """The mean of each tenth of the steps, or every loss of fewer than ten steps."""
    size = max(1, len(losses) // 10)
    parts = [losses[start : start + size] for start in range(0, len(losses), size)]
    return [sum(part) / len(part) for part in parts]

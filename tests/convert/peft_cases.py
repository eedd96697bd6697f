"""Tiny checkpoints with PEFT adapters, and the comparison of their GGUF with PEFT's own model.

The reference is the trained model: the base with the adapter loaded, in float32.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, PreTrainedModel

from convert.job import ConvertJob
from convert.request import ConvertRequest
from convert.verify import gguf_logits

GREEDY = 24
LARGEST_SHARE = 1e-4
PROMPTS = ([1, 70, 71, 300, 5], [9, 8, 7, 6, 400, 401, 402, 33])
SMALL: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 96, "head_dim": 16}

Change = Callable[[PreTrainedModel], None]


@dataclass(frozen=True)
class Agreement:
    """The difference of llama.cpp's logits from the reference, and equality of all greedy tokens."""

    share: float
    greedy: bool
    notes: tuple[str, ...]


def train(
    model: PreTrainedModel,
    folder: Path,
    settings: dict[str, Any] | None = None,
    **save: Any,
) -> PeftModel:
    """Wrap `model`, change every trainable parameter a little, and save the adapter."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = LoraConfig(
            **{
                "r": 4,
                "lora_alpha": 8,
                "target_modules": ["q_proj", "v_proj", "down_proj"],
                "task_type": "CAUSAL_LM",
                **(settings or {}),
            }
        )
        wrapped: PeftModel = get_peft_model(model, config)
        move(wrapped)
        wrapped.save_pretrained(folder, **save)
    return wrapped


def move(wrapped: Any) -> None:
    """Random steps for every trainable parameter; the same ones at every call."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in wrapped.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * 0.05)


def loaded(base: Path, adapter: Path | None) -> Any:
    """The base as transformers loads it, with the adapter as PEFT loads it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model: Any = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        return model if adapter is None else PeftModel.from_pretrained(model, str(adapter))


def agreement(reference: Any, request: ConvertRequest) -> Agreement:
    """Convert to F32 and compare with the reference model."""
    with ConvertJob(request) as job:
        (report,) = job.run()
    assert {finding.status for finding in report.findings} == {"pass"}, report.findings
    reference.eval()
    prompts = [grown(reference, prompt) for prompt in PROMPTS]
    expected = np.concatenate([_logits(reference, ids) for ids in prompts])
    actual = gguf_logits(request.out, prompts)
    share = float(np.abs(actual - expected).max() / np.abs(expected).max())
    same = (actual.argmax(axis=1) == expected.argmax(axis=1))[_answers(prompts)]
    return Agreement(share, bool(same.all()), report.notes)


def require_agreement(base: Path, adapter: Path | None, reference: Any = None) -> Agreement:
    """Raise unless the GGUF of base and adapter is the reference's model."""
    request = ConvertRequest(
        base=base, out=base.parent / "made.gguf", kinds=("F32",), adapter=adapter, version="test"
    )
    found = agreement(loaded(base, adapter) if reference is None else reference, request)
    assert found.share < LARGEST_SHARE and found.greedy, found
    return found


def grown(model: Any, prompt: list[int]) -> list[int]:
    """The prompt with 24 greedy tokens of the model."""
    ids = list(prompt)
    for _ in range(GREEDY):
        ids.append(int(_logits(model, ids)[-1].argmax()))
    return ids


def _answers(prompts: list[list[int]]) -> list[int]:
    """The positions whose next token the model chose."""
    positions: list[int] = []
    start = 0
    for ids in prompts:
        positions += range(start + len(ids) - GREEDY - 1, start + len(ids) - 1)
        start += len(ids)
    return positions


def _logits(model: Any, ids: list[int]) -> npt.NDArray[np.float32]:
    with torch.no_grad():
        made: npt.NDArray[np.float32] = model(torch.tensor([ids])).logits[0].float().numpy()
    return made

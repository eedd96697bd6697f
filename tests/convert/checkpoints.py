"""Tiny random checkpoints in the real formats, with a real tokenizer and optionally a LoRA."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen3_5ForCausalLM,
    Qwen3_5TextConfig,
)

VOCAB = 512
TEMPLATE = "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"


def write_tokenizer(folder: Path) -> None:
    """A byte-level BPE trained on a few lines of this file."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=["<s>", "</s>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([Path(__file__).read_text()], trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"bos_token": "<s>", "eos_token": "</s>", "chat_template": TEMPLATE})
    )


def llama(folder: Path, **settings: Any) -> PreTrainedModel:
    """Grouped-query Llama whose head_dim is not hidden / heads.

    Rows are multiples of 256, so that k-quants apply.
    """
    config = LlamaConfig(
        **{
            "vocab_size": VOCAB,
            "hidden_size": 256,
            "intermediate_size": 512,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 128,
            "max_position_embeddings": 512,
            **settings,
        }
    )
    return _save(folder, LlamaForCausalLM(config))


def qwen35(folder: Path) -> PreTrainedModel:
    """Hybrid Qwen3.5 text model with three value heads a key head."""
    config = Qwen3_5TextConfig(
        vocab_size=VOCAB,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        linear_num_key_heads=2,
        linear_num_value_heads=6,
        linear_key_head_dim=32,
        linear_value_head_dim=32,
        max_position_embeddings=512,
        tie_word_embeddings=False,
    )
    return _save(folder, Qwen3_5ForCausalLM(config))


def _save(folder: Path, model: PreTrainedModel) -> PreTrainedModel:
    torch.manual_seed(0)
    model = model.float()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.05 + (parameter.ndim == 1))
    model.save_pretrained(folder)
    write_tokenizer(folder)
    return model


def adapter(model: PreTrainedModel, folder: Path, **settings: Any) -> None:
    """Save a randomised LoRA over `model`, without PEFT's own deprecation warnings."""
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrapped = get_peft_model(
            model,
            LoraConfig(
                **{
                    "r": 4,
                    "lora_alpha": 8,
                    "target_modules": targets,
                    "task_type": "CAUSAL_LM",
                    **settings,
                }
            ),
        )
        torch.manual_seed(1)
        with torch.no_grad():
            for parameter in wrapped.parameters():
                if parameter.requires_grad:
                    parameter.add_(torch.randn_like(parameter) * 0.05)
        wrapped.save_pretrained(folder)

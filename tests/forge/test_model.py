"""The training network equals Hugging Face's LlamaForCausalLM of the folder that training writes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from forge.model import Llama, Shape
from forge.sample import sample
from forge.train import learning_rate, save

SHAPE = Shape(vocabulary=96, hidden=64, layers=2, heads=2, head_dim=64, ffn=96, context=128)


@pytest.fixture
def model() -> Llama:
    made = Llama(SHAPE, seed=3).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            # Large enough for attention and rotation to matter, and exact in float16.
            parameter.copy_((parameter * (20 if parameter.dim() == 2 else 1)).half().float())
    return made


def test_saved_folder_loads_in_transformers_with_the_same_logits(
    model: Llama, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    save(model, tmp_path, eos=1)
    theirs = transformers.LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    tokens = torch.arange(40).reshape(2, 20) % 90 + 3
    with torch.no_grad():
        hidden, _ = model(tokens)
        ours, expected = model.logits(hidden), theirs(tokens).logits
    assert expected.std() > 0.1
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4)


def test_cached_decoding_of_unequal_prompts_equals_full_forward(model: Llama) -> None:
    prompts = [[5, 6, 7, 8, 9], [10, 11]]
    drawn = sample(model, prompts, 1, eos=1, limit=8, seed=0, temperature=1e-3, top_p=0.999999)
    for prompt, rows in zip(prompts, drawn, strict=True):
        tokens = list(prompt)
        for token in rows[0]:
            with torch.no_grad():
                hidden, _ = model(torch.tensor([tokens]))
            assert int(model.logits(hidden[:, -1]).argmax()) == token
            tokens.append(token)


def test_learning_rate_warms_up_and_decays() -> None:
    rates = [learning_rate(step, 1000, 1.0) for step in (0, 99, 550, 999)]
    assert rates[0] == pytest.approx(0.01)
    assert rates[1] == pytest.approx(1.0)
    assert rates[1] > rates[2] > rates[3] > 0.0

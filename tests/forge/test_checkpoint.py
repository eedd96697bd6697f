"""The shipped file as a model in torch: the same tokens and scores as llama.cpp has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from convert.llama_child import call
from forge.checkpoint import EMBEDDED, Checkpoint, read, write
from forge.corpus import prompt_text
from forge.model import Llama, Shape
from kmint_tui.graph.operations import catalogue_program


@pytest.fixture(scope="module")
def shipped() -> Checkpoint:
    return read(EMBEDDED)


@pytest.fixture(scope="module")
def prompt() -> str:
    program = catalogue_program("layernorm_gelu")
    assert program is not None
    return prompt_text(program.stages[0])


def test_the_shipped_model_scores_as_llama_cpp(
    shipped: Checkpoint, prompt: str, tmp_path: Path
) -> None:
    tokens = shipped.tokenizer.encode(prompt).ids
    assert call("tokenize", {"model": EMBEDDED, "texts": [prompt]})[0] == {"ids": [tokens]}
    output = tmp_path / "logits.npy"
    call("logits", {"model": EMBEDDED, "prompts": [tokens], "output": output, "threads": 1})
    expected = np.load(output)
    with torch.no_grad():
        hidden, _ = shipped.model(torch.tensor([tokens]))
        ours = shipped.model.logits(hidden)[0].numpy()[-len(expected) :]
    # llama.cpp rounds the activations to eight bits too.
    assert np.sqrt(np.mean((ours - expected) ** 2)) < 0.02 * expected.std()
    assert (ours.argmax(1) == expected.argmax(1)).mean() > 0.97


def test_a_saved_checkpoint_is_read_again(shipped: Checkpoint, tmp_path: Path) -> None:
    model = Llama(Shape(vocabulary=1088, hidden=32, layers=2, heads=1, head_dim=32, ffn=32), 4)
    write(Checkpoint(model, shipped.tokenizer), tmp_path / "one")
    again = read(tmp_path / "one")
    assert again.model.shape == model.shape
    for (name, old), (_, new) in zip(
        model.named_parameters(), again.model.named_parameters(), strict=True
    ):
        assert torch.equal(old.half().float(), new), name
    assert again.tokenizer.encode("tl.load").ids == shipped.tokenizer.encode("tl.load").ids
    assert [path.name for path in tmp_path.iterdir()] == ["one"]

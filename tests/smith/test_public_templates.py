"""llama.cpp's collection of chat templates: which ones kmint accepts, and its reasons.

They lie in the source distribution of llama-cpp-python; LLAMA_CPP_SOURCE names its unpacked
`vendor/llama.cpp`. This file holds only their names.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kmint_tui.smith.prompts import Prompt
from kmint_tui.smith.template import TemplateRefused, render

PROMPT = Prompt("SYS TEXT", "USER TEXT\n")
# The reason by the template's name; "" is accepted.
NOT_CHATML = "does not give the thinking-suppressed ChatML form"
STARTS = "starts the answer with thinking"
KNOWS = "mentions thinking"
REFUSED = {
    "Apriel-1.6-15b-Thinker-fixed": STARTS,
    "Bielik-11B-v3.0-Instruct": NOT_CHATML,
    "ByteDance-Seed-OSS": "opens a block of thinking that is not empty",
    "Cohere2MoE": STARTS,
    "HuggingFaceTB-SmolLM3-3B": NOT_CHATML,
    "Kimi-K2-Thinking": KNOWS,
    "LFM2.5-8B-A1B": KNOWS,
    "LFM2.5-Instruct": KNOWS,
    "MiniMax-M2": STARTS,
    "NVIDIA-Nemotron-Nano-v2": STARTS,
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": NOT_CHATML,
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": NOT_CHATML,
    "StepFun3.5-Flash": NOT_CHATML,
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": STARTS,
    "fireworks-ai-llama-3-firefunction-v2": "the chat template fails",
    "ibm-granite-granite-3.3-2B-Instruct": KNOWS,
    "llama-cpp-deepseek-r1": STARTS,
    "mistralai-Ministral-3-14B-Reasoning-2512": KNOWS,
    "muse-glimmer": KNOWS,
    "openai-gpt-oss-120b": KNOWS,
    "unsloth-Apriel-1.5": KNOWS,
    "upstage-Solar-Open-100B": KNOWS,
}
ACCEPTED = 48


def templates() -> list[Path]:
    named = os.environ.get("LLAMA_CPP_SOURCE")
    folder = Path(named or "nowhere") / "models" / "templates"
    if not folder.is_dir():
        pytest.skip(
            "LLAMA_CPP_SOURCE names no unpacked vendor/llama.cpp of llama-cpp-python's source distribution"
        )
    return sorted(folder.glob("*.jinja"))


def test_the_table_of_llama_cpps_templates() -> None:
    found: dict[str, str] = {}
    for path in templates():
        try:
            text = render(PROMPT, path.read_text(encoding="utf-8"), bos="<BOS>")
            assert text.count("USER TEXT") == 1 and text.count("<BOS>") <= 1, path.name
        except TemplateRefused as refused:
            found[path.stem] = refused.reason
    assert found.keys() == REFUSED.keys()
    assert {name for name, reason in found.items() if REFUSED[name] not in reason} == set()
    assert len(templates()) - len(found) == ACCEPTED

"""The texts on which `kmint convert --imatrix` measures: the smith's own prompts, as this model's chat template renders them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PROMPTS = 24


def calibration_texts(vocabulary: Mapping[str, Any]) -> tuple[str, ...]:
    """Prompts for operations spread over the catalogue, in both dialects in turn; `vocabulary` holds GGUF `tokenizer.*` keys.

    A model without a usable chat template gets the bare texts.
    """
    from kmint_tui.smith.prompts import build
    from kmint_tui.smith.template import FENCE, TemplateRefused, render
    from referee.ops import catalogue

    template = vocabulary.get("tokenizer.chat_template", "")
    number = vocabulary.get("tokenizer.ggml.bos_token_id")
    bos = vocabulary["tokenizer.ggml.tokens"][number] if number is not None else ""
    operations = catalogue()
    texts = []
    for index, op in enumerate(operations[:: max(1, len(operations) // PROMPTS)][:PROMPTS]):
        prompt = build(op, "card" if index % 2 else "trained")
        try:
            texts.append(render(prompt, template, bos=bos, prefill=FENCE))
        except TemplateRefused:
            texts.append(f"{prompt.system}\n\n{prompt.user}\n{FENCE}")
    return tuple(texts)

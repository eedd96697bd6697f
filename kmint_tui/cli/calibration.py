"""The texts on which `kmint convert --imatrix` measures: the smith's own prompts, as this model's
chat template renders them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PROMPTS = 24


def calibration_texts(vocabulary: Mapping[str, Any]) -> tuple[str, ...]:
    """Prompts for operations spread over the catalogue, in both dialects in turn; `vocabulary`
    holds GGUF `tokenizer.*` keys.

    A model without a usable chat template gets the bare texts. Raises EnvironmentUnfit when the
    template could not be tried.
    """
    from kmint_tui.smith.prompts import build
    from kmint_tui.smith.template import FENCE, TemplateRefused
    from kmint_tui.smith.template_process import rendered
    from referee.ops import catalogue

    template = vocabulary.get("tokenizer.chat_template", "")
    number = vocabulary.get("tokenizer.ggml.bos_token_id")
    bos = vocabulary["tokenizer.ggml.tokens"][number] if number is not None else ""
    operations = catalogue()
    chosen = operations[:: max(1, len(operations) // PROMPTS)][:PROMPTS]
    prompts = [build(op, "card" if index % 2 else "trained") for index, op in enumerate(chosen)]
    try:
        return rendered(prompts, template, bos=bos, prefill=FENCE)
    except TemplateRefused:
        return tuple(f"{prompt.system}\n\n{prompt.user}\n{FENCE}" for prompt in prompts)

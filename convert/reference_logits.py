"""Reference logits from transformers (and PEFT), in float32 on the CPU, run as its own process.

`python -m convert.reference_logits < request.json`: `base` and optionally `adapter` are folders, `prompts` token ids,
`output` an .npy path. Needs transformers (and peft for an adapter), which kmint does not depend on.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np


def missing_packages(adapter: Path | None) -> tuple[str, ...]:
    """Which of the packages needed here are not installed."""
    needed = ("torch", "transformers", "peft") if adapter else ("torch", "transformers")
    return tuple(name for name in needed if find_spec(name) is None)


def compute(base: str, adapter: str | None, prompts: Sequence[Sequence[int]]) -> Any:
    """Logits after every token of every prompt, concatenated: (tokens, vocabulary) float32."""
    import torch
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, local_files_only=True)
    if adapter is not None:
        from peft import PeftModel

        model = PeftModel.from_pretrained(model, adapter)
    model.eval()
    with torch.no_grad():
        return np.concatenate([model(torch.tensor([list(ids)])).logits[0].float().numpy() for ids in prompts])


def main() -> int:
    """Read the request from stdin and write the array."""
    request = json.load(sys.stdin)
    np.save(request["output"], compute(request["base"], request.get("adapter"), request["prompts"]), allow_pickle=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Reference logits from transformers (and PEFT), in float32 on the CPU, run as its own process.

`python -m convert.reference_logits PARENT < request.json`; PARENT is the caller's process id. In
the request `base` and optionally `adapter` are folders, `prompts` token ids and `output` an .npy
path. `adapter_seconds` limits the loading of the adapter. Needs transformers (and peft for an
adapter), which kmint does not depend on.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from convert.parent_death import end_with

# Settings of training through which an adapter could let PEFT import modules or read other files.
_OF_TRAINING = ("megatron_config", "corda_config", "eva_config", "lora_ga_config")


def missing_packages(adapter: Path | None) -> tuple[str, ...]:
    """The needed packages that are not installed."""
    needed = ("torch", "transformers", "peft") if adapter else ("torch", "transformers")
    return tuple(name for name in needed if find_spec(name) is None)


def compute(
    base: str, adapter: str | None, prompts: Sequence[Sequence[int]], adapter_seconds: int
) -> Any:
    """Logits after every token of every prompt, concatenated: (tokens, vocabulary) float32.

    The process ends with SIGALRM when loading the adapter takes `adapter_seconds`.
    """
    import torch
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(
        base, dtype=torch.float32, local_files_only=True
    )
    if adapter is not None:
        from peft import PeftConfig, PeftModel

        config = PeftConfig.from_pretrained(adapter)
        for name in _OF_TRAINING:
            setattr(config, name, None)
        # PEFT matches the adapter's expressions, and one can run for ever: the signal ends this
        # process.
        signal.alarm(adapter_seconds)
        model = PeftModel.from_pretrained(model, adapter, config=config)
        signal.alarm(0)
    model.eval()
    with torch.no_grad():
        return np.concatenate(
            [model(torch.tensor([list(ids)])).logits[0].float().numpy() for ids in prompts]
        )


def main() -> int:
    """Read the request from stdin and write the array."""
    end_with(int(sys.argv[1]))
    request = json.load(sys.stdin)
    logits = compute(
        request["base"],
        request.get("adapter"),
        request["prompts"],
        request["adapter_seconds"],
    )
    np.save(request["output"], logits, allow_pickle=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())

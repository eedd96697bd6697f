"""Which proofs a verification level asks for, run in order on one finished file."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from convert.gguf_file import GgufFile
from convert.llama_child import command_of
from convert.merge import Merged
from convert.recipe import Recipe
from convert.reference_logits import missing_packages
from convert.request import Request
from convert.safetensors_file import Floats
from convert.verify import Finding, compare_logits, gguf_ids, gguf_logits, verify_structure, verify_tokenizer

# Texts on which the proofs are made; the tokenizers' fixtures are recorded over them too.
PROMPT_TOKENS = 96
CORPUS = (
    "def run(x, w):\n    M, N = x.shape\n    y = torch.empty_like(x)\n    kernel[(M,)](x, w, y, N, 1e-6, BLOCK=1024)\n    return y\n",
    "Numbers 0 1 12 123 1234 12345.678e-9, CamelCase and snake_case; tabs\t\tand   spaces \n\n\n then lines\r\n",
    "naïve café, Ελληνικά, русский, 東京の天気, 한국어, 😀👩‍🚀, ﬁ ligature, e\u0301 combining, \u00a0no-break",
    "It's we'll they'RE I'm you'd: don't! (a)[b]{c}<d> == != <= >= -> **kwargs @triton.jit # comment",
    "<|im_start|>user\nWrite a kernel.<|im_end|>\n<|im_start|>assistant\n",
)
# F16 and F32 must agree with the source; a block type is a choice, so its divergence is reported and only nonsense fails.
_EXACT_LIMITS = (1e-2, 1e-5)
_QUANTISED_LIMITS = (float("inf"), 1.0)


def prove(path: Path, request: Request, recipe: Recipe, merged: Merged) -> tuple[Finding, ...]:
    """Every finding of the request's level; a level that cannot run is reported as skipped with the reason."""
    findings = [verify_structure(path, recipe, merged.rows)]
    if request.level == "structure":
        return tuple(findings)
    findings.append(verify_tokenizer(path, request.base, CORPUS))
    if request.level == "tokenizer":
        return tuple(findings)
    missing = missing_packages(request.adapter)
    if missing:
        return (*findings, Finding("logits", "skipped", f"not checked: {', '.join(missing)} not installed", {}))
    with GgufFile(path) as stored:
        exact = all(tensor.type.name in ("F32", "F16", "BF16") for tensor in stored.tensors.values())
    if not exact and request.level != "full":
        return (*findings, Finding("logits", "skipped", "not checked for a quantised file below level full", {}))
    prompts = [ids[:PROMPT_TOKENS] for ids in gguf_ids(path, CORPUS) if ids]
    expected = _reference(request, prompts)
    if isinstance(expected, str):
        return (*findings, Finding("logits", "skipped", f"not checked: transformers or peft failed with {expected}", {}))
    max_difference, max_kl = _EXACT_LIMITS if exact else _QUANTISED_LIMITS
    level = "logits" if exact else "quantisation"
    findings.append(compare_logits(level, gguf_logits(path, prompts), expected, max_difference=max_difference, max_kl=max_kl))
    return tuple(findings)


def _reference(request: Request, prompts: list[list[int]]) -> Floats | str:
    """The reference's logits, or in one line why it could not compute them."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "logits.npy"
        adapter = str(request.adapter) if request.adapter else None
        document = {"base": str(request.base), "adapter": adapter, "prompts": prompts, "output": str(output)}
        done = subprocess.run(command_of("reference_logits"), input=json.dumps(document).encode(), capture_output=True)
        if done.returncode != 0:
            raised = re.findall(r"^[\w.]+: .+$", done.stderr.decode(errors="replace"), re.MULTILINE)
            return str(raised[-1][:300]) if raised else f"status {done.returncode}"
        result: Floats = np.load(output, allow_pickle=False)
        return result

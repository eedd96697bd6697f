"""The proofs of each verification level, run in order on one finished file."""

from __future__ import annotations

import json
import mmap
import os
import re
import signal
import subprocess
import unicodedata
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from convert import files, python_child
from convert.errors import VocabError
from convert.gguf_file import GgufFile
from convert.merge import Merged
from convert.probe_texts import probe_texts
from convert.recipe import Recipe
from convert.reference_logits import missing_packages
from convert.request import ConvertRequest
from convert.safetensors_file import Floats
from convert.verify import (
    Proof,
    compare_logits,
    gguf_ids,
    gguf_logits,
    verify_structure,
    verify_tokenizer,
)
from convert.vocab import Vocab
from convert.write import write_vocabulary

# Texts of the proofs; the tokenizers' fixtures are recorded over them too.
PROMPT_TOKENS = 96
"""Largest number of tokens of a proof prompt."""

CORPUS = (
    "def run(x, w):\n    M, N = x.shape\n    y = torch.empty_like(x)\n    kernel[(M,)](x, "
    "w, y, N, 1e-6, BLOCK=1024)\n    return y\n",
    "Numbers 0 1 12 123 1234 12345.678e-9, CamelCase and snake_case; tabs\t\tand   spaces "
    "\n\n\n then lines\r\n",
    "naïve café, Ελληνικά, русский, 東京の天気, 한국어, 😀👩‍🚀, ﬁ ligature, e\u0301 combining, "
    "\u00a0no-break",
    "It's we'll they'RE I'm you'd: don't! (a)[b]{c}<d> == != <= >= -> **kwargs @triton.jit "
    "# comment",
    "<|im_start|>user\nWrite a kernel.<|im_end|>\n<|im_start|>assistant\n",
)
_WRONG_TOKENS = (
    "the model would read other tokens than it was trained on; please report this tokenizer"
)
ADAPTER_SECONDS = 300
"""Seconds for PEFT to load the adapter."""

# F16 and F32 must agree with the source. The loss of a block type is the user's choice, so its
# divergence is reported and only nonsense fails.
_EXACT_LIMITS = (1e-2, 1e-5)
_QUANTISED_LIMITS = (float("inf"), 1.0)


@dataclass(frozen=True)
class ProvenVocabulary:
    """A tokenizer's proof, and its vocabulary as the bytes of a GGUF's header."""

    finding: Proof
    stored: bytes

    def is_in(self, path: Path) -> bool:
        """True when the file at `path` holds the same vocabulary, byte for byte."""
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            return view.find(self.stored) >= 0


def prove_vocabulary(
    folder: Path, request: ConvertRequest, recipe: Recipe, vocab: Vocab
) -> ProvenVocabulary | None:
    """The proof of the tokenizer before any tensor is written, on a file in `folder` without
    tensors.

    None where the level has no such proof. Raises VocabError when it fails.
    """
    # A given name is always tried, because llama.cpp refuses an unknown one.
    if request.level == "structure" and request.pre is None:
        return None
    made = folder / "vocabulary.gguf"
    write_vocabulary(made, recipe, vocab.metadata)
    finding = verify_tokenizer(made, vocab.folder, proof_texts(vocab))
    header = made.read_bytes()
    made.unlink()
    if finding.status == "fail":
        raise VocabError(f"the tokenizer cannot be carried over: {finding.detail}", _WRONG_TOKENS)
    return ProvenVocabulary(finding, header[header.index(b"tokenizer.ggml.model") :].rstrip(b"\0"))


def proof_texts(vocab: Vocab) -> tuple[str, ...]:
    """The texts of the tokenizer's proof: a corpus, and many short texts from the vocabulary."""
    texts = (*CORPUS, *probe_texts(vocab.metadata))
    if vocab.normal_form is not None:
        texts = tuple(unicodedata.normalize(vocab.normal_form, text) for text in texts)
    return tuple(vocab.bos + text for text in texts) if vocab.after_bos else texts


def prove(
    path: Path,
    request: ConvertRequest,
    recipe: Recipe,
    merged: Merged,
    vocab: Vocab,
    proven: ProvenVocabulary | None = None,
) -> tuple[Proof, ...]:
    """Every finding of the request's level; an impossible check is skipped with the reason.

    A vocabulary that is already `proven` is proven again only if the file holds another one.
    """
    findings = [verify_structure(path, recipe, merged.rows)]
    if request.level == "structure":
        return tuple(findings)
    known = proven is not None and proven.is_in(path)
    findings.append(
        proven.finding
        if known and proven is not None
        else verify_tokenizer(path, vocab.folder, proof_texts(vocab))
    )
    if request.level == "tokenizer":
        return tuple(findings)
    missing = missing_packages(request.adapter)
    if missing:
        return (
            *findings,
            Proof("logits", "skipped", f"not checked: {', '.join(missing)} not installed", {}),
        )
    with GgufFile(path) as stored:
        exact = all(
            tensor.type.name in ("F32", "F16", "BF16") for tensor in stored.tensors.values()
        )
    if not exact and request.level != "full":
        return (
            *findings,
            Proof("logits", "skipped", "not checked for a quantised file below level full", {}),
        )
    prompts = [ids[:PROMPT_TOKENS] for ids in gguf_ids(path, CORPUS) if ids]
    expected = _reference(request, prompts)
    if isinstance(expected, str):
        return (
            *findings,
            Proof(
                "logits", "skipped", f"not checked: transformers or peft failed with {expected}", {}
            ),
        )
    max_difference, max_kl = _EXACT_LIMITS if exact else _QUANTISED_LIMITS
    level = "logits" if exact else "quantisation"
    findings.append(
        compare_logits(
            level,
            gguf_logits(path, prompts),
            expected,
            max_difference=max_difference,
            max_kl=max_kl,
        )
    )
    return tuple(findings)


def _reference(request: ConvertRequest, prompts: list[list[int]]) -> Floats | str:
    """The reference's logits, or one line with the reason for their lack."""
    with files.temporary_folder() as folder:
        output = folder / "logits.npy"
        adapter = str(request.adapter.absolute()) if request.adapter else None
        document = {
            "base": str(request.base.absolute()),
            "adapter": adapter,
            "prompts": prompts,
            "output": str(output),
            "adapter_seconds": ADAPTER_SECONDS,
        }
        done = subprocess.run(
            python_child.module_command("convert.reference_logits", str(os.getpid())),
            cwd=python_child.WORKING_FOLDER,
            input=json.dumps(document).encode(),
            capture_output=True,
        )
        if done.returncode == -signal.SIGALRM:
            return f"an adapter that PEFT does not load within {ADAPTER_SECONDS} s"
        if done.returncode != 0:
            raised = re.findall(r"^[\w.]+: .+$", done.stderr.decode(errors="replace"), re.MULTILINE)
            return str(raised[-1][:300]) if raised else f"status {done.returncode}"
        result: Floats = np.load(output, allow_pickle=False)
        return result

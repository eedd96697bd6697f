"""Records the output of llama.cpp's own converter for `reference_models.CASES`.

    python -m tests.convert.record_reference TREE

TREE is llama.cpp's source in llama-cpp-python's sdist (vendor/llama.cpp). Needs transformers, torch
and sentencepiece. Writes fixtures/reference.json. `--tokenizers` first makes the fixture tokenizers
again, and records sentencepiece's ids of the proof corpus next to its model.

The converter finds a pre-tokenizer by a hash that only published vocabularies have, so that
function here returns "gpt-2", the type of the fixture's tokenizer. Multi-token-prediction layers
are left out as by its `--no-mtp`, because its adapter script fails with them. Everything else runs
as published.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from convert.checks import CORPUS
from tests.convert import reference_models
from tests.convert.gguf_digest import digest
from tests.convert.reference_models import CASES, FIXTURES, VOCAB

TEMPLATE = "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
_RUN = """
import runpy, sys
tree, script = sys.argv[1:3]
sys.path[:0] = [tree, tree + "/gguf-py"]
from conversion.base import TextModel
from conversion.qwen import Qwen3_5TextModel
Qwen3_5TextModel.no_mtp = True
TextModel.get_vocab_base_pre = lambda self, tokenizer: "gpt-2"
sys.argv = [script, *sys.argv[3:]]
runpy.run_path(tree + "/" + script, run_name="__main__")
"""


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="record the reference converter's output")
    parser.add_argument(
        "tree", type=Path, help="vendor/llama.cpp of an unpacked llama-cpp-python sdist"
    )
    parser.add_argument(
        "--package", default=version("llama-cpp-python"), help="the sdist's version"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        choices=sorted(CASES),
        metavar="CASE",
        help="record these, and keep the others",
    )
    parser.add_argument(
        "--tokenizers", action="store_true", help="make the fixture tokenizers anew first"
    )
    arguments = parser.parse_args()
    if arguments.tokenizers:
        make_tokenizers()
    versions = {
        "llama-cpp-python sdist": arguments.package,
        "transformers": version("transformers"),
        "torch": version("torch"),
    }
    recorded: dict[str, Any] = {"converter": versions, "cases": {}}
    if arguments.only:
        recorded["cases"] = json.loads((FIXTURES / "reference.json").read_text(encoding="utf-8"))[
            "cases"
        ]
    for name, case in CASES.items():
        if arguments.only and name not in arguments.only:
            continue
        with tempfile.TemporaryDirectory() as text:
            folder = Path(text)
            reference_models.write(case, folder)
            recorded["cases"][name] = {
                kind: _reference(arguments.tree, folder, kind, adapter=bool(case.adapter))
                for kind in case.types
            }
    (FIXTURES / "reference.json").write_text(
        json.dumps(recorded, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8"
    )


def _reference(tree: Path, folder: Path, kind: str, *, adapter: bool) -> dict[str, Any]:
    out = folder / "out.gguf"
    common = ["--outfile", str(out), "--outtype", kind.lower()]
    if adapter:
        arguments = [
            "convert_lora_to_gguf.py",
            *common,
            "--base",
            str(folder / "base"),
            str(folder / "adapter"),
        ]
    else:
        arguments = ["convert_hf_to_gguf.py", *common, "--model-name", "m", str(folder / "base")]
    subprocess.run([sys.executable, "-c", _RUN, str(tree), *arguments], check=True)
    return digest(out)


def make_tokenizers() -> None:
    """Three small tokenizers over this repository's own text.

    They are byte-level BPE, SentencePiece, and the latter as tokenizer.json.
    """
    text = "\n".join(path.read_text() for path in sorted(Path("convert").glob("*.py")))
    _byte_level(FIXTURES / "bpe", text)
    _sentencepiece(FIXTURES / "sentencepiece", text)
    _byte_fallback(FIXTURES / "sentencepiece", FIXTURES / "byte_fallback")


def _byte_level(folder: Path, text: str) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    folder.mkdir(parents=True, exist_ok=True)
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB - 8,
        special_tokens=["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|endoftext|>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    made.train_from_iterator([text], trainer)
    made.add_tokens(["<tool>"])
    made.save(str(folder / "tokenizer.json"))
    config = {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "chat_template": TEMPLATE,
        "add_bos_token": False,
    }
    (folder / "tokenizer_config.json").write_text(
        json.dumps({**config, "tokenizer_class": "PreTrainedTokenizerFast"}) + "\n"
    )


def _sentencepiece(folder: Path, text: str) -> None:
    sentencepiece: Any = importlib.import_module("sentencepiece")
    folder.mkdir(parents=True, exist_ok=True)
    # From memory to memory: a model stores the paths of its training files and of its own file.
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text.splitlines()),
        model_writer=written,
        model_type="bpe",
        vocab_size=VOCAB - 8,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        split_digits=True,
        allow_whitespace_only_pieces=True,
        user_defined_symbols=["<sep>"],
    )
    (folder / "tokenizer.model").write_bytes(written.getvalue())
    added = {
        str(VOCAB - 8 + i): {"content": token, "special": True}
        for i, token in enumerate(("<|im_start|>", "<|im_end|>"))
    }
    config = {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "add_bos_token": True,
        "add_eos_token": False,
    }
    config |= {
        "tokenizer_class": "LlamaTokenizer",
        "chat_template": TEMPLATE,
        "added_tokens_decoder": added,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config) + "\n")
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    ids = {
        "sentencepiece": version("sentencepiece"),
        "texts": list(CORPUS),
        "ids": [processor.encode(text) for text in CORPUS],
    }
    (folder.parent / "sentencepiece_ids.json").write_text(
        json.dumps(ids, ensure_ascii=False) + "\n", encoding="utf-8"
    )


def _byte_fallback(source: Path, folder: Path) -> None:
    """transformers' conversion of a tokenizer.model to tokenizer.json, with version 4's leading
    space.
    """
    from transformers import AutoTokenizer

    folder.mkdir(parents=True, exist_ok=True)
    AutoTokenizer.from_pretrained(source).save_pretrained(folder)
    path = folder / "tokenizer.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    document["normalizer"] = {
        "type": "Sequence",
        "normalizers": [{"type": "Prepend", "prepend": "\u2581"}, replace],
    }
    document["pre_tokenizer"] = None
    path.write_text(json.dumps(document, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

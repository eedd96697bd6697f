"""Turns a training run into the shipped file.

    python -m forge.export RUN TOKENIZER OUT.gguf [--kind Q8_0]

Puts the tokenizer next to the weights, in Hugging Face's form, and writes the GGUF with kmint's own
converter.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from convert.job import ConvertJob
from convert.request import ConvertRequest

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
MAX_BYTES = 32 * 1024 * 1024


def assemble(run: Path, tokenizer: Path, folder: Path) -> None:
    """Copy the weights, config.json and tokenizer of a run into one folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in (
        *sorted(run.glob("model*.safetensors")),
        *run.glob("model.safetensors.index.json"),
        run / "config.json",
    ):
        shutil.copyfile(path, folder / path.name)
    for name in TOKENIZER_FILES:
        shutil.copyfile(tokenizer / name, folder / name)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="write the embedded smith's GGUF")
    parser.add_argument("run", type=Path, help="output folder of forge.train")
    parser.add_argument(
        "tokenizer", type=Path, help="folder with tokenizer.json (the corpus folder)"
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--kind", choices=("F16", "Q8_0"), default="Q8_0")
    parser.add_argument(
        "--level",
        choices=("structure", "tokenizer", "logits", "full"),
        default="full",
        help="how much to prove",
    )
    parser.add_argument(
        "--folder", type=Path, help="where to assemble the Hugging Face folder (default: RUN/hf)"
    )
    arguments = parser.parse_args()
    folder = arguments.folder or arguments.run / "hf"
    assemble(arguments.run, arguments.tokenizer, folder)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with ConvertJob(
        ConvertRequest(
            base=folder, out=arguments.out, kinds=(arguments.kind,), level=arguments.level
        )
    ) as job:
        (written,) = job.run()
    print(f"{written.path}: {written.bytes} bytes")
    for line in (
        *written.notes,
        *(f"{finding.level}: {finding.status}, {finding.detail}" for finding in written.findings),
    ):
        print(f"  {line}")
    if written.bytes > MAX_BYTES:
        raise SystemExit(f"{written.bytes} bytes are more than {MAX_BYTES}")


if __name__ == "__main__":
    main()

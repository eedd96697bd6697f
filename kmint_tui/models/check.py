"""Whether a model file can be used, decided from its head alone, before llama.cpp ever sees it.

Checked: the container (`gguf_header.py`), the architecture, a vocabulary, a chat template, and the sizes that the memory
estimate needs. Not checked: the weights themselves, whose digest `digest.py` computes, and whether the model is any good.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kmint_tui.errors import ModelError
from kmint_tui.models.gguf_header import GgufError, Header, read_header

ARCHITECTURES = ("llama", "qwen35")

# llama.cpp's numbers for the kind of most of a file's tensors (`llama_ftype`).
_FILE_TYPES = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    25: "IQ4_NL",
    30: "IQ4_XS",
    32: "BF16",
}


@dataclass(frozen=True)
class ModelFile:
    """A usable model file and the facts of its head. `quant` is "?" when the file does not say."""

    path: Path
    nbytes: int
    architecture: str
    name: str
    quant: str
    context: int
    layers: int
    kv_layers: int
    kv_heads: int
    key_length: int
    value_length: int
    embedding: int
    vocabulary: int
    parameters: int


def check(path: Path) -> ModelFile:
    """The facts of a usable model file. Raises ModelError that says why a file is refused."""
    try:
        if not path.is_file():
            raise ModelError(
                f"{path} is not a file" if path.exists() else f"{path} does not exist", fix="`kmint models ls` shows what is there"
            )
        header = read_header(path)
        return _facts(path, header)
    except GgufError as error:
        raise ModelError(f"{path} is not a sound GGUF file: {error}", fix="fetch or make the file again") from error
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}") from error


def _facts(path: Path, header: Header) -> ModelFile:
    architecture = header.text("general.architecture")
    if architecture not in ARCHITECTURES:
        raise ModelError(f"{path}: architecture {architecture!r} is not supported", fix=f"kmint runs {' and '.join(ARCHITECTURES)} models")
    if header.text("tokenizer.ggml.model") is None or not header.count("tokenizer.ggml.tokens"):
        raise ModelError(f"{path} carries no vocabulary", fix="convert the model again, with its tokenizer")
    if not (header.text("tokenizer.chat_template") or "").strip():
        raise ModelError(f"{path} carries no chat template, so kmint cannot tell how to prompt it", fix="use an instruction-tuned model")

    def number(key: str) -> int:
        value = header.number(f"{architecture}.{key}")
        if value is None or value <= 0:
            raise ModelError(f"{path}: the header lacks {architecture}.{key}", fix="convert the model again")
        return value

    layers, heads, embedding = number("block_count"), number("attention.head_count"), number("embedding_length")
    interval = header.number(f"{architecture}.full_attention_interval") or 1
    file_type = header.number("general.file_type")
    head_length = max(embedding // heads, 1)
    return ModelFile(
        path=path,
        nbytes=header.file_bytes,
        architecture=architecture,
        name=header.text("general.name") or path.stem,
        quant=_FILE_TYPES.get(file_type, "?") if file_type is not None else "?",
        context=number("context_length"),
        layers=layers,
        kv_layers=layers // max(interval, 1),
        kv_heads=header.number(f"{architecture}.attention.head_count_kv") or heads,
        key_length=header.number(f"{architecture}.attention.key_length") or head_length,
        value_length=header.number(f"{architecture}.attention.value_length") or head_length,
        embedding=embedding,
        vocabulary=header.count("tokenizer.ggml.tokens") or 0,
        parameters=sum(_elements(tensor.shape) for tensor in header.tensors),
    )


def _elements(shape: tuple[int, ...]) -> int:
    product = 1
    for extent in shape:
        product *= extent
    return product

"""Decides from the head of a model file whether kmint can use it, before llama.cpp reads it.

Checked:
- the container (`convert/gguf_header.py`);
- the architecture and the pre-tokenizer, which the installed llama.cpp must know;
- the vocabulary and its special tokens;
- the presence of a chat template, which `check_template` also runs;
- the sizes for the memory estimate.

Not checked: the weights, whose digest `digest.py` computes, and the quality of the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from convert.gguf_header import GgufError, Header, read_header
from kmint_tui.errors import ModelError
from kmint_tui.installed import require

ARCHITECTURES = ("llama", "qwen2", "qwen3", "qwen35")
MAX_COUNT = 1 << 24

# llama.cpp's numbers of the file types (`llama_ftype`).
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


@dataclass(frozen=True, kw_only=True)
class ModelFile:
    """A usable model file and the facts of its head. `quant` is "?" without an entry in the file.

    `input_bytes` is the part of the weights that stays in main memory when all layers go to a GPU.
    The `state_` and `conv_` fields count the 32-bit floats of recurrent layers for one sequence; 0
    without such layers.
    """

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
    heads: int = 1
    feed_forward: int = 0
    input_bytes: int = 0
    state_layers: int = 0
    state_size: int = 0
    conv_size: int = 0
    conv_kernel: int = 0


def check(path: Path) -> ModelFile:
    """The facts of a usable model file. Raises ModelError with the reason for a refusal."""
    try:
        if not path.is_file():
            raise ModelError(
                f"{path} is not a file" if path.exists() else f"{path} does not exist",
                fix="`kmint models ls` lists the models",
            )
        header = read_header(path)
        return facts(path, header)
    except GgufError as error:
        raise ModelError(
            f"{path} is not a sound GGUF file: {error}", fix="fetch or make the file again"
        ) from error
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}") from error


def facts(path: Path, header: Header) -> ModelFile:
    """The facts of a head, also of an incomplete file.

    Raises ModelError with the reason for a refusal.
    """
    architecture = header.text("general.architecture")
    if architecture not in ARCHITECTURES:
        raise ModelError(
            f"{path}: architecture {architecture!r} is not supported",
            fix=f"kmint runs models of {', '.join(ARCHITECTURES)}",
        )
    require(path, "architecture", architecture)
    vocabulary = _check_vocabulary(path, header)
    if not (header.text("tokenizer.chat_template") or "").strip():
        raise ModelError(
            f"{path} carries no chat template, so kmint cannot tell how to prompt it",
            fix="use an instruction-tuned model",
        )

    def number(key: str, default: int | None = None) -> int:
        value = header.number(f"{architecture}.{key}")
        value = default if value is None else value
        if value is None:
            raise ModelError(
                f"{path}: the header lacks {architecture}.{key}", fix="convert the model again"
            )
        if not 0 < value <= MAX_COUNT:
            raise ModelError(
                f"{path}: {architecture}.{key} is {value}", fix="convert the model again"
            )
        return value

    layers, heads, embedding = (
        number("block_count"),
        number("attention.head_count"),
        number("embedding_length"),
    )
    recurrent = header.number(f"{architecture}.ssm.inner_size") is not None
    kv_layers = layers // number("full_attention_interval", 1)
    inner, state = (number("ssm.inner_size"), number("ssm.state_size")) if recurrent else (0, 0)
    file_type = header.number("general.file_type")
    tables = {
        tensor.name: tensor
        for tensor in header.tensors
        if tensor.name in ("token_embd.weight", "output.weight")
    }
    table = tables.get("token_embd.weight")
    if table is None or table.shape != (embedding, vocabulary):
        shape = "is missing" if table is None else f"has the shape {table.shape}"
        raise ModelError(
            f"{path}: token_embd.weight {shape}, not {(embedding, vocabulary)}",
            fix="convert the model again",
        )
    return ModelFile(
        path=path,
        nbytes=header.file_bytes,
        architecture=architecture,
        name=header.text("general.name") or path.stem,
        quant=_FILE_TYPES.get(file_type, "?") if file_type is not None else "?",
        context=number("context_length"),
        layers=layers,
        kv_layers=kv_layers,
        kv_heads=number("attention.head_count_kv", heads),
        key_length=number("attention.key_length", max(embedding // heads, 1)),
        value_length=number("attention.value_length", max(embedding // heads, 1)),
        embedding=embedding,
        vocabulary=vocabulary,
        parameters=sum(_elements(tensor.shape) for tensor in header.tensors),
        heads=heads,
        feed_forward=number("feed_forward_length"),
        # Without an output matrix, the input table is copied to the GPU as well.
        input_bytes=table.nbytes if "output.weight" in tables else 0,
        state_layers=layers - kv_layers if recurrent else 0,
        state_size=inner * state,
        conv_size=inner + 2 * number("ssm.group_count") * state if recurrent else 0,
        conv_kernel=number("ssm.conv_kernel") if recurrent else 0,
    )


def _check_vocabulary(path: Path, header: Header) -> int:
    """The number of tokens; raises ModelError without the facts that tokenisation needs."""
    again = "convert the model again, with its tokenizer"
    kind, count = header.text("tokenizer.ggml.model"), header.count("tokenizer.ggml.tokens")
    if kind is None or not count:
        raise ModelError(f"{path} carries no vocabulary", fix=again)
    cut = header.text("tokenizer.ggml.pre")
    if kind == "gpt2":
        if cut is None:
            raise ModelError(
                f"{path} does not name its pre-tokenizer, so llama.cpp would split text wrongly",
                fix=again,
            )
        require(path, "pre-tokenizer", cut)
    end = header.number("tokenizer.ggml.eos_token_id")
    if end is None or not 0 <= end < count:
        raise ModelError(
            f"{path}: no token of its {count} is known to end an answer (eos_token_id is {end})",
            fix=again,
        )
    return count


def check_template(path: Path, header: Header | None = None) -> None:
    """Run the chat template of the file (or of its `header`) on a prompt.

    Raises ModelError when the template fails or cannot switch thinking off, EnvironmentUnfit when
    it cannot be tried.
    """
    # Most commands read models without rendering a prompt.
    from kmint_tui.smith.prompts import Prompt
    from kmint_tui.smith.template import TemplateRefused
    from kmint_tui.smith.template_process import rendered

    template = (header or read_header(path)).text("tokenizer.chat_template") or ""
    try:
        rendered([Prompt("Write kernels.", "Op `probe`: nothing.")], template, bos="")
    except TemplateRefused as refused:
        raise ModelError(
            f"{path}: {refused.reason}",
            fix="use a model whose template has a form without thinking",
        ) from refused


def _elements(shape: tuple[int, ...]) -> int:
    product = 1
    for extent in shape:
        product *= extent
    return product

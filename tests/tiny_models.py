"""Tiny random GGUF models for tests: real files that llama.cpp loads, of the shapes that go wrong
most easily.

`llama` is grouped-query with a head size that is not hidden / heads; `qwen35` is a hybrid whose
layers are recurrent (gated delta net) but for every fourth. The weights are random, so the text
they write is noise; what matters is that two runs write the same noise. Tensor names, metadata keys
and shapes follow llama.cpp's loaders (src/models/llama.cpp and qwen35.cpp at the revision vendored
by llama-cpp-python 0.3.36).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType, GGUFWriter, TokenType
from gguf.quants import quantize

if TYPE_CHECKING:
    from tokenizers import Tokenizer

BOS, EOS, IM_START, IM_END = "<s>", "</s>", "<|im_start|>", "<|im_end|>"
SPECIAL = (BOS, EOS, IM_START, IM_END)

CHATML = (
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant{{ '\\n' }}"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>{{ '\\n\\n' }}{% endif %}"
)

CORPUS = (
    "@triton.jit\ndef _kernel(x_ptr, w_ptr, y_ptr, N, eps, BLOCK: tl.constexpr):\n    row = tl.program_id(0)\n"
    "    cols = tl.arange(0, BLOCK)\n    x = tl.load(x_ptr + row * N + cols, mask=cols < N, other=0.0).to(tl.float32)\n"
    "    tl.store(y_ptr + row * N + cols, x, mask=cols < N)\n\n\ndef run(x, w):\n    M, N = x.shape\n"
    "    y = torch.empty_like(x)\n    _kernel[(M,)](x, w, y, N, 1e-6, BLOCK=1024)\n    return y\n```python\n```\n",
    "Op `softmax`: row softmax.\nSignature:\n  run(x: Tensor[M, N]) -> Tensor[M, N]\nsystem user assistant ünïcödé 漢字 🙂",
)


Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Shape:
    """Sizes of a model. `head` is the size of one attention head, independent of `hidden`.

    Tokens beyond the learned vocabulary are fillers. With `same_layers`, all layers share one set
    of weights, which makes large files quickly.
    """

    layers: int = 2
    hidden: int = 64
    heads: int = 4
    kv_heads: int = 2
    head: int = 32
    feed_forward: int = 128
    context: int = 2048
    spread: float = 0.2
    vocabulary: int = 384
    same_layers: bool = False


def tokenizer(vocabulary: int = 384) -> Tokenizer:
    """A byte-level BPE of at most `vocabulary` tokens, trained on `CORPUS`; ids 0-3 are `SPECIAL`."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    made.train_from_iterator(CORPUS * 4, trainer)
    return made


def llama(
    path: Path,
    shape: Shape | None = None,
    *,
    seed: int = 0,
    quant: str = "F16",
    template: str | None = CHATML,
    end: float = 0.0,
) -> Path:
    """Write a random llama-architecture GGUF. `quant` is F32, F16 or Q8_0 (matrices; norms stay
    F32).

    `end` shifts the end-of-text token's logit, so that tests can make drafts end early (2) or never
    (-9): the first component of the hidden state is kept constant and only that token's output row
    reads it.
    """
    shape = shape or Shape()
    writer, vocabulary = _begin(path, "llama", shape, template)
    draw = np.random.default_rng(seed)
    kind = GGMLQuantizationType[quant]
    writer.add_key_length(shape.head)
    writer.add_value_length(shape.head)
    writer.add_rope_dimension_count(shape.head)
    writer.add_rope_freq_base(10000.0)
    query, key = shape.heads * shape.head, shape.kv_heads * shape.head
    embedding = _random(draw, shape, vocabulary, shape.hidden)
    embedding[:, 0] = 3 * shape.spread
    _add(writer, "token_embd.weight", embedding, kind)
    _add(writer, "output_norm.weight", np.ones(shape.hidden, np.float32))
    output = _random(draw, shape, vocabulary, shape.hidden) * 4
    output[:, 0] = 0
    output[1, 0] = end
    _add(writer, "output.weight", output, kind)
    sizes = {
        "attn_q": (query, shape.hidden),
        "attn_k": (key, shape.hidden),
        "attn_v": (key, shape.hidden),
        "attn_output": (shape.hidden, query),
        "ffn_gate": (shape.feed_forward, shape.hidden),
        "ffn_up": (shape.feed_forward, shape.hidden),
        "ffn_down": (shape.hidden, shape.feed_forward),
    }
    weights: dict[str, npt.NDArray[np.generic]] = {}
    for layer in range(shape.layers):
        if not (weights and shape.same_layers):
            weights = {
                name: quantize(_for_hidden(name, _random(draw, shape, *size)), kind)
                for name, size in sizes.items()
            }
        for name, values in weights.items():
            writer.add_tensor(f"blk.{layer}.{name}.weight", values, raw_dtype=kind)
        for name in ("attn_norm", "ffn_norm"):
            _add(writer, f"blk.{layer}.{name}.weight", np.ones(shape.hidden, np.float32))
    return _finish(writer, path)


def scripted(path: Path, pieces: Sequence[bytes], *, template: str | None = CHATML) -> Path:
    """Write a model that answers every prompt with exactly `pieces`, one token each, and then ends.

    One-hot embeddings and no attention make it a table of successors, so no piece may come twice. A
    piece may be any bytes, also half of a character.
    """
    made = tokenizer()
    letters = _byte_letters()
    names = ["".join(letters[byte] for byte in piece) for piece in pieces]
    if len(set(names)) < len(names):
        raise ValueError("a scripted model cannot say the same piece twice")
    base = made.get_vocab_size()
    known = made.get_vocab()
    extra = [name for name in names if name not in known]
    ids = [known[name] if name in known else base + extra.index(name) for name in names]
    vocabulary = base + len(extra)
    hidden = -(-vocabulary // 32) * 32
    shape = Shape(layers=1, hidden=hidden, heads=1, kv_heads=1, head=32, feed_forward=32)
    writer, _ = _begin(path, "llama", shape, template, extra)
    writer.add_key_length(shape.head)
    writer.add_value_length(shape.head)
    writer.add_rope_dimension_count(shape.head)
    writer.add_rope_freq_base(10000.0)
    successor = np.full(vocabulary, ids[0], np.int64)
    successor[ids] = [*ids[1:], 1]
    output = np.zeros((vocabulary, hidden), np.float32)
    output[successor, np.arange(vocabulary)] = 40 / np.sqrt(hidden)
    _add(writer, "token_embd.weight", np.eye(vocabulary, hidden, dtype=np.float32))
    _add(writer, "output_norm.weight", np.ones(hidden, np.float32))
    _add(writer, "output.weight", output)
    for name, rows, columns in (
        ("attn_q", 32, hidden),
        ("attn_k", 32, hidden),
        ("attn_v", 32, hidden),
        ("attn_output", hidden, 32),
        ("ffn_gate", 32, hidden),
        ("ffn_up", 32, hidden),
        ("ffn_down", hidden, 32),
    ):
        _add(writer, f"blk.0.{name}.weight", np.zeros((rows, columns), np.float32))
    for name in ("attn_norm", "ffn_norm"):
        _add(writer, f"blk.0.{name}.weight", np.ones(hidden, np.float32))
    return _finish(writer, path)


def qwen35(
    path: Path, shape: Shape | None = None, *, seed: int = 0, template: str | None = CHATML
) -> Path:
    """Write a random qwen35 hybrid: four layers, the last with full attention; three value heads to
    each key head.
    """
    shape = shape or Shape(layers=4)
    writer, vocabulary = _begin(path, "qwen35", shape, template)
    draw = np.random.default_rng(seed)
    kind = GGMLQuantizationType.F16
    key_heads, value_heads, state, kernel = 2, 6, 16, 4
    inner, conv = value_heads * state, 2 * key_heads * state + value_heads * state
    writer.add_key_length(shape.head)
    writer.add_value_length(shape.head)
    writer.add_rope_dimension_count(shape.head // 4)
    writer.add_rope_dimension_sections([2, 1, 1, 0])
    writer.add_rope_freq_base(1e7)
    writer.add_uint32("qwen35.full_attention_interval", 4)
    writer.add_ssm_conv_kernel(kernel)
    writer.add_ssm_state_size(state)
    writer.add_ssm_group_count(key_heads)
    writer.add_ssm_time_step_rank(value_heads)
    writer.add_ssm_inner_size(inner)
    query, key = shape.heads * shape.head, shape.kv_heads * shape.head
    _add(writer, "token_embd.weight", _random(draw, shape, vocabulary, shape.hidden), kind)
    _add(writer, "output_norm.weight", np.ones(shape.hidden, np.float32))
    _add(writer, "output.weight", _random(draw, shape, vocabulary, shape.hidden) * 4, kind)
    for layer in range(shape.layers):
        block = f"blk.{layer}."
        _add(writer, block + "attn_norm.weight", np.ones(shape.hidden, np.float32))
        if (layer + 1) % 4 == 0:
            _add(
                writer, block + "attn_q.weight", _random(draw, shape, 2 * query, shape.hidden), kind
            )
            _add(writer, block + "attn_k.weight", _random(draw, shape, key, shape.hidden), kind)
            _add(writer, block + "attn_v.weight", _random(draw, shape, key, shape.hidden), kind)
            _add(
                writer,
                block + "attn_output.weight",
                _random(draw, shape, shape.hidden, query),
                kind,
            )
            _add(writer, block + "attn_q_norm.weight", np.ones(shape.head, np.float32))
            _add(writer, block + "attn_k_norm.weight", np.ones(shape.head, np.float32))
        else:
            _add(writer, block + "attn_qkv.weight", _random(draw, shape, conv, shape.hidden), kind)
            _add(
                writer, block + "attn_gate.weight", _random(draw, shape, inner, shape.hidden), kind
            )
            _add(writer, block + "ssm_conv1d.weight", _random(draw, shape, conv, kernel))
            _add(writer, block + "ssm_dt.bias", _random(draw, shape, value_heads))
            _add(writer, block + "ssm_a", -np.exp(_random(draw, shape, value_heads)))
            _add(
                writer,
                block + "ssm_beta.weight",
                _random(draw, shape, value_heads, shape.hidden),
                kind,
            )
            _add(
                writer,
                block + "ssm_alpha.weight",
                _random(draw, shape, value_heads, shape.hidden),
                kind,
            )
            _add(writer, block + "ssm_norm.weight", np.ones(state, np.float32))
            _add(writer, block + "ssm_out.weight", _random(draw, shape, shape.hidden, inner), kind)
        _feed_forward(writer, draw, shape, block, "post_attention_norm.weight", kind)
    return _finish(writer, path)


def _begin(
    path: Path, architecture: str, shape: Shape, template: str | None, extra: Sequence[str] = ()
) -> tuple[GGUFWriter, int]:
    made = tokenizer()
    names = [made.id_to_token(index) for index in range(made.get_vocab_size())] + list(extra)
    names += [f"[filler {index}]" for index in range(len(names), shape.vocabulary)]
    vocabulary = len(names)
    merges = _merges(made)
    writer = GGUFWriter(path, architecture)
    writer.add_name(f"tiny {architecture}")
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(vocabulary)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(names)
    writer.add_token_types(
        [TokenType.CONTROL if name in SPECIAL else TokenType.NORMAL for name in names]
    )
    writer.add_token_merges(merges)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_add_bos_token(False)
    if template is not None:
        writer.add_chat_template(template)
    return writer, vocabulary


def _merges(made: Tokenizer) -> list[str]:
    pairs = json.loads(made.to_str())["model"]["merges"]
    return [pair if isinstance(pair, str) else " ".join(pair) for pair in pairs]


def _byte_letters() -> dict[int, str]:
    """The printable stand-in of each byte in a byte-level BPE vocabulary (GPT-2's table)."""
    printable = [
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    ]
    rest = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {
        byte: chr(256 + index) for index, byte in enumerate(rest)
    }


def _for_hidden(name: str, matrix: Floats) -> Floats:
    """Stop a matrix that writes to the hidden state from changing its first component."""
    if name in ("attn_output", "ffn_down"):
        matrix[0] = 0
    return matrix


def _random(draw: np.random.Generator, shape: Shape, *size: int) -> Floats:
    return (draw.standard_normal(size) * shape.spread).astype(np.float32)


def _feed_forward(
    writer: GGUFWriter,
    draw: np.random.Generator,
    shape: Shape,
    block: str,
    norm: str,
    kind: GGMLQuantizationType,
) -> None:
    _add(writer, block + norm, np.ones(shape.hidden, np.float32))
    _add(
        writer,
        block + "ffn_gate.weight",
        _random(draw, shape, shape.feed_forward, shape.hidden),
        kind,
    )
    _add(
        writer,
        block + "ffn_up.weight",
        _random(draw, shape, shape.feed_forward, shape.hidden),
        kind,
    )
    _add(
        writer,
        block + "ffn_down.weight",
        _random(draw, shape, shape.hidden, shape.feed_forward),
        kind,
    )


def _add(
    writer: GGUFWriter,
    name: str,
    values: Floats,
    kind: GGMLQuantizationType = GGMLQuantizationType.F32,
) -> None:
    writer.add_tensor(name, quantize(values.astype(np.float32), kind), raw_dtype=kind)


def _finish(writer: GGUFWriter, path: Path) -> Path:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path

"""A small Llama in plain torch with tied embeddings.

Parameter names and numerics are those of Hugging Face's LlamaForCausalLM: rotary embedding in the
half-rotation form, RMSNorm in float32, SwiGLU, causal attention through torch's SDPA.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Cache = list[tuple[Tensor, Tensor]]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Sizes of the network."""

    vocabulary: int
    hidden: int = 320
    layers: int = 8
    heads: int = 5
    head_dim: int = 64
    ffn: int = 896
    context: int = 2048
    rope_theta: float = 10000.0
    eps: float = 1e-6

    def config(self, eos: int, pad: int, bos: int) -> dict[str, Any]:
        """config.json of a LlamaForCausalLM."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_act": "silu",
            "hidden_size": self.hidden,
            "intermediate_size": self.ffn,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.heads,
            "head_dim": self.head_dim,
            "max_position_embeddings": self.context,
            "rms_norm_eps": self.eps,
            "rope_theta": self.rope_theta,
            "rope_scaling": None,
            "tie_word_embeddings": True,
            "attention_bias": False,
            "mlp_bias": False,
            "vocab_size": self.vocabulary,
            "initializer_range": 0.02,
            "bos_token_id": bos,
            "eos_token_id": eos,
            "pad_token_id": pad,
            "torch_dtype": "float16",
        }

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> Shape:
        """The sizes in a config.json that `config` wrote."""
        return cls(
            vocabulary=config["vocab_size"],
            hidden=config["hidden_size"],
            layers=config["num_hidden_layers"],
            heads=config["num_attention_heads"],
            head_dim=config["head_dim"],
            ffn=config["intermediate_size"],
            context=config["max_position_embeddings"],
            rope_theta=config["rope_theta"],
            eps=config["rms_norm_eps"],
        )


class RMSNorm(nn.Module):
    """RMSNorm with a weight."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), self.eps)


def rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate x (batch, heads, length, head_dim) by tables that broadcast to it."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Attention(nn.Module):
    """Causal multi-head attention."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.heads * shape.head_dim
        self.heads, self.head_dim = shape.heads, shape.head_dim
        self.q_proj, self.k_proj, self.v_proj = (
            nn.Linear(shape.hidden, width, bias=False) for _ in range(3)
        )
        self.o_proj = nn.Linear(width, shape.hidden, bias=False)

    def forward(
        self,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        mask: Tensor | None,
        past: tuple[Tensor, Tensor] | None,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        split = (x.shape[0], x.shape[1], self.heads, self.head_dim)
        q, k, v = (
            layer(x).view(split).transpose(1, 2)
            for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = rotary(q, cos, sin), rotary(k, cos, sin)
        if past is not None:
            k, v = torch.cat((past[0], k), dim=2), torch.cat((past[1], v), dim=2)
        out = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=mask is None and past is None
        )
        return self.o_proj(out.transpose(1, 2).reshape(x.shape[0], x.shape[1], -1)), (k, v)


class MLP(nn.Module):
    """SwiGLU."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = (
            nn.Linear(shape.hidden, shape.ffn, bias=False) for _ in range(2)
        )
        self.down_proj = nn.Linear(shape.ffn, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Layer(nn.Module):
    """One transformer layer."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = (
            RMSNorm(shape.hidden, shape.eps) for _ in range(2)
        )
        self.self_attn, self.mlp = Attention(shape), MLP(shape)

    def forward(
        self,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        mask: Tensor | None,
        past: tuple[Tensor, Tensor] | None,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        attended, cache = self.self_attn(self.input_layernorm(x), cos, sin, mask, past)
        x = x + attended
        return x + self.mlp(self.post_attention_layernorm(x)), cache


class Body(nn.Module):
    """Embeddings, layers and the last norm, under Hugging Face's names."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = RMSNorm(shape.hidden, shape.eps)


class Llama(nn.Module):
    """The network. `forward` gives final hidden states; `logits` turns them into scores."""

    def __init__(self, shape: Shape, seed: int = 0) -> None:
        super().__init__()
        self.shape = shape
        self.model = Body(shape)
        generator = torch.Generator().manual_seed(seed)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                narrow = (
                    (2 * shape.layers) ** -0.5 if "o_proj" in name or "down_proj" in name else 1.0
                )
                with torch.no_grad():
                    parameter.copy_(
                        torch.randn(parameter.shape, generator=generator) * 0.02 * narrow
                    )

    def tables(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """cos and sin for positions (batch, length), shaped (batch, 1, length, head_dim)."""
        dim = self.shape.head_dim
        frequency = self.shape.rope_theta ** (
            -torch.arange(0, dim, 2, device=positions.device, dtype=torch.float32) / dim
        )
        angle = positions[:, None, :, None].float() * frequency
        angle = torch.cat((angle, angle), dim=-1)
        return angle.cos().to(dtype), angle.sin().to(dtype)

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
        past: Cache | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> tuple[Tensor, Cache]:
        if positions is None:
            positions = torch.arange(tokens.shape[1], device=tokens.device)[None]
        cos, sin = self.tables(positions, dtype)
        x = self.model.embed_tokens(tokens).to(dtype)
        caches: Cache = []
        for index, layer in enumerate(self.model.layers):
            x, cache = layer(x, cos, sin, mask, past[index] if past else None)
            caches.append(cache)
        return self.model.norm(x), caches

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores over the vocabulary."""
        return F.linear(hidden, self.model.embed_tokens.weight.to(hidden.dtype))


def describe(shape: Shape) -> dict[str, Any]:
    """The shape as plain data."""
    return asdict(shape)

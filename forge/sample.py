"""Samples many drafts at once in torch: one prefill a prompt, N sequences from its cache.

It shows the smith's quality right after training, without a conversion. The order is llama.cpp's:
the nucleus is cut at temperature 1, and the temperature comes last.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from forge.model import Llama


def pick(scores: Tensor, temperature: float, top_p: float, generator: torch.Generator) -> Tensor:
    """One token a row of float32 scores."""
    ordered, index = scores.softmax(-1).sort(dim=-1, descending=True)
    outside = ordered.cumsum(-1) - ordered > top_p
    kept = (ordered.log() / temperature).masked_fill(outside, -torch.inf).softmax(-1)
    return index.gather(1, torch.multinomial(kept, 1, generator=generator))


@torch.no_grad()
def sample(
    model: Llama,
    prompts: Sequence[Sequence[int]],
    drafts: int,
    *,
    eos: int,
    limit: int,
    seed: int,
    temperature: float = 0.7,
    top_p: float = 0.97,
    dtype: torch.dtype = torch.float32,
) -> list[list[list[int]]]:
    """For every prompt, `drafts` token lists without the end token.

    A list of `limit` tokens was cut.
    """
    device = model.model.embed_tokens.weight.device
    generator = torch.Generator(device=device).manual_seed(seed)
    longest = max(map(len, prompts))
    tokens = torch.full((len(prompts), longest), eos, device=device)
    valid = torch.zeros((len(prompts), longest), dtype=torch.bool, device=device)
    for row, prompt in enumerate(prompts):
        tokens[row, longest - len(prompt) :] = torch.tensor(prompt, device=device)
        valid[row, longest - len(prompt) :] = True
    positions = (valid.cumsum(1) - 1).clamp(min=0)
    causal = torch.ones((longest, longest), dtype=torch.bool, device=device).tril()
    mask = causal[None, None] & (
        valid[:, None, None, :] | torch.eye(longest, dtype=torch.bool, device=device)[None, None]
    )
    hidden, cache = model(tokens, positions, mask, None, dtype)
    scores = model.logits(hidden[:, -1]).float().repeat_interleave(drafts, 0)
    cache = [(k.repeat_interleave(drafts, 0), v.repeat_interleave(drafts, 0)) for k, v in cache]
    seen = valid.repeat_interleave(drafts, 0)
    place = (positions[:, -1:] + 1).repeat_interleave(drafts, 0)
    done = torch.zeros(scores.shape[0], dtype=torch.bool, device=device)
    out: list[Tensor] = []
    for step in range(limit):
        token = pick(scores, temperature, top_p, generator)
        token[done] = eos
        done |= token[:, 0] == eos
        out.append(token)
        if step % 16 == 15 and bool(done.all()):
            break
        seen = torch.cat((seen, torch.ones_like(seen[:, :1])), dim=1)
        hidden, cache = model(token, place, seen[:, None, None, :], cache, dtype)
        scores = model.logits(hidden[:, -1]).float()
        place = place + 1
    rows = torch.cat(out, dim=1).tolist()
    finished = [row[: row.index(eos)] if eos in row else row for row in rows]
    return [finished[index * drafts : (index + 1) * drafts] for index in range(len(prompts))]

"""Wrong twins of the kernels in this folder: one planted mistake each, and the guards that may find it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Twin:
    """The kernel `of` with `new` in place of `old`, which occurs once."""

    of: str
    mistake: str
    old: str
    new: str
    guards: frozenset[str] = frozenset({"wrong_answer"})


_RACE = frozenset({"not_deterministic"})
_OUTSIDE = frozenset({"out_of_bounds"})
_INPUT = frozenset({"input_mutated", "input_written"})

TWINS = (
    Twin(
        "l2norm_split_rows",
        "all splits of a row share one partial sum",
        "tl.store(part + row * splits + split, total)",
        "tl.store(part + row * splits, total)",
        _RACE,
    ),
    Twin(
        "layernorm_64kb",
        "lanes beyond the row count in the variance",
        "x = tl.where(cols < N, x - mean, 0.0)",
        "x = x - mean",
    ),
    Twin(
        "rmsnorm_autograd",
        "epsilon is added to the root",
        "tl.rsqrt(tl.sum(x * x, axis=0) / n_cols + eps)",
        "1 / (tl.sqrt(tl.sum(x * x, axis=0) / n_cols) + eps)",
    ),
    Twin(
        "fp8_scratch_roundtrip",
        "the last column of the scratch keeps what was there",
        "(x / s).to(tl.float8e4nv), mask=c < N)",
        "(x / s).to(tl.float8e4nv), mask=c < N - 1)",
        frozenset({"wrong_answer", "not_deterministic", "out_of_bounds", "uninitialised"}),
    ),
    Twin(
        "cumsum_two_launches",
        "a chunk counts its own sum twice",
        "mask=s < chunk, other=0.0",
        "mask=s <= chunk, other=0.0",
    ),
    Twin(
        "strided_transpose_scale",
        "the strides are swapped",
        "rm[:, None] * sxm + rn[None, :] * sxn",
        "rm[:, None] * sxn + rn[None, :] * sxm",
        frozenset({"wrong_answer", "out_of_bounds"}),
    ),
    Twin(
        "inplace_fused_add_rmsnorm",
        "the residual keeps its old value",
        "    tl.store(r_ptr + row * N + c, rounded, mask=mask)\n",
        "",
    ),
    Twin(
        "inplace_sgd_momentum",
        "the step leaves the momentum out",
        "- lr * m, mask=live)",
        "- lr * tl.load(g_ptr + i, mask=live), mask=live)",
    ),
    Twin(
        "inplace_kv_cache",
        "the last number of each key is not stored",
        "k, mask=c < width)",
        "k, mask=c < width - 1)",
    ),
    Twin(
        "inplace_cross_entropy",
        "the label's logit is read after its gradient replaced it",
        "    tl.debug_barrier()\n",
        "    tl.debug_barrier()\n    picked = tl.load(X + y)\n",
    ),
    Twin(
        "inplace_adamw",
        "the gradient is cleared, which the reference keeps",
        "    tl.store(v_ptr + i, v, mask=live)\n",
        "    tl.store(v_ptr + i, v, mask=live)\n    tl.store(g_ptr + i, g * 0, mask=live)\n",
        _INPUT,
    ),
    Twin(
        "inplace_silu",
        "the input is changed, and another tensor is returned",
        "    return x\n",
        "    return x.clone()\n",
        _INPUT,
    ),
    Twin(
        "attention_block_dot",
        "keys beyond the last one have a weight",
        '        s = tl.where(rn[None, :] < S, s, float("-inf"))\n',
        "",
    ),
    Twin(
        "attention_decode_split",
        "all splits have the same weight",
        "w = tl.exp(lse - tl.max(lse, axis=0))",
        "w = tl.where(s < splits, 1.0, 0.0)",
    ),
    Twin(
        "embedding_backward_atomics",
        "a sum of loads and stores in place of atomics",
        'tl.atomic_add(dw + row * D + d, g, mask=d < D, sem="relaxed")',
        "tl.store(dw + row * D + d, tl.load(dw + row * D + d, mask=d < D) + g, mask=d < D)",
        _RACE,
    ),
    Twin(
        "mean_loss_atomics",
        "the sum begins with what was in memory",
        "torch.zeros((), dtype",
        "torch.empty((), dtype",
        frozenset({"wrong_answer", "not_deterministic", "out_of_bounds", "uninitialised"}),
    ),
    Twin(
        "softmax_with_sinks",
        "the sink of the row's number in place of the head's",
        "tl.load(SINK + row % heads)",
        "tl.load(SINK + row // heads)",
        frozenset({"wrong_answer", "out_of_bounds"}),
    ),
    Twin(
        "softmax_block_pointers",
        "zeros beyond the row count in the sum",
        '        tile = tl.where((start + tl.arange(0, COLS))[None, :] < N, tile, float("-inf"))\n',
        "",
    ),
    Twin(
        "fp8_quant_rows_e5m2",
        "the largest number of the other format",
        "info.max, BLOCK",
        "448.0, BLOCK",
    ),
    Twin(
        "fp8_quant_groups_e4m3",
        "the values are a tenth too large, less than one step of the format",
        "x / scale, -448.0)",
        "1.1 * x / scale, -448.0)",
    ),
    Twin(
        "sum_float64",
        "the sum is kept in float32",
        "tl.store(o_ptr + row, tl.sum(acc, axis=0))",
        "tl.store(o_ptr + row, tl.sum(acc.to(tl.float32), axis=0))",
    ),
    Twin(
        "fp8_dequant_e5m2_blocks",
        "every group has the scale of the first",
        "tl.load(s_ptr + row * groups + group)",
        "tl.load(s_ptr + row * groups)",
    ),
    Twin(
        "fp8_dequant_e4m3",
        "columns beyond 8,192 are not computed",
        "range(0, N, BLOCK)",
        "range(0, min(N, 8192), BLOCK)",
        frozenset({"wrong_answer", "not_deterministic", "uninitialised"}),
    ),
    Twin(
        "int8_weight_only_matmul",
        "the last group of tiles is taken to be full",
        "size_m = min(num_m - first_m, GROUP)",
        "size_m = GROUP",
        frozenset({"wrong_answer", "not_deterministic", "uninitialised"}),
    ),
    Twin(
        "topk_gating",
        "no barrier between the stores and the loads of one program",
        "    tl.debug_barrier()\n",
        "",
        _RACE,
    ),
    Twin(
        "rope_qk_in_place",
        "the second half turns with the new first half",
        "    tl.store(q_ptr + t * q_row + at, lo * cos - hi * sin, mask=keep)\n",
        "    lo = lo * cos - hi * sin\n    tl.store(q_ptr + t * q_row + at, lo, mask=keep)\n",
    ),
    Twin(
        "group_norm",
        "the weights repeat by element",
        "group * per_group + i // L",
        "group * per_group + i % per_group",
    ),
    Twin(
        "linear_recurrence_scan",
        "the pairs are combined the other way round",
        "b0 * a1 + b1",
        "b1 * a0 + b0",
    ),
    Twin(
        "transposed_output",
        "the memory is viewed in place of transposed",
        "return y.t()",
        "return y.view(M, N)",
    ),
    Twin("dropout_by_seed", "what is kept and dropped is swapped", "i) > p", "i) < p"),
    Twin(
        "layernorm_backward_partial",
        "the last program reads rows that do not exist",
        "live = mask & (row < M)",
        "live = mask",
        _OUTSIDE,
    ),
    Twin(
        "causal_conv1d_silu",
        "the first taps see the end of the channel before",
        "mask=(s >= 0) & (s < L)",
        "mask=s < L",
        frozenset({"wrong_answer", "out_of_bounds"}),
    ),
    Twin(
        "jsd_loss_and_grad",
        "the gradient leaves the factor out",
        "tl.store(DP + row * N + c, beta * p * (lp - lm), mask=mask)",
        "tl.store(DP + row * N + c, p * (lp - lm), mask=mask)",
    ),
    Twin(
        "int8_quant_rows",
        "rounded down in place of to the nearest",
        "libdevice.rint(x / s)",
        "libdevice.floor(x / s)",
    ),
)

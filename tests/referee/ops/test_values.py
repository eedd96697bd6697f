"""Inputs are reproducible from their seed, laid out as asked, and structured as their recipe says."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from referee.ops import Cell, TensorSpec, catalogue, cells, get, values
from referee.ops.cell_spec import CellSpec
from referee.ops.cells import cell_of, contiguous_strides
from referee.ops.recipes import MIXTURE, RECIPES
from referee.ops.values import draw, generator_for


def matrix(recipe: str, rows: int = 12, columns: int = 257, scale: float = 1.0) -> Cell:
    spec = TensorSpec("x", (rows, columns), "float32", contiguous_strides((rows, columns)))
    return Cell("test", (spec,), (spec,), recipe, (scale,), "required")


def drawn(recipe: str, seed: int = 1, **size: int) -> Tensor:
    return draw(matrix(recipe, **size), seed)[0]


def same_bits(first: Tensor, second: Tensor) -> bool:
    return torch.equal(first.contiguous().view(torch.uint8), second.contiguous().view(torch.uint8))


def test_the_same_seed_gives_the_same_bits_at_every_cpu_cell() -> None:
    for op in catalogue()[:30]:
        for cell in cells(op, profile="cpu"):
            for first, second in zip(draw(cell, 2**63 + 5), draw(cell, 2**63 + 5), strict=True):
                assert same_bits(first, second)


def test_seed_cell_and_operand_each_change_the_values() -> None:
    cell = cells(get("kl_div"), profile="cpu")[0]
    x, y = draw(cell, 1)
    assert not same_bits(x, y)
    assert not same_bits(x, draw(cell, 2)[0])
    assert not same_bits(x, draw(replace(cell, name="another"), 1)[0])


def test_all_64_bits_of_a_seed_matter() -> None:
    states = {generator_for(1 << bit, "cell", 0, "x", "cpu").initial_seed() for bit in range(64)}
    assert len(states) == 64


def test_tensors_are_laid_out_as_their_specs_say() -> None:
    for name in ("add_layernorm_gelu", "cross_entropy", "rope", "dequant_int8"):
        for cell in cells(get(name), profile="cpu"):
            for spec, tensor in zip(cell.inputs, draw(cell, 3), strict=True):
                assert tuple(tensor.shape) == spec.shape
                assert tensor.stride() == spec.strides
                assert tensor.storage_offset() == spec.offset
                assert str(tensor.dtype) == f"torch.{spec.dtype}"


def test_gaps_between_padded_rows_hold_nan() -> None:
    cell = next(
        c
        for c in cells(get("rmsnorm"), profile="cpu")
        if c.inputs[0].strides[0] > c.inputs[0].shape[1]
    )
    x = draw(cell, 1)[0]
    rows, columns = x.shape
    whole = x.as_strided((rows - 1, x.stride(0)), (x.stride(0), 1))
    assert bool(whole[:, columns:].isnan().all())
    assert bool(whole[:, :columns].isfinite().all())


def test_int8_uses_its_whole_range_and_classes_are_valid() -> None:
    bench = next(
        c for c in cells(get("dequant_int8"), profile="gpu") if c.inputs[0].shape == (37, 4097)
    )
    q = draw(bench, 4)[0]
    assert (int(q.min()), int(q.max())) == (-128, 127)
    for cell in cells(get("cross_entropy"), profile="cpu"):
        x, tgt = draw(cell, 4)
        assert bool(((tgt >= 0) & (tgt < x.shape[1])).all())


def test_the_last_of_many_rows_of_mixed_values_has_no_scale() -> None:
    made = [cell for cell in cells(get("dequant_int8"), profile="cpu") if cell.values == "mixed"]
    zero = {cell.inputs[0].shape[0]: bool((draw(cell, 3)[1] == 0).any()) for cell in made}
    assert any(zero.values()) and all(
        found == (rows > len(MIXTURE)) for rows, found in zero.items()
    )
    for cell in made:
        scale = draw(cell, 3)[1]
        assert (
            int((scale == 0).sum()) == zero[cell.inputs[0].shape[0]]
            and bool((scale[-1] == 0).all()) == zero[cell.inputs[0].shape[0]]
        )


def test_a_scale_of_logits_is_positive_as_its_formula_says() -> None:
    op = get("softmax_scale")
    assert "scale[0] > 0" in op.formula
    for cell in (*cells(op, profile="cpu"), *cells(op, profile="gpu")):
        assert float(draw(replace(cell, inputs=cell.inputs[1:], scales=cell.scales[1:]), 3)[0]) > 0


def test_a_scale_multiplies_the_values_exactly() -> None:
    assert torch.equal(
        draw(matrix("normal", scale=64.0), 1)[0], 64.0 * draw(matrix("normal"), 1)[0]
    )


def test_constant_rows_are_exact_quarters() -> None:
    x = drawn("constant")
    assert bool((x == x[:, :1]).all())
    assert bool((x * 4 == (x * 4).round()).all())
    assert bool((x != 0).all())


def test_one_hot_rows_hold_one_value() -> None:
    assert bool(((drawn("one_hot") != 0).sum(-1) == 1).all())


def test_sorted_rows_ascend() -> None:
    assert bool((drawn("sorted").diff(dim=-1) >= 0).all())


def test_shifted_rows_have_a_large_mean_of_either_sign() -> None:
    means = drawn("shifted").mean(-1)
    assert bool((means.abs() > 250).all())
    assert {float(sign) for sign in means.sign()} == {-1.0, 1.0}
    assert bool((drawn("shifted").std(-1) < 2).all())


def test_cancelling_rows_sum_to_far_less_than_their_size() -> None:
    x = drawn("cancellation")
    assert bool((x.double().sum(-1).abs() < 1e-3 * x.double().abs().sum(-1)).all())


@pytest.mark.parametrize("seed", range(8))
def test_a_mixed_cell_holds_every_structure_whatever_the_seed(seed: int) -> None:
    x = drawn("mixed", seed, rows=len(MIXTURE))
    assert int((x == x[:, :1]).all(-1).sum()) == 1
    assert int(((x != 0).sum(-1) == 1).sum()) == 1
    assert int((x.mean(-1).abs() > 200).sum()) == 1
    assert int((x.diff(dim=-1) >= 0).all(-1).sum()) == 2  # the sorted and the constant row


def test_nonfinite_rows_follow_a_clean_first_row() -> None:
    x = drawn("nonfinite", rows=8)
    assert bool(x[0].isfinite().all())
    assert x.isfinite().all(-1).tolist() == [True, False, False, False, False, False, False, True]
    most = x.shape[1] * 3 // 4
    assert x.isneginf().sum(-1).tolist()[3:7] == [1, most, most, x.shape[1]]
    assert not bool(x[4, -1].isneginf()) and not bool(x[5, 0].isneginf())
    assert bool(x.isnan().any())
    assert bool(x.isposinf().any())
    assert bool(x.isneginf().any())


@pytest.mark.parametrize(("rows", "columns"), [(0, 5), (1, 1), (1, 7), (7, 1), (5, 2)])
def test_every_recipe_survives_degenerate_shapes(rows: int, columns: int) -> None:
    for recipe in RECIPES:
        assert drawn(recipe, rows=rows, columns=columns).shape == (rows, columns), recipe


def test_values_beyond_float16_are_clamped_to_it() -> None:
    cell = matrix("normal", scale=2.0**20)
    half = replace(cell, inputs=(replace(cell.inputs[0], dtype="float16"),))
    assert float(draw(half, 1)[0].abs().max()) == torch.finfo(torch.float16).max


def test_operands_may_each_have_their_own_recipe() -> None:
    specs = tuple(
        TensorSpec(name, (64,), dtype, (1,))  # type: ignore[arg-type]
        for name, dtype in (("a", "float32"), ("b", "int32"), ("c", "bool"))
    )
    cell = Cell(
        "user", specs, specs[:1], "uniform|range:-3:9|range:0:1|", (2.0, 1.0, 1.0), "required"
    )
    a, b, c = draw(cell, 1)
    assert 0 <= float(a.min()) <= float(a.max()) <= 2
    assert -3 <= int(b.min()) <= int(b.max()) <= 9
    assert c.dtype == torch.bool


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_draws_reproducibly() -> None:
    for cell in cells(get("add_layernorm"), profile="gpu")[:4]:
        for first, second in zip(draw(cell, 9, "cuda"), draw(cell, 9, "cuda"), strict=True):
            assert first.is_cuda
            assert same_bits(first, second)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_a_huge_tensor_is_drawn_in_its_own_dtype(
    monkeypatch: pytest.MonkeyPatch, dtype: Any
) -> None:
    spec = TensorSpec("x", (1000, 30), dtype, (30, 1))
    cell = Cell("huge", (spec,), (spec,), "normal", (1.0,), "capability")
    scaled, padded = (
        replace(cell, scales=(4.0,)),
        replace(cell, inputs=(replace(spec, strides=(31, 1)),)),
    )
    (whole,), (larger,) = draw(cell, 5), draw(scaled, 5)
    monkeypatch.setattr(values, "HUGE_ELEMENTS", 999)
    (found,), (again,), (other,) = draw(cell, 5), draw(cell, 5), draw(cell, 6)
    assert (found.dtype, found.shape, found.stride()) == (whole.dtype, whole.shape, whole.stride())
    assert torch.equal(found, again) and not torch.equal(found, other)
    assert 0.98 < float(found.double().std()) < 1.02 and abs(float(found.double().mean())) < 0.025
    assert len({tuple(row) for row in found.tolist()}) == 1000
    assert torch.equal(draw(scaled, 5)[0], larger)
    assert draw(padded, 5)[0].stride() == (31, 1) and torch.equal(draw(padded, 5)[0], whole)


def test_a_huge_tensor_of_int8_has_every_number(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = TensorSpec("q", (1000, 30), "int8", (30, 1))
    cell = Cell("huge", (spec,), (spec,), "normal", (1.0,), "capability")
    monkeypatch.setattr(values, "HUGE_ELEMENTS", 999)
    (found,) = draw(cell, 5)
    assert found.dtype == torch.int8 and len(set(found.flatten().tolist())) == 256


def test_an_outlier_is_far_from_its_row_and_often_at_its_edge() -> None:
    """An outlier is far from the rest of its row and in the first or last column of many."""
    x = drawn("outlier", rows=80)
    largest = x.abs().max(dim=-1)
    assert bool((largest.values == 384.0).all()) and bool((x.abs() > 10.0).sum(dim=-1).eq(1).all())
    assert bool((largest.indices[::2] == 0).all()) and bool(
        (largest.indices[3::4] == x.shape[1] - 1).all()
    )
    assert len(set(largest.indices[1::4].tolist())) > 10


@pytest.mark.parametrize("columns", [64, 1000])
def test_rare_rows_are_small_and_of_one_sign_mostly(columns: int) -> None:
    x = drawn("rare", rows=80, columns=columns)
    large = x.abs() >= 1.0
    small = torch.where(large, 0.0, x)
    signs = small.sum(-1, keepdim=True).sign()
    assert bool((small * signs >= 0).all()) and bool(
        (torch.where(large, x, 0.0) * signs <= 0).all(dim=-1)[torch.arange(80) % 4 != 3].all()
    )
    assert bool((large[::2].sum(-1) == 1).all()) and bool((large[1::2].sum(-1) >= 1).all())
    assert len(set(large[::2].int().argmax(-1).tolist())) > 20
    assert bool(((x[3::4] != x[2::4]).sum(-1) == 1).all()) and not bool((x[1::4] == x[::4]).any())
    assert {float(sign) for sign in signs[:, 0]} == {-1.0, 1.0}


def rare_rows(x: Tensor) -> int:
    """Rows that are small but for few elements, nowhere zero, and no constant."""
    return int(
        (((x.abs() < 0.5).float().mean(-1) > 0.9) & (x.abs().amin(-1) > 0) & (x.std(-1) > 0)).sum()
    )


def test_some_normal_rows_of_a_mixture_are_rare_ones() -> None:
    assert 10 < sum(rare_rows(drawn("mixed", seed, rows=7)) for seed in range(40)) < 30
    spec = matrix("mixed", rows=7).inputs[0]
    users = replace(matrix("mixed"), inputs=(spec, spec), values="mixed|mixed", scales=(1.0, 1.0))
    assert not any(rare_rows(draw(users, seed)[0]) for seed in range(40))


def test_rare_cells_have_usual_parameters_but_for_few_elements() -> None:
    for name, recipe, usual in (("layernorm", "rare", 1.0), ("rmsnorm_gemma", "rare_none", 0.0)):
        for seed in range(20):
            cell = cell_of(get(name), CellSpec(9, 1000, "float32", recipe))
            _, w, *b = draw(cell, seed)
            assert 1 <= int((w != usual).sum()) <= 3 and all(
                1 <= int((one != 0).sum()) <= 3 for one in b
            )
    dequant = cell_of(get("dequant_int8"), CellSpec(600, 8, "float16", "rare"))
    counts = Counter(draw(dequant, 1)[1].flatten().tolist())
    assert len(counts) > 50 and 450 < max(counts.values()) < 550


@pytest.mark.parametrize("name", ["rope", "rope_interleaved", "qknorm_rope"])
def test_rare_cells_have_position_tables_but_for_some_angles(name: str) -> None:
    x, *_, cos, sin = draw(cell_of(get(name), CellSpec(40, 128, "float32", "rare")), 2)
    positions = torch.where(torch.arange(40) < 20, torch.arange(40), torch.arange(40) // 2).double()
    half = x.shape[1] // 2
    angles = positions[:, None] * 10_000.0 ** (-torch.arange(half) / half)
    angles = angles if cos.shape[1] == half else torch.cat((angles, angles), dim=-1)
    for table, right in ((cos, angles.cos()), (sin, angles.sin())):
        others = ((table.double() - right).abs() > 1e-4).double().mean()
        assert 0.04 < float(others) < 0.085


def test_the_last_of_many_mixed_rows_is_padding_in_every_operand() -> None:
    cell = next(
        cell
        for cell in cells(get("add_rmsnorm"), profile="cpu")
        if cell.values == "mixed" and cell.inputs[0].shape[0] > 7
    )
    x, residual, w = draw(cell, 4)
    assert not x[-1].any() and not residual[-1].any() and x[:-1].any(dim=-1).all() and w.all()


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_labels_reach_both_ends(profile: Literal["cpu", "gpu"]) -> None:
    for cell in cells(get("cross_entropy"), profile=profile):
        if 0 < cell.inputs[0].shape[0] < 100 and cell.role == "required":
            columns, labels = cell.inputs[0].shape[-1], draw(cell, 6)[1]
            assert int(labels[0]) == columns - 1 and bool(
                (labels >= 0).all() & (labels < columns).all()
            )
            assert len(labels) == 1 or int(labels[1]) == 0

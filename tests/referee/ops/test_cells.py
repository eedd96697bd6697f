"""Cells cover what the referee promises, within its limits on size and on compiles."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Literal

import pytest
import torch

from referee.ops import Cell, Op, TensorSpec, catalogue, cells, get, signature
from referee.ops.cell_table import cell_specs
from referee.ops.cells import cell_of, contiguous_strides, of_mixed_values
from referee.ops.signatures import ROPE_KINDS
from referee.ops.task import load
from referee.ops.values import draw
from referee.problem import partition_by_rows
from referee.target import _TYPICAL
from tests.sampling import operations

PROFILES: tuple[Literal["cpu", "gpu"], ...] = ("cpu", "gpu")
OPS = catalogue()
ROPES = tuple(op for op in OPS if op.kind in ROPE_KINDS)
MATRICES = tuple(
    op
    for op in OPS
    if op.kind not in ROPE_KINDS and op.regime == "standard" and op.kind != "dequant"
)
SCALABLE = frozenset({"x", "residual", "gate", "up", "y", "w", "b", "bias", "cos", "sin"})
# One op of every signature kind and every growth of the output, remixes included.
SAMPLE = (
    "rmsnorm layernorm_square add_rmsnorm_gelu add_layernorm_relu2 softmax cumsum entropy swiglu bias_gelu softmax_scale relu2 l2norm "
    "dequant_int8 cross_entropy kl_div rope rope_interleaved qknorm_rope add_rmsnorm_rope rmsnorm_gemma rmsnorm_short "
    "rmsnorm_square_relu2 add_layernorm_square_square"
).split()


def required(name: str, profile: Literal["cpu", "gpu"]) -> tuple[Cell, ...]:
    return tuple(cell for cell in cells(get(name), profile=profile) if cell.role != "capability")


def is_contiguous(spec: TensorSpec) -> bool:
    return spec.offset == 0 and spec.strides == contiguous_strides(spec.shape)


@pytest.mark.parametrize("profile", PROFILES)
def test_cells_are_well_formed(profile: Literal["cpu", "gpu"]) -> None:
    for op in OPS:
        made = cells(op, profile=profile)
        assert len({cell.name for cell in made}) == len(made)
        for cell in made:
            assert tuple(spec.name for spec in cell.inputs) == signature(op)
            assert len(cell.scales) == len(cell.inputs)
            assert all(
                len(spec.shape) == len(spec.strides) for spec in (*cell.inputs, *cell.outputs)
            )
            assert all(is_contiguous(spec) for spec in cell.outputs)
            if cell.role != "capability":
                # PyTorch calls a lone row contiguous, whatever distance it says to the next one.
                lone = "-lone-" in cell.name and all(
                    spec.shape[0] == 1 for spec in cell.inputs if len(spec.shape) == 2
                )
                assert lone or all(is_contiguous(spec) for spec in cell.inputs), cell
                assert all(size > 0 for spec in cell.inputs for size in spec.shape), cell


def test_cpu_cells_are_small_and_few() -> None:
    for op in OPS:
        made = required(op.name, "cpu")
        assert 5 <= len(made) <= 44
        assert sum(cell.inputs[0].shape[0] > 128 for cell in made) == 1
        assert all(cell.role == "required" for cell in made)
        for cell in cells(op, profile="cpu"):
            wide = op.regime == "wide" and cell.inputs[0].shape[0] == 1
            assert cell.inputs[0].shape[0] * cell.inputs[0].shape[-1] <= (
                131_072 if wide else 3 * 33_001
            )
            assert cell.inputs[0].shape[0] <= 300
            assert cell.inputs[0].shape[-1] <= (131_072 if wide else 33_001)
        assert sum(cell.inputs[0].shape[-1] > 4096 for cell in made) <= (
            13 if op.regime == "wide" else 12
        )


def test_cpu_capabilities_run_in_half_types() -> None:
    made = [cell for cell in cells(get("softmax"), profile="cpu") if cell.role == "capability"]
    words = ("padded-x", "offset-x", "nonfinite-x", "masked-x")
    dtypes = {word: {cell.outputs[0].dtype for cell in made if word in cell.name} for word in words}
    assert (
        dtypes["padded-x"]
        == dtypes["offset-x"]
        == dtypes["nonfinite-x"]
        == {"float32", "float16", "bfloat16"}
    )
    assert dtypes["masked-x"] == {"float32", "float16"}
    # Rows of several blocks, and narrow and wide ones of which there are none.
    assert any(cell.inputs[0].shape[-1] > 4096 for cell in made if "-padded-x" in cell.name)
    widths = [cell.inputs[0].shape[-1] for cell in made if "-empty-" in cell.name]
    assert min(widths) < 128 and max(widths) > 4096
    faint = [cell for cell in required("qknorm_rope", "cpu") if cell.scales[0] <= 2.0**-12]
    assert {cell.outputs[0].dtype for cell in faint} == {"float32", "float16", "bfloat16"}


def test_on_the_cpu_too_sizes_are_met_that_blocks_divide() -> None:
    # A path without masks, for sizes that its block divides, is taken at some cell, and by the
    # benchmark's shape too.
    for op in OPS:
        shapes = [cell.inputs[0].shape for cell in required(op.name, "cpu")]
        assert any(shape[0] % 16 == 0 for shape in shapes), op.name
        assert any(shape[-1] % (64 if op.kind in ROPE_KINDS else 4096) == 0 for shape in shapes), (
            op.name
        )
        assert any(shape[0] * shape[-1] % 1024 == 0 for shape in shapes), op.name
        # A tile of several whole rows is for widths that are powers of two, and leaves rows over.
        assert op.kind in ROPE_KINDS or any(
            shape[-1] in (256, 512) and shape[0] > 32 and shape[0] % 8 for shape in shapes
        ), op.name


def test_cpu_cells_have_many_rows_and_rows_longer_than_a_block() -> None:
    most = max(card.multi_processor_count for card in _TYPICAL.values())
    for op in MATRICES:
        made = required(op.name, "cpu")
        assert max(cell.inputs[0].shape[0] for cell in made) > most
        long = [cell for cell in made if cell.inputs[0].shape[-1] > 2**14]
        assert {cell.inputs[0].dtype for cell in long} == {"float32", "float16"}
        assert all(cell.inputs[0].shape[0] > 1 for cell in long)


def test_on_the_cpu_too_a_row_of_several_blocks_keeps_growing() -> None:
    for op in MATRICES:
        growing = [cell for cell in required(op.name, "cpu") if cell.values == "sorted"]
        assert [cell.inputs[0].shape[-1] > 4096 for cell in growing] == [True, True], op.name
        assert {cell.inputs[0].dtype for cell in growing} == {"float32", "bfloat16"}


@pytest.mark.parametrize("profile", PROFILES)
def test_every_dtype_has_a_tiled_width_that_is_no_power_of_two(
    profile: Literal["cpu", "gpu"],
) -> None:
    for op in MATRICES:
        widths = {
            (cell.inputs[0].shape[-1], cell.inputs[0].dtype) for cell in required(op.name, profile)
        }
        aligned = {
            (width, dtype) for width, dtype in widths if width % 128 == 0 and width & (width - 1)
        }
        assert {dtype for _, dtype in aligned} == {"float32", "float16", "bfloat16"}, op.name
        assert any(width % 256 for width, _ in aligned) and any(
            width % 1024 == 0 for width, _ in aligned
        ), op.name
        assert max(width for width, _ in aligned) > 8192, op.name


def test_cpu_cells_have_model_widths_that_large_tiles_divide() -> None:
    """On the CPU too every dtype has a width of models that large tiles divide and pairs of them
    do not.
    """
    for op in MATRICES:
        widths = {
            (cell.inputs[0].dtype, cell.inputs[0].shape[-1]) for cell in required(op.name, "cpu")
        }
        odd = {
            dtype
            for dtype, width in widths
            if any(
                width % tile == 0 and width // tile % 2 and width > tile for tile in (2048, 4096)
            )
        }
        assert odd == {"float32", "float16", "bfloat16"}, op.name


def test_rows_below_the_stand_in_for_minus_infinity_exist() -> None:
    for name in ("softmax", "log_softmax", "cross_entropy", "entropy", "kl_div"):
        moved = [cell for cell in required(name, "cpu") if cell.values == "shifted"]
        assert {cell.inputs[0].dtype for cell in moved} == {"float32", "float16", "bfloat16"}
        # What a library writes for it: -1e4 in float16, and in the others at least the -1e6 of
        # attention masks.
        assert all(256 * cell.scales[0] > 1e4 for cell in moved), name
        assert any(
            256 * cell.scales[0] > 1e6 and cell.inputs[0].dtype == "bfloat16" for cell in moved
        ), name


def test_factors_of_logits_go_beyond_usual_clamps_at_any_seed() -> None:
    cells = {cell.name.split("-")[2]: cell for cell in required("softmax_scale", "cpu")}
    for seed in range(50):
        for name, clamped in (("steep", {"max": 500.0}), ("slight", {"min": 0.005})):
            x, scale = draw(cells[name], seed)
            right, wrong = (
                torch.softmax(x.double() * factor.double(), -1)
                for factor in (scale, scale.clamp(**clamped))
            )
            # A difference that every row shows by far, relative to its largest probability.
            assert bool(((right - wrong).abs().amax(-1) > 1e-3 * right.amax(-1)).all()), (
                name,
                seed,
            )


def test_where_there_is_an_epsilon_it_counts_in_every_dtype() -> None:
    for op in OPS:
        if op.eps is not None and op.kind not in ROPE_KINDS:
            for profile in PROFILES:
                faint = {
                    cell.inputs[0].dtype
                    for cell in required(op.name, profile)
                    if cell.scales[0] <= 2.0**-12
                }
                assert faint == {"float32", "float16", "bfloat16"}, op.name
            # And where nothing else is left below the root, and the answer is not yet nothing.
            (fainter,) = (
                cell
                for cell in required(op.name, "cpu")
                if "-tiny-" not in cell.name and cell.scales[0] < 2.0**-20
            )
            (x,) = draw(fainter, 7)[:1]
            assert 0.0 < float(x.square().mean()) < 1e-12 < op.eps


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("op", ["swiglu", "geglu", "reglu"])
def test_a_closed_gate_may_overflow_where_its_answer_fits(
    op: str, profile: Literal["cpu", "gpu"]
) -> None:
    (cell,) = (cell for cell in required(op, profile) if cell.values == "closed")
    gate, up = draw(cell, 5)
    assert bool((gate * up).isinf().any())
    assert bool(load(op, profile).eager(gate, up).isfinite().all())


def test_gpu_cells_hold_one_bench_cell_of_the_public_shape() -> None:
    shapes = {"standard": (8192, 4096), "short": (16384, 2048), "wide": (8, 131072)}
    for op in OPS:
        bench = [cell for cell in cells(op, profile="gpu") if cell.role == "bench"]
        expected = (32768, 128) if op.kind in ROPE_KINDS else shapes[op.regime]
        assert [cell.inputs[0].shape for cell in bench] == [expected]
        assert bench[0].outputs[0].dtype == "float16"
        assert 12 <= len(required(op.name, "gpu")) <= 33


def test_gpu_cells_cost_few_compiles() -> None:
    for op in OPS:
        columns = {
            (cell.inputs[0].shape[-1], cell.outputs[0].dtype) for cell in required(op.name, "gpu")
        }
        assert len(columns) <= 12, (op.name, columns)


def test_required_gpu_cells_cover_sizes_dtypes_and_structures() -> None:
    for op in MATRICES:
        made = required(op.name, "gpu")
        rows = {cell.inputs[0].shape[0] for cell in made}
        columns = {cell.inputs[0].shape[-1] for cell in made}
        assert {1} <= rows
        assert {1, 127, 128, 1000, 4096, 4097, 8192} <= columns
        assert {cell.outputs[0].dtype for cell in made} == {"float32", "float16", "bfloat16"}
        assert {"normal", "mixed", "sorted", "constant", "one_hot", "shifted", "cancellation"} <= {
            cell.values for cell in made
        }


@pytest.mark.parametrize("profile", PROFILES)
def test_every_operand_is_scaled_up_and_down(profile: Literal["cpu", "gpu"]) -> None:
    for op in OPS:
        for position, name in enumerate(signature(op)):
            if name in SCALABLE:
                # But for cells whose data are for operations that only look how far off the largest
                # is.
                scales = {
                    cell.scales[position]
                    for cell in required(op.name, profile)
                    if "-farther-" not in cell.name
                }
                assert 64.0 in scales and max(scales) <= 2.0**52, (op.name, name, scales)
                assert min(scales) <= 1 / 256, (op.name, name, scales)


def test_capabilities_cover_layouts_empty_nonfinite_and_large() -> None:
    for op in (*MATRICES, *ROPES):
        made = {cell.name: cell for cell in cells(op, profile="gpu") if cell.role == "capability"}
        apart = [
            c.inputs[0].strides[0]
            for c in made.values()
            if c.inputs[0].strides[0] > c.inputs[0].shape[1] > 1
        ]
        halves = [c for c in made.values() if "-halves-" in c.name]
        apart = apart[: len(apart) - len(halves)] if halves else apart
        assert all(
            c.inputs[0].strides[0] == 2 * c.inputs[0].shape[1] == 2 * c.inputs[1].offset
            for c in halves
        )
        offset = [c for c in made.values() if c.inputs[0].offset * 2 % 16]
        both = [c for c in offset if c.inputs[0].strides[0] > c.inputs[0].shape[1]]
        rows = next(c.inputs[0].shape[0] for c in cells(op, profile="gpu") if c.role == "bench")
        empty = [c for c in made.values() if 0 in c.inputs[0].shape]
        large = [c for c in made.values() if prod(c.inputs[0].shape) > 2**31]
        assert [stride % 16 == 0 for stride in sorted(apart)] == [False, False, True], made
        assert (
            sorted(c.inputs[0].shape[0] for c in offset) == [37, 37, rows, rows] and len(large) == 1
        ), made
        assert len(empty) == (1 if op in ROPES else 2)
        assert sorted(c.inputs[0].shape[0] for c in both) == [37, rows]
        finite = {c.inputs[0].shape[0] for c in made.values() if c.values == "nonfinite"}
        assert finite == (set() if op.name == "cumsum" else {37, rows})
        assert not any(prod(c.inputs[0].shape) > 2**20 for c in cells(op, profile="cpu"))


def test_the_fixed_dtypes_of_integer_arguments() -> None:
    for cell in cells(get("dequant_int8"), profile="gpu"):
        assert [spec.dtype for spec in cell.inputs] == ["int8", "float16"]
        assert cell.outputs[0].dtype == "float16"
        assert cell.inputs[1].shape == (cell.inputs[0].shape[0], 1)
    for cell in cells(get("cross_entropy"), profile="cpu"):
        assert cell.inputs[1].dtype == "int64"
        assert cell.outputs[0].shape == cell.inputs[1].shape == (cell.inputs[0].shape[0],)


def test_interleaved_tables_are_half_as_wide() -> None:
    for cell in cells(get("rope_interleaved"), profile="gpu"):
        assert cell.inputs[1].shape[-1] * 2 == cell.inputs[0].shape[-1]


@pytest.mark.parametrize("name", SAMPLE)
@pytest.mark.parametrize("profile", PROFILES)
def test_required_answers_are_finite_in_their_dtype(
    name: str, profile: Literal["cpu", "gpu"]
) -> None:
    task = load(name, profile)
    for cell in task.required:
        if prod(cell.inputs[0].shape) < 600_000:
            inputs = draw(cell, 11)
            assert all(bool(tensor.double().isfinite().all()) for tensor in inputs), cell.name
            out = task.eager(*inputs)
            assert bool(out.isfinite().all()), cell.name
            assert bool(task.oracle(*inputs).to(out.dtype).isfinite().all()), cell.name


def test_bench_and_required_are_read_off_the_task() -> None:
    task = load("softmax", "gpu")
    assert task.bench is not None
    assert task.bench in task.required
    assert load("softmax", "cpu").bench is None
    assert task.tolerances["float16"].rtol == 2e-2
    assert torch.float32 is getattr(torch, next(iter(task.tolerances)))


def test_more_rows_than_a_grid_axis_has_are_kept_apart() -> None:
    for op in (*MATRICES, *ROPES):
        if op.regime != "wide":
            usual, many = partition_by_rows(required(op.name, "gpu"))
            assert [cell.inputs[0].shape[0] for cell in many] == [65_599], op.name
            assert max(cell.inputs[0].shape[0] for cell in usual) <= 65_535
            assert any(cell.role == "bench" for cell in usual)


@pytest.mark.parametrize("op", operations(start=3), ids=lambda op: op.name)
def test_the_timed_cell_of_mixed_values_is_scaled_as_its_own(op: Op) -> None:
    bench = next(cell for cell in cells(op, profile="gpu") if cell.role == "bench")
    draft = next(draft for draft in cell_specs(op, "gpu") if draft.role == "bench")
    own = cell_of(op, replace(draft, values="mixed", scale=64.0))
    mixed = of_mixed_values(op, bench)
    assert (mixed.inputs, mixed.outputs, mixed.values, mixed.scales) == (
        own.inputs,
        own.outputs,
        "mixed",
        own.scales,
    )
    assert (mixed.name, mixed.role) == (bench.name, "bench")

"""Which cells each family gets, as short drafts: rows, columns, dtype, values, scale, layout and role."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from referee.ops.catalogue import base_name
from referee.ops.signatures import ROPE_KINDS
from referee.ops.spec import Dtype, Op, Role

# A view of some columns has both a gap after every row and an offset.
Layout = Literal["contiguous", "aligned", "offset", "padded-offset"]

SMALL = 2.0**-10
LOW = 2.0**-6
# Where an epsilon is most of what stands below the root, in the sum of a row's squares as in their mean.
FAINT, FAINT_HALF, FAINT_BF16 = 2.0**-16, 2.0**-12, 2.0**-14
# Where an epsilon is all that stands there, and the answer is not yet nothing.
FAINTER = 2.0**-24
# Times the least step of float16 a few.
FAINTEST_HALF = 2.0**-20
# Beyond what any shift, clamp or threshold for usual data reaches; squares and cubes are still numbers in fp32.
HUGE = 2.0**16
# Rows in which every value lies beyond a number that stands for minus infinity, where a maximum begins or a mask hides something: times
# 256, what float16 has room for, and in fp32 just beyond 1e9; of probabilities the allowance (`answers/tolerance.py`) tells no more. Much
# further off a product that is contracted with the subtraction of the largest one leaves a rest whose power is infinite.
FAR_HALF, FAR, FAR_LOGITS = 56.0, 2.0**22, 2.0**13
# Factors of logits that no usual clamp lets through, on rows of values so close that the largest is not all there is, and the other way.
STEEP, SLIGHT = 1024.0, 2.0**-10
# Times what gates that are closed let through it is small; times the gates themselves it has no room in float16.
UP = 2.0**12
TIMED_ROWS = 8192
LARGE_ROWS = 524_417  # times 4096 columns: more than 2^31 elements


@dataclass(frozen=True)
class Draft:
    """One cell before it is bound to an op's signature. `scaled` names the operands that take `scale` (all when empty)."""

    rows: int
    columns: int
    dtype: Dtype
    values: str
    scale: float = 1.0
    role: Role = "required"
    layout: Layout = "contiguous"
    scaled: tuple[str, ...] = ()
    label: str = ""


F16: Dtype = "float16"
BF16: Dtype = "bfloat16"
F32: Dtype = "float32"
_DATA = ("x", "residual", "gate", "up", "y", "q", "tgt")

_CPU = (
    Draft(5, 1000, F32, "mixed"),
    Draft(2, 4097, F16, "normal", 64.0),
    Draft(8, 1000, BF16, "mixed", 64.0),
    Draft(5, 128, F16, "normal", LOW, scaled=_DATA),
    Draft(2, 1000, F32, "normal", SMALL),
    # Widths that tiles and vectors divide, and that are no powers of two: a whole block would be too much.
    Draft(3, 640, F32, "normal", 64.0),
    Draft(2, 5120, BF16, "sorted"),
    Draft(1, 15360, F16, "normal", 8.0),
    # Where the tails of activations are small and not yet nothing, and no larger answer of the row makes room for errors.
    Draft(1, 1000, F32, "normal", 4.0),
    # A maximum that is still growing in the last of several blocks.
    Draft(2, 4600, F32, "sorted"),
    Draft(3, 1, F32, "normal"),
    # As many rows as columns, where an axis may be mistaken for the other one by its size.
    Draft(2, 2, F32, "normal"),
    # More rows than a card has multiprocessors, and more tiles of a usual size; only here are so many programs run.
    Draft(300, 129, F16, "mixed"),
    # Rows longer than any block size that is usually written down.
    Draft(2, 16385, F16, "normal", 8.0),
    Draft(2, 33001, F32, "mixed"),
    # Sizes that blocks, tiles and unrolled loops divide, where kernels leave masks out, and rows by the dozen.
    Draft(8, 4096, F16, "mixed"),
    Draft(16, 1024, F32, "mixed"),
    # A width that kernels have a way of their own for, and rows that their tiles do not divide.
    Draft(37, 256, F32, "normal"),
    # Rows so short that kernels take several of them at once, and as many rows as their tiles have, or half as many.
    Draft(8, 10, F32, "normal"),
    Draft(64, 48, F16, "normal"),
    Draft(32, 100, F32, "mixed"),
    # A width that small blocks divide and usual ones do not, and values that float16 has no room for.
    Draft(1, 2560, BF16, "normal", HUGE / 2),
    # The largest usual block, and a row of more; sums of many elements in bfloat16.
    Draft(2, 8192, F32, "normal"),
    Draft(2, 9000, BF16, "mixed"),
    Draft(2, 1000, F32, "normal", HUGE, scaled=_DATA, label="huge"),
    # Rows in which every value lies beyond what a maximum may have been begun with, and bfloat16 where float16 has no such number.
    Draft(2, 1000, F32, "shifted", 1024.0, scaled=_DATA, label="far"),
    Draft(2, 1000, BF16, "normal", HUGE, scaled=_DATA, label="huge"),
    # Widths of models: tiles of two thousand divide them, and two of those, or more, do not.
    Draft(2, 14336, F16, "normal", 2.0),
    Draft(1, 12288, BF16, "normal"),
    Draft(1, 6144, F32, "normal"),
)

_GPU = (
    Draft(TIMED_ROWS, 4096, F16, "normal", role="bench"),
    Draft(37, 4097, F16, "mixed", 64.0),
    Draft(37, 4097, BF16, "mixed", 64.0),
    Draft(37, 4097, F32, "mixed"),
    Draft(37, 4097, F32, "normal", 64.0),
    Draft(37, 4097, F32, "cancellation", 8.0),
    Draft(1, 4096, F16, "sorted", 8.0),
    Draft(65, 4096, F16, "mixed", LOW, scaled=_DATA),
    Draft(5, 4097, F16, "shifted"),
    Draft(1, 1000, BF16, "normal", 8.0),
    Draft(65, 1000, BF16, "one_hot"),
    Draft(257, 128, F32, "normal", SMALL),
    Draft(1001, 127, F16, "mixed"),
    Draft(3, 8192, F16, "mixed", 32.0),
    Draft(33, 1, F32, "normal"),
    # More rows than a grid may have in its second and third dimension, and no multiple of any tile.
    Draft(65_599, 128, F32, "mixed"),
    # Widths that tiles and vectors divide, and that are no powers of two: a whole block would be too much.
    Draft(3, 3200, F32, "constant"),
    Draft(3, 8448, F16, "sorted", 8.0),
    Draft(1031, 7168, BF16, "mixed"),
    # More elements than float32 tells apart, as the number of one, and fp32 where sums are long and rows many.
    Draft(4111, 4097, F32, "mixed"),
    Draft(37, 4097, F32, "normal", HUGE, scaled=_DATA, label="huge"),
)

_GPU_CAPABILITIES = (
    Draft(37, 4096, F16, "normal", role="capability", layout="padded-offset", label="padded"),
    Draft(37, 4096, F16, "normal", role="capability", layout="aligned", label="padded-aligned"),
    Draft(37, 4096, F16, "normal", role="capability", layout="offset", label="offset"),
    *(Draft(0, columns, F16, "normal", role="capability", label="empty") for columns in (4096, 127)),
    Draft(37, 4097, F32, "nonfinite", role="capability"),
    Draft(37, 4097, F32, "masked", role="capability", label="nonfinite-masked"),
    # Many rows may have a kernel of their own.
    Draft(TIMED_ROWS, 4096, F16, "normal", role="capability", layout="padded-offset", label="padded"),
    Draft(TIMED_ROWS, 4096, F16, "normal", role="capability", layout="offset", label="offset"),
    Draft(TIMED_ROWS, 4096, F16, "nonfinite", role="capability"),
    Draft(LARGE_ROWS, 4096, F16, "normal", role="capability", label="large"),
)

_CPU_CAPABILITIES = (
    Draft(3, 1000, F32, "normal", role="capability", layout="padded-offset", label="padded"),
    Draft(3, 1000, F32, "normal", role="capability", layout="aligned", label="padded-aligned"),
    Draft(2, 1000, F32, "normal", role="capability", layout="offset", label="offset"),
    Draft(0, 1000, F32, "normal", role="capability", label="empty"),
    Draft(6, 2500, F32, "nonfinite", role="capability"),
    Draft(6, 2500, F32, "masked", role="capability", label="nonfinite-masked"),
    # Badges are for all dtypes.
    Draft(3, 300, F16, "normal", role="capability", layout="padded-offset", label="padded"),
    *(Draft(3, 300, dtype, "normal", role="capability", layout="offset", label="offset") for dtype in (F16, BF16)),
    *(Draft(0, columns, F16, "normal", role="capability", label="empty") for columns in (100, 5000)),
    Draft(6, 129, F16, "nonfinite", role="capability"),
    Draft(6, 129, BF16, "nonfinite", role="capability"),
    Draft(6, 129, F16, "masked", role="capability", label="nonfinite-masked"),
    # Rows of several blocks.
    Draft(2, 4600, BF16, "normal", role="capability", layout="padded-offset", label="padded"),
    Draft(2, 4600, BF16, "normal", role="capability", layout="aligned", label="padded-aligned"),
)

_ROPE_CPU = (
    Draft(5, 128, F32, "mixed"),
    Draft(5, 128, F16, "normal", 64.0),
    Draft(5, 64, BF16, "mixed", 64.0),
    Draft(3, 64, F16, "normal", LOW, scaled=_DATA),
    Draft(3, 256, F32, "normal", 64.0),
    Draft(2, 128, F32, "normal", SMALL),
    Draft(1, 256, F32, "normal"),
    Draft(300, 64, F16, "mixed"),
    Draft(16, 128, BF16, "mixed"),
    Draft(2, 256, F16, "mixed"),
    Draft(2, 256, BF16, "mixed"),
    Draft(32, 64, F32, "mixed"),
    Draft(3, 64, F16, "normal", FAINT_HALF, scaled=_DATA),
    Draft(3, 128, BF16, "normal", FAINT_BF16, scaled=_DATA),
    Draft(3, 64, F32, "normal", FAINT, scaled=_DATA),
)

_ROPE_GPU = (
    Draft(32768, 128, F16, "normal", role="bench"),
    Draft(37, 128, F16, "mixed", 64.0),
    Draft(37, 256, BF16, "mixed", 64.0),
    Draft(37, 64, F16, "mixed", 64.0),
    Draft(37, 128, F32, "mixed"),
    Draft(37, 128, F32, "normal", 64.0),
    Draft(37, 128, F32, "cancellation", 8.0),
    Draft(257, 128, F32, "normal", SMALL),
    Draft(1, 128, F16, "normal", 8.0),
    Draft(1000, 64, F16, "normal", LOW, scaled=_DATA),
    Draft(4097, 128, BF16, "normal"),
    Draft(1, 256, BF16, "normal", 8.0),
    Draft(65, 256, BF16, "one_hot"),
    Draft(129, 256, F32, "shifted"),
    Draft(65_599, 64, F16, "normal"),
    Draft(37, 64, F16, "normal", FAINT_HALF, scaled=_DATA),
)

_ROPE_ROWS = {TIMED_ROWS: 32768, LARGE_ROWS: 32 * LARGE_ROWS}
_ROPE_CAPABILITIES_CPU = (
    *(Draft(3, 80, dtype, "normal", role="capability", label="head80") for dtype in (F32, F16, BF16)),
    *(replace(draft, columns=128) for draft in _CPU_CAPABILITIES),
)
_ROPE_CAPABILITIES_GPU = (
    *(Draft(37, 80, dtype, "normal", role="capability", label="head80") for dtype in (F16, BF16, F32)),
    Draft(_ROPE_ROWS[TIMED_ROWS], 80, F16, "normal", role="capability", label="head80"),
    *(replace(draft, columns=128, rows=_ROPE_ROWS.get(draft.rows, draft.rows)) for draft in _GPU_CAPABILITIES),
)

_WIDE_GPU = (
    Draft(8, 131072, F16, "normal", role="bench"),
    Draft(8, 131072, F16, "mixed", 64.0),
    Draft(8, 131072, F32, "mixed"),
    Draft(5, 65537, BF16, "mixed", 32.0),
    Draft(5, 65537, F32, "normal", 64.0),
    Draft(5, 65537, F32, "cancellation", 8.0),
    Draft(16, 40960, F16, "mixed", 16.0),
    Draft(16, 40000, F16, "normal", LOW, scaled=_DATA),
    Draft(32, 16384, BF16, "normal"),
    Draft(1, 16384, BF16, "sorted", 8.0),
    Draft(3, 16384, F32, "normal", SMALL),
    Draft(7, 1000, BF16, "mixed", 64.0),
    Draft(33, 1, F32, "normal"),
)
_WIDEST = {Draft(2, 33001, F32, "mixed"): Draft(1, 131072, F32, "mixed")}
_WIDE_CPU = (replace(_CPU[0], columns=5000), *(_WIDEST.get(draft, draft) for draft in _CPU[1:]))


_NARROWER = {4096: 2048, 4097: 2049}


def _shortened(draft: Draft) -> Draft:
    rows = 2 * draft.rows if draft.rows == TIMED_ROWS or draft.label == "large" else draft.rows
    return replace(draft, rows=rows, columns=_NARROWER.get(draft.columns, draft.columns))


def _widened(draft: Draft) -> Draft:
    return replace(draft, rows=LARGE_ROWS // 4 if draft.label == "large" else min(draft.rows, 16), columns=16384)


def _all_drafts(op: Op, cpu: bool) -> tuple[Draft, ...]:
    if op.kind in ROPE_KINDS:
        return (*_ROPE_CPU, *_ROPE_CAPABILITIES_CPU) if cpu else (*_ROPE_GPU, *_ROPE_CAPABILITIES_GPU)
    if op.regime == "wide":
        return (*_WIDE_CPU, *_CPU_CAPABILITIES) if cpu else (*_WIDE_GPU, *map(_widened, _GPU_CAPABILITIES))
    plan = (*_CPU, *_CPU_CAPABILITIES) if cpu else (*_GPU, *_GPU_CAPABILITIES)
    return tuple(map(_shortened, plan)) if op.regime == "short" and not cpu else plan


def _own(op: Op, cpu: bool) -> tuple[Draft, ...]:
    """Cells of what only some operations do."""
    rows, columns = (2, 1000) if cpu else (37, 4097)
    if op.eps is not None and op.kind not in ROPE_KINDS:
        faint = (
            Draft(rows, columns, F32, "normal", FAINT, scaled=_DATA),
            Draft(rows, 128 if cpu else 127, F16, "normal", FAINT_HALF, scaled=_DATA),
            Draft(rows, 1000, BF16, "normal", FAINT_BF16, scaled=_DATA),
        )
        return (*faint, Draft(rows, columns, F32, "normal", FAINTER, scaled=_DATA)) if cpu else faint
    if op.kind == "dequant" and cpu:
        # Scales that float16 has fewer digits for.
        return (Draft(rows, 129, F16, "normal", FAINTEST_HALF, scaled=("scale",)),)
    if op.kind == "gate_up":
        return (Draft(rows, columns, F16, "closed", UP, scaled=("up",)),)
    if base_name(op) in FROM_THE_LARGEST:
        far = FROM_THE_LARGEST[base_name(op)]
        moved = (
            Draft(rows, columns, F32, "shifted", far, scaled=_DATA, label="farther"),
            Draft(rows, columns, F16, "shifted", FAR_HALF, scaled=_DATA, label="far"),
        )
        factors = (
            Draft(rows, columns, F32, "close", STEEP, scaled=("scale",), label="steep"),
            Draft(rows, columns, F32, "normal", SLIGHT, scaled=("scale",), label="slight"),
        )
        more = factors if op.kind == "scale" else ()
        return (*moved, Draft(rows, columns, BF16, "shifted", far, scaled=_DATA, label="farther"), *more) if cpu else moved
    return ()


def drafts(op: Op, profile: Literal["cpu", "gpu"]) -> tuple[Draft, ...]:
    """The cells of an op before its signature is applied."""
    finite_only = base_name(op) in _FINITE_ONLY
    own = _own(op, profile == "cpu")
    every = (*_all_drafts(op, profile == "cpu"), *(map(_shortened, own) if op.regime == "short" and profile == "gpu" else own))
    masks = base_name(op) in _MASKED
    return tuple(draft for draft in every if (draft.values != "nonfinite" or not finite_only) and (draft.values != "masked" or masks))


# Their rows may be moved by any number, such as a mask's.
FROM_THE_LARGEST = {
    "softmax": FAR_LOGITS, "softmax_scale": FAR_LOGITS, "log_softmax": FAR, "cross_entropy": FAR,
    "entropy": FAR_LOGITS, "kl_div": FAR_LOGITS,
}  # fmt: skip


# They are given masks, which in some libraries are the least number that there is.
_MASKED = frozenset({"softmax", "log_softmax", "cross_entropy"})

# int8 holds no NaN; after a NaN or an infinity the rest of a running sum says nothing more about the kernel.
_FINITE_ONLY = frozenset({"cumsum", "dequant_int8"})

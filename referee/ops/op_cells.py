"""Test cases that only some operations have."""

from __future__ import annotations

from referee.ops.catalogue import base_name
from referee.ops.cell_spec import (
    BF16,
    DATA,
    F16,
    F32,
    FAINT,
    FAINT_BF16,
    FAINT_HALF,
    FAINTER,
    FAINTEST_HALF,
    FAR,
    FAR_HALF,
    FAR_LOGITS,
    HUGEST,
    SLIGHT,
    STEEP,
    TIMED_ROWS,
    TINIEST,
    TINIEST_HALF,
    UP,
    CellSpec,
)
from referee.ops.signatures import ROPE_KINDS
from referee.ops.spec import Dtype, Op


def _tiny(op: Op, rows: int, widths: dict[Dtype, int]) -> tuple[CellSpec, ...]:
    """Rows of tiny numbers, for operations that neither add to them nor normalise them away."""
    norm = op.eps is not None
    if op.kind in ("bias", "dequant") or base_name(op) in (*FROM_THE_LARGEST, "softcap_softmax"):
        return ()
    scaled = ("gate",) if op.kind == "gate_up" else DATA
    half = (CellSpec(rows, widths[F16], F16, "normal", TINIEST_HALF, scaled=scaled, label="tiny"),)
    tiny = tuple(
        CellSpec(rows, widths[dtype], dtype, "normal", TINIEST, scaled=scaled, label="tiny")
        for dtype in (F32, BF16)
    )
    huge = tuple(
        CellSpec(rows, widths[dtype], dtype, "normal", HUGEST, scaled=DATA, label="huge")
        for dtype in (F32, BF16)
    )
    return (*half, *tiny, *(huge if norm else ()))


def _masks(op: Op, rows: int, shapes: tuple[tuple[int, Dtype], ...]) -> tuple[CellSpec, ...]:
    values = "masks_in_range" if op.kind == "scale" else "masks"
    return tuple(CellSpec(rows, columns, dtype, values, label="masks") for columns, dtype in shapes)


def own_cells(op: Op, cpu: bool) -> tuple[CellSpec, ...]:
    """The cells that only some operations have."""
    rows, columns = (2, 1000) if cpu else (37, 4097)
    rope = op.kind in ROPE_KINDS
    widths: dict[Dtype, int] = dict.fromkeys(
        (F32, F16, BF16), (64 if rope else 1000) if cpu else 128
    )
    if not cpu:
        # Widths of other cells, for which kernels are compiled already.
        widths |= {BF16: 256} if rope else {F32: columns, F16: 127, BF16: 1000}
    tiny = _tiny(op, rows, widths)
    return (*tiny, *_of_kinds(op, cpu, rows, columns))


def _of_kinds(op: Op, cpu: bool, rows: int, columns: int) -> tuple[CellSpec, ...]:
    if op.eps is not None and op.kind not in ROPE_KINDS:
        faint = (
            CellSpec(rows, columns, F32, "normal", FAINT, scaled=DATA),
            CellSpec(rows, 128 if cpu else 127, F16, "normal", FAINT_HALF, scaled=DATA),
            CellSpec(rows, 1000, BF16, "normal", FAINT_BF16, scaled=DATA),
        )
        return (
            (*faint, CellSpec(rows, columns, F32, "normal", FAINTER, scaled=DATA)) if cpu else faint
        )
    if op.kind == "dequant" and cpu:
        # Scales below float16's normal range.
        return (CellSpec(rows, 129, F16, "normal", FAINTEST_HALF, scaled=("scale",)),)
    if op.kind == "gate_up":
        sizes = (
            ((3, 1000, F32), (3, 300, F16), (2, 4600, BF16))
            if cpu
            else ((37, 4096, F16), (TIMED_ROWS, 4096, F16))
        )
        halves = (
            CellSpec(*size, "normal", role="capability", layout="halves", label="padded-halves")
            for size in sizes
        )
        return (CellSpec(rows, columns, F16, "closed", UP, scaled=("up",)), *halves)
    if base_name(op) in FROM_THE_LARGEST:
        far = FROM_THE_LARGEST[base_name(op)]
        moved = (
            CellSpec(rows, columns, F32, "shifted", far, scaled=DATA, label="farther"),
            CellSpec(rows, columns, F16, "shifted", FAR_HALF, scaled=DATA, label="far"),
        )
        factors = (
            CellSpec(rows, columns, F32, "close", STEEP, scaled=("scale",), label="steep"),
            CellSpec(rows, columns, F32, "normal", SLIGHT, scaled=("scale",), label="slight"),
        )
        of_masks = (
            ((1000, F32), (129, F16), (4600, BF16))
            if cpu
            else ((columns, F32), (columns, F16), (1000, BF16))
        )
        edges = tuple(
            CellSpec(8 if cpu else rows, width, dtype, "edges", label="edges")
            for width, dtype in ((columns, F32), (1000, BF16))
        )
        more = (
            *edges,
            *(factors if op.kind == "scale" else ()),
            *_masks(op, 9 if cpu else rows, of_masks),
        )
        return (
            *moved,
            *(
                (CellSpec(rows, columns, BF16, "shifted", far, scaled=DATA, label="farther"),)
                if cpu
                else ()
            ),
            *more,
        )
    return ()


# Operations whose rows may be shifted by any number, such as a mask's, and that shift.
FROM_THE_LARGEST = {
    "softmax": FAR_LOGITS, "softmax_scale": FAR_LOGITS, "log_softmax": FAR, "cross_entropy": FAR,
    "entropy": FAR_LOGITS, "kl_div": FAR_LOGITS,
}  # fmt: skip

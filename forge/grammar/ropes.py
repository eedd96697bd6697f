"""Rotary embeddings, with and without an RMSNorm before them, and running sums along a row.

The rotate-half form needs two loads of each row (the halves, or the row and its rotated copy); the interleaved form pairs
neighbours. Structures: row (one row a program), tile (several), gather (rotate by index, one row a program).
"""

from __future__ import annotations

from forge.grammar.design import TILE_WARPS, Design
from forge.grammar.frames import FRAMES, LoopFrame, kernel_text, run_text
from forge.grammar.norms import inverse

ARGUMENTS = {
    "rope": ("x", "cos", "sin"),
    "rope_interleaved": ("x", "cos", "sin"),
    "qknorm_rope": ("x", "w", "cos", "sin"),
    "add_rmsnorm_rope": ("x", "residual", "w", "cos", "sin"),
}


class _Halves:
    """A row, or a tile of rows, addressed by pairs: index `i` below H = N / 2."""

    def __init__(self, op: str, design: Design) -> None:
        self.op, self.design = op, design
        self.tile = design.structure == "tile"
        self.row = "$rows" if self.tile else "$row"
        self.pair = op == "rope_interleaved"

    def head(self) -> list[str]:
        if self.tile:
            return [
                "$rows = tl.program_id(0).to(tl.int64) * $ROWS + tl.arange(0, $ROWS)[:, None]",
                "$cols = tl.arange(0, $BLOCK)[None, :]",
                "$mask = ($rows < $M) & ($cols < H)",
                self._base(),
            ]
        return ["$row = tl.program_id(0).to(tl.int64)", "$cols = tl.arange(0, $BLOCK)", "$mask = $cols < H", self._base()]

    def _base(self) -> str:
        return f"$idx = {self.row} * $N + {'2 * ' if self.pair else ''}$cols"

    def load(self, pointer: str, second: bool) -> str:
        shift = (" + 1" if self.pair else " + H") if second else ""
        return f"tl.load(${pointer}_ptr + $idx{shift}, mask=$mask, other=0.0).to(tl.float32)"

    def table(self, pointer: str) -> str:
        return f"tl.load(${pointer}_ptr + {self.row} * H + $cols, mask=$mask, other=0.0).to(tl.float32)"

    def weight(self, second: bool) -> str:
        mask = "$cols < H" if self.tile else "$mask"
        return f"tl.load($w_ptr + $cols{' + H' if second else ''}, mask={mask}, other=0.0).to(tl.float32)"

    def total(self, expression: str) -> str:
        return f"tl.sum({expression}, axis=1)[:, None]" if self.tile else f"tl.sum({expression}, axis=0)"

    def store(self, second: bool, expression: str) -> str:
        shift = (" + 1" if self.pair else " + H") if second else ""
        value = f"({expression}).to($out_ptr.dtype.element_ty)" if self.design.cast_store else expression
        return f"tl.store($out_ptr + $idx{shift}, {value}, mask=$mask)"


def rope_kernel(op: str, design: Design, eps: float = 1e-6) -> str:
    """Source of one rotary kernel, unnamed."""
    if design.structure == "gather":
        return _gather(op, design, eps)
    halves = _Halves(op, design)
    body = [*halves.head(), f"x1 = {halves.load('x', False)}", f"x2 = {halves.load('x', True)}"]
    if op == "add_rmsnorm_rope":
        body += [f"x1 += {halves.load('residual', False)}", f"x2 += {halves.load('residual', True)}"]
    if "norm" in op:
        value = f"{halves.total('x1 * x1 + x2 * x2')} / $N + {_eps(design, eps)}"
        body += [
            f"$rstd = {inverse(design, value)}",
            f"x1 = x1 * $rstd * {halves.weight(False)}",
            f"x2 = x2 * $rstd * {halves.weight(True)}",
        ]
    if halves.pair:
        body += [
            f"c = {halves.table('cos')}",
            f"s = {halves.table('sin')}",
            halves.store(False, "x1 * c - x2 * s"),
            halves.store(True, "x1 * s + x2 * c"),
        ]
    else:
        body += [
            f"c1 = {halves.load('cos', False)}",
            f"c2 = {halves.load('cos', True)}",
            f"s1 = {halves.load('sin', False)}",
            f"s2 = {halves.load('sin', True)}",
            halves.store(False, "x1 * c1 - x2 * s1"),
            halves.store(True, "x2 * c2 + x1 * s2"),
        ]
    return _wrap(op, design, eps, tuple(body), halves.tile, whole=False)


def _eps(design: Design, eps: float) -> str:
    text = f"{eps:g}".replace("e-0", "e-")
    return {"literal": text, "argument": "eps", "constexpr": "EPS"}[design.eps]


def _wrap(op: str, design: Design, eps: float, body: tuple[str, ...], tile: bool, whole: bool) -> str:
    arguments = ARGUMENTS[op]
    passed = "norm" in op and design.eps != "literal"
    text = f"{eps:g}".replace("e-0", "e-")
    sizes = (*(("$M",) if tile else ()), "$N", "H")
    extra = (("eps" if design.eps == "argument" else "EPS: tl.constexpr"),) if passed else ()
    constants = ("$ROWS", "$BLOCK") if tile else ("$BLOCK",)
    parameters = (*(f"${name}_ptr" for name in arguments), "$out_ptr", *sizes, *extra, *(f"{name}: tl.constexpr" for name in constants))
    values = [*arguments, "$run_out", *sizes, *([text if design.eps == "argument" else f"EPS={text}"] if passed else [])]
    values += [f"{name}={name}" for name in constants]
    host = [
        "$M, $N = x.shape",
        "H = $N // 2",
        "$run_out = torch.empty_like(x)",
        f"$BLOCK = triton.next_power_of_2({'$N' if whole else 'H'})",
    ]
    if tile:
        host += [
            f"$ROWS = max(1, min(32, {2048 if design.warps % 2 == 0 else 1024} // $BLOCK))",
            f"$kernel[(triton.cdiv($M, $ROWS),)]({', '.join(values)}, {TILE_WARPS[0]})",
        ]
    else:
        host.append(f"$kernel[($M,)]({', '.join(values)}, num_warps={(1, 2, 4, 1)[design.warps]})")
    return f"{kernel_text('$kernel', parameters, body)}\n\n{run_text(arguments, (*host, 'return $run_out'))}"


def _gather(op: str, design: Design, eps: float) -> str:
    """The row and its rotated copy, by index arithmetic."""
    pair = op == "rope_interleaved"
    body = ["$row = tl.program_id(0).to(tl.int64)", "$cols = tl.arange(0, $BLOCK)", "$mask = $cols < $N"]
    body += (
        ["other = $cols ^ 1", "sign = tl.where($cols % 2 == 0, -1.0, 1.0)"]
        if pair
        else ["other = tl.where($cols < H, $cols + H, $cols - H)", "sign = tl.where($cols < H, -1.0, 1.0)"]
    )

    def load(pointer: str, cols: str, row: str = "$row * $N + ") -> str:
        return f"tl.load(${pointer}_ptr + {row}{cols}, mask=$mask, other=0.0).to(tl.float32)"

    body += [f"x = {load('x', '$cols')}", f"z = {load('x', 'other')}"]
    if op == "add_rmsnorm_rope":
        body += [f"x += {load('residual', '$cols')}", f"z += {load('residual', 'other')}"]
    if "norm" in op:
        body += [
            f"$rstd = {inverse(design, f'tl.sum(x * x, axis=0) / $N + {_eps(design, eps)}')}",
            f"x = x * $rstd * {load('w', '$cols', '')}",
            f"z = z * $rstd * {load('w', 'other', '')}",
        ]
    table = ("$cols // 2", "$row * H + ") if pair else ("$cols", "$row * $N + ")
    value = "v.to($out_ptr.dtype.element_ty)" if design.cast_store else "v"
    body += [
        f"c = {load('cos', *table)}",
        f"s = {load('sin', *table)}",
        "v = x * c + sign * z * s",
        f"tl.store($out_ptr + $row * $N + $cols, {value}, mask=$mask)",
    ]
    return _wrap(op, design, eps, tuple(body), tile=False, whole=True)


def cumsum_kernel(design: Design) -> str:
    """Source of one running-sum kernel, unnamed. Structures: row, tile, loop (with a carry)."""
    frame = FRAMES[design.structure](design, ("x",), ("x",))
    if isinstance(frame, LoopFrame):
        inner = [f"x = {frame.load('x')}", "v = tl.cumsum(x, axis=0) + carry", frame.store("v"), "carry += tl.sum(x, axis=0)"]
        return frame.finish(["carry = 0.0", *frame.loop(inner)]).text()
    axis = 1 if frame.needs_rows else 0
    return frame.finish([f"x = {frame.load('x')}", f"v = tl.cumsum(x, axis={axis})", frame.store("v")]).text()

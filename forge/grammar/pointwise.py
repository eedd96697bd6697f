"""Elementwise ops: activations alone, bias + activation, gated products, int8 dequantisation.

Structures: flat (one block of elements a program), row (a whole row), grid2 (a block of a row), tile (several rows).
"""

from __future__ import annotations

from dataclasses import dataclass

from forge.grammar.acts import act_lines
from forge.grammar.design import Design
from forge.grammar.frames import FRAMES, Frame, kernel_text, run_text


@dataclass(frozen=True)
class PointwiseSpec:
    """`kind` is unary, bias, gate_up or dequant; `acts` are applied to x, to x + bias, or to the gate."""

    kind: str
    acts: tuple[str, ...]

    @property
    def arguments(self) -> tuple[str, ...]:
        return {"unary": ("x",), "bias": ("x", "bias"), "gate_up": ("gate", "up"), "dequant": ("q", "scale")}[self.kind]

    @property
    def matrices(self) -> tuple[str, ...]:
        return {"gate_up": ("gate", "up"), "dequant": ("q",)}.get(self.kind, ("x",))


def pointwise_kernel(spec: PointwiseSpec, design: Design) -> str:
    """Source of one elementwise kernel, unnamed. A dequantisation has no flat form."""
    if design.structure == "flat":
        return _flat(spec, design)
    if design.structure == "grid2":
        return _grid(spec, design)
    allocation = "torch.empty(q.shape, device=q.device, dtype=scale.dtype)" if spec.kind == "dequant" else None
    frame = FRAMES[design.structure](design, spec.arguments, spec.matrices, allocation=allocation)
    return frame.finish([*_body(spec, frame), frame.store("v")]).text()


def _body(spec: PointwiseSpec, frame: Frame) -> list[str]:
    if spec.kind == "dequant":
        return [f"s = {frame.row_scalar('scale')}.to(tl.float32)", f"v = {frame.load('q', '0')} * s"]
    loads = {
        "bias": {"v": frame.load("x"), "b": frame.vector("bias")} if spec.kind == "bias" else {},
        "gate_up": {"g": frame.load(spec.matrices[0]), "u": frame.load(spec.matrices[-1])},
    }
    return _compute(spec, frame.design, loads.get(spec.kind) or {"v": frame.load("x")})


def _compute(spec: PointwiseSpec, design: Design, loads: dict[str, str]) -> list[str]:
    """Loads and arithmetic, ending with the result in `v`."""
    if spec.kind == "gate_up":
        acts = [line for act in spec.acts for line in act_lines(act, "v", design.forms[0])]
        first, second = f"v = {loads['g']}", f"up = {loads['u']}"
        return [first, second, *acts, "v = v * up"] if design.early_vectors else [first, *acts, second, "v = v * up"]
    acts = [line for position, act in enumerate(spec.acts) for line in act_lines(act, "v", design.forms[position])]
    if spec.kind == "bias":
        return [f"v = {loads['v']}", f"b = {loads['b']}", "v = v + b", *acts]
    return [f"v = {loads['v']}", *acts]


def _matrix(name: str, place: str) -> str:
    return f"tl.load(${name}_ptr + {place}, mask=$mask, other=0.0).to(tl.float32)"


def _store(design: Design, place: str) -> str:
    value = "v.to($out_ptr.dtype.element_ty)" if design.cast_store else "v"
    return f"tl.store($out_ptr + {place}, {value}, mask=$mask)"


def _flat(spec: PointwiseSpec, design: Design) -> str:
    loads = {"v": _matrix("x", "$offs")}
    if spec.kind == "gate_up":
        loads = {"g": _matrix("gate", "$offs"), "u": _matrix("up", "$offs")}
    if spec.kind == "bias":
        loads["b"] = _matrix("bias", "$offs % $N")
    size = ["$n_elements", *(["$N"] if spec.kind == "bias" else [])]
    parameters = (*(f"${name}_ptr" for name in spec.arguments), "$out_ptr", *size, "$BLOCK: tl.constexpr")
    if design.split_rsqrt:
        place = ["$pid = tl.program_id(0).to(tl.int64)", "$offs = $pid * $BLOCK + tl.arange(0, $BLOCK)"]
    else:
        place = ["$offs = tl.program_id(0).to(tl.int64) * $BLOCK + tl.arange(0, $BLOCK)"]
    body = (*place, "$mask = $offs < $n_elements", *_compute(spec, design, loads), _store(design, "$offs"))
    first = spec.matrices[0]
    call = ", ".join([*spec.arguments, "$run_out", "$n_elements", *([f"{first}.shape[1]"] if spec.kind == "bias" else [])])
    host = [f"$run_out = torch.empty_like({first})", f"$n_elements = {first}.numel()"]
    if design.inline_mask:
        host += [f"$BLOCK = {design.block}", f"$kernel[(triton.cdiv($n_elements, $BLOCK),)]({call}, $BLOCK=$BLOCK, {_flat_warps(design)})"]
    else:
        host += [f"$kernel[(triton.cdiv($n_elements, {design.block}),)]({call}, $BLOCK={design.block}, {_flat_warps(design)})"]
    return f"{kernel_text('$kernel', parameters, body)}\n\n{run_text(spec.arguments, (*host, 'return $run_out'))}"


def _flat_warps(design: Design) -> str:
    return "num_warps=4" if design.block <= 2048 else "num_warps=8"


def _grid(spec: PointwiseSpec, design: Design) -> str:
    place = "$row * $N + $cols"
    if spec.kind == "dequant":
        compute = [
            "s = tl.load($scale_ptr + $row).to(tl.float32)",
            "q = tl.load($q_ptr + " + place + ", mask=$mask, other=0)",
            "v = q.to(tl.float32) * s",
        ]
    else:
        loads = {"v": _matrix("x", place)}
        if spec.kind == "gate_up":
            loads = {"g": _matrix("gate", place), "u": _matrix("up", place)}
        if spec.kind == "bias":
            loads["b"] = _matrix("bias", "$cols")
        compute = _compute(spec, design, loads)
    parameters = (*(f"${name}_ptr" for name in spec.arguments), "$out_ptr", "$N", "$BLOCK: tl.constexpr")
    body = (
        "$row = tl.program_id(0).to(tl.int64)",
        "$cols = tl.program_id(1) * $BLOCK + tl.arange(0, $BLOCK)",
        "$mask = $cols < $N",
        *compute,
        _store(design, place),
    )
    first = spec.matrices[0]
    empty = "torch.empty(q.shape, device=q.device, dtype=scale.dtype)" if spec.kind == "dequant" else f"torch.empty_like({first})"
    call = ", ".join([*spec.arguments, "$run_out", "$N"])
    host = (
        f"$M, $N = {first}.shape",
        f"$run_out = {empty}",
        f"$BLOCK = {design.block}",
        f"$kernel[($M, triton.cdiv($N, $BLOCK))]({call}, $BLOCK=$BLOCK, {_flat_warps(design)})",
        "return $run_out",
    )
    return f"{kernel_text('$kernel', parameters, body)}\n\n{run_text(spec.arguments, host)}"

"""RMSNorm and LayerNorm with optional residual and activations: the chains, plain norms, gemma and l2norm.

Sums run in float32 over float32 values; the variance is that of centred values (two passes), never E[x^2] - E[x]^2.
"""

from __future__ import annotations

from dataclasses import dataclass

from forge.grammar.acts import act_lines
from forge.grammar.design import Design
from forge.grammar.frames import FRAMES, Frame, Kernel, LoopFrame, kernel_text, run_text


@dataclass(frozen=True)
class NormSpec:
    """What to compute. `norm` is rms, layer, gemma (weight 1 + w) or l2 (no weight, sum instead of mean)."""

    norm: str
    residual: bool
    acts: tuple[str, ...]
    eps: float

    @property
    def arguments(self) -> tuple[str, ...]:
        tail = {"rms": ("w",), "gemma": ("w",), "layer": ("w", "b"), "l2": ()}[self.norm]
        return ("x", *(("residual",) if self.residual else ()), *tail)

    @property
    def matrices(self) -> tuple[str, ...]:
        return ("x", "residual") if self.residual else ("x",)

    @property
    def weight(self) -> str:
        return "(1.0 + w)" if self.norm == "gemma" else "w"


def norm_kernel(spec: NormSpec, design: Design) -> str:
    """Source of one norm kernel, unnamed. Structures: row, tile, loop, split."""
    if design.structure == "split":
        return _split(spec, design)
    frame = FRAMES[design.structure](design, spec.arguments, spec.matrices, eps=spec.eps)
    body = _looped(spec, frame) if isinstance(frame, LoopFrame) else _whole(spec, frame)
    return frame.finish(body).text()


def load_row(spec: NormSpec, frame: Frame) -> tuple[list[str], str]:
    """Statements that load the normalised value, and its name."""
    if not spec.residual:
        return [f"x = {frame.load('x')}"], "x"
    form = frame.design.forms[2] % 3
    if form == 0:
        return [f"x = {frame.load('x')}", f"r = {frame.load('residual')}", "h = x + r"], "h"
    if form == 1:
        return [f"x = {frame.load('x')}", f"x += {frame.load('residual')}"], "x"
    return [f"h = {frame.load('x')}", f"h += {frame.load('residual')}"], "h"


def inverse(design: Design, expression: str) -> str:
    """1 / sqrt(expression)."""
    return f"1.0 / tl.sqrt({expression})" if design.sqrt_form else f"tl.rsqrt({expression})"


def mean_of(total: str) -> str:
    """total / N, correctly rounded: Triton's `/` may be off by two units, which a constant row's tiny variance blows up."""
    return f"tl.div_rn({total}, $N * 1.0)"


def statistics(spec: NormSpec, frame: Frame, value: str) -> tuple[list[str], str]:
    """Statements for the row's statistics, and the normalised expression without its weight."""
    design, lines = frame.design, []
    if spec.norm == "layer":
        lines += [f"mean = {mean_of(frame.reduce('sum', value))}", f"d = tl.where($mask, {value} - mean, 0.0)"]
        value = "d"
    total = frame.reduce("sum", f"{value} * {value}") + ("" if spec.norm == "l2" else " / $N")
    if design.split_rsqrt:
        name = {"layer": "var", "l2": "ss"}.get(spec.norm, "ms")
        lines += [f"{name} = {total}", f"$rstd = {inverse(design, f'{name} + {frame.eps_text}')}"]
    else:
        lines.append(f"$rstd = {inverse(design, f'{total} + {frame.eps_text}')}")
    return lines, f"{value} * $rstd"


def vectors(spec: NormSpec, frame: Frame) -> list[str]:
    """Loads of the weight and bias."""
    return [f"{name} = {frame.vector(name)}" for name in spec.arguments if name in ("w", "b")]


def affine(spec: NormSpec, normalised: str) -> str:
    """The normalised expression with weight and bias."""
    text = normalised if spec.norm == "l2" else f"{normalised} * {spec.weight}"
    return text + " + b" if spec.norm == "layer" else text


def activations(acts: tuple[str, ...], design: Design, value: str) -> list[str]:
    """The statements of a chain of activations on `value`."""
    return [line for position, act in enumerate(acts) for line in act_lines(act, value, design.forms[position])]


def _whole(spec: NormSpec, frame: Frame) -> list[str]:
    design = frame.design
    loads, value = load_row(spec, frame)
    lines, normalised = statistics(spec, frame, value)
    parameters = vectors(spec, frame)
    body = [*loads, *(parameters if design.early_vectors else []), *lines, *([] if design.early_vectors else parameters)]
    return [*body, f"v = {affine(spec, normalised)}", *activations(spec.acts, design, "v"), frame.store("v")]


def _looped(spec: NormSpec, frame: LoopFrame) -> list[str]:
    design = frame.design
    loads, value = load_row(spec, frame)
    lines, centred = [], value
    if spec.norm == "layer":
        lines += [
            "acc = tl.zeros(($BLOCK,), dtype=tl.float32)",
            *frame.loop([*loads, f"acc += {value}"]),
            f"mean = {mean_of('tl.sum(acc, axis=0)')}",
        ]
        centred = f"({value} - mean)"
    square = [f"d = tl.where($mask, {value} - mean, 0.0)", "sq += d * d"] if spec.norm == "layer" else [f"sq += {value} * {value}"]
    lines += ["sq = tl.zeros(($BLOCK,), dtype=tl.float32)", *frame.loop([*loads, *square])]
    total = "tl.sum(sq, axis=0)" + ("" if spec.norm == "l2" else " / $N")
    lines.append(f"$rstd = {inverse(design, f'{total} + {frame.eps_text}')}")
    last = [
        *loads,
        *vectors(spec, frame),
        f"v = {affine(spec, f'{centred} * $rstd')}",
        *activations(spec.acts, design, "v"),
        frame.store("v"),
    ]
    return [*lines, *frame.loop(last)]


def _split(spec: NormSpec, design: Design) -> str:
    """Two kernels for few very long rows: partial sums of a chunk each, then every chunk normalised by all partial sums."""
    block = 4096 if design.block < 4096 else 8192
    eps = f"{spec.eps:g}".replace("e-0", "e-")
    start = [
        "$row = tl.program_id(0).to(tl.int64)",
        "part = tl.program_id(1)",
        "$cols = part * $BLOCK + tl.arange(0, $BLOCK)",
        "$mask = $cols < $N",
    ]
    first = kernel_text(
        "$kernel_sum",
        ("$x_ptr", "part_ptr", "$N", "parts", "$BLOCK: tl.constexpr"),
        (
            *start,
            "x = tl.load($x_ptr + $row * $N + $cols, mask=$mask, other=0.0).to(tl.float32)",
            "tl.store(part_ptr + $row * parts + part, tl.sum(x * x, axis=0))",
        ),
    )
    second = kernel_text(
        "$kernel",
        ("$x_ptr", "$w_ptr", "part_ptr", "$out_ptr", "$N", "parts", "$BLOCK: tl.constexpr", "PARTS: tl.constexpr"),
        (
            *start,
            "p = tl.arange(0, PARTS)",
            "ms = tl.sum(tl.load(part_ptr + $row * parts + p, mask=p < parts, other=0.0), axis=0) / $N",
            f"$rstd = {inverse(design, f'ms + {eps}')}",
            "x = tl.load($x_ptr + $row * $N + $cols, mask=$mask, other=0.0).to(tl.float32)",
            "w = tl.load($w_ptr + $cols, mask=$mask, other=0.0).to(tl.float32)",
            "v = x * $rstd * w",
            "tl.store($out_ptr + $row * $N + $cols, v, mask=$mask)",
        ),
    )
    host = run_text(
        ("x", "w"),
        (
            "$M, $N = x.shape",
            "$run_out = torch.empty_like(x)",
            f"$BLOCK = {block}",
            "parts = triton.cdiv($N, $BLOCK)",
            "part = torch.empty(($M, parts), device=x.device, dtype=torch.float32)",
            "$kernel_sum[($M, parts)](x, part, $N, parts, $BLOCK=$BLOCK, num_warps=8)",
            "$kernel[($M, parts)](x, w, part, $run_out, $N, parts, $BLOCK=$BLOCK, PARTS=triton.next_power_of_2(parts), num_warps=8)",
            "return $run_out",
        ),
    )
    return f"{first}\n\n{second}\n\n{host}"


__all__ = ["Kernel", "NormSpec", "activations", "affine", "inverse", "load_row", "norm_kernel", "statistics", "vectors"]

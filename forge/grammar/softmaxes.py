"""Softmax and its kin over a row: softmax (scaled, soft-capped), log-softmax, cross entropy, entropy, KL divergence.

The row's maximum is subtracted before every exponential, and what lies outside a row never enters a sum. (In a tile,
rows beyond the last may become NaN; they are never stored.)
"""

from __future__ import annotations

from forge.grammar.design import Design
from forge.grammar.frames import FRAMES, Frame, LoopFrame

_INF = '-float("inf")'
SOFTMAXES = ("softmax", "softmax_scale", "softcap_softmax", "log_softmax")
ROW_LOSSES = ("cross_entropy", "entropy", "kl_div")
_ARGUMENTS = {"softmax_scale": ("x", "scale"), "cross_entropy": ("x", "tgt"), "kl_div": ("x", "y")}


def softmax_kernel(op: str, design: Design) -> str:
    """Source of one kernel of this family, unnamed. Structures: row, tile, loop."""
    arguments = _ARGUMENTS.get(op, ("x",))
    matrices = ("x", "y") if op == "kl_div" else ("x",)
    frame = FRAMES[design.structure](design, arguments, matrices, per_row=op in ROW_LOSSES)
    if isinstance(frame, LoopFrame):
        return frame.finish(_LOOPED[op](frame) if op in _LOOPED else _looped_softmax(op, frame)).text()
    if op == "entropy":
        body = _entropy(frame)
    elif op == "kl_div":
        body = _kl_div(frame)
    elif op == "cross_entropy":
        body = _cross_entropy(frame)
    else:
        body = _softmax(op, frame)
    return frame.finish(body).text()


def _input(op: str, frame: Frame) -> list[str]:
    """Statements giving the logits `x`; masked lanes hold -inf."""
    if op == "softmax_scale":
        return [f"x = {frame.load('x')} * scale", "x = tl.where($mask, x, " + _INF + ")"]
    if op == "softcap_softmax":
        cap = ("60.0 * tl.sigmoid(x / 15.0) - 30.0", "30.0 * (2.0 * tl.sigmoid(x / 15.0) - 1.0)")[frame.design.forms[0] % 2]
        return [f"x = {frame.load('x')}", f"x = tl.where($mask, {cap}, {_INF})"]
    return [f"x = {frame.load('x', _INF)}"]


def _scale(op: str) -> list[str]:
    return ["scale = tl.load($scale_ptr).to(tl.float32)"] if op == "softmax_scale" else []


def _softmax(op: str, frame: Frame) -> list[str]:
    shifted = frame.design.forms[1] % 2 == 0
    body = [*_scale(op), *_input(op, frame)]
    if op == "log_softmax":
        total = frame.reduce("sum", "tl.exp(x)")
        return [*body, f"x = x - {frame.reduce('max', 'x')}", f"v = x - tl.log({total})", frame.store("v")]
    if shifted:
        body += [f"x = x - {frame.reduce('max', 'x')}", "e = tl.exp(x)"]
    else:
        body += [f"m = {frame.reduce('max', 'x')}", "e = tl.exp(x - m)"]
    total = frame.reduce("sum", "e")
    return [*body, *([f"s = {total}", "v = e / s"] if frame.design.split_rsqrt else [f"v = e / {total}"]), frame.store("v")]


def _cross_entropy(frame: Frame) -> list[str]:
    step = frame.step("x")
    target = f"$x_ptr + {frame.row} * {step} + t" if frame.design.base != "advance" or frame.needs_rows else "$x_ptr + t"
    bound = ", mask=$rows < $M, other=0.0" if frame.needs_rows else ""
    pick = [f"t = {frame.row_scalar('tgt')}", f"xt = tl.load({target}{bound}).to(tl.float32)"]
    load = [f"x = {frame.load('x', _INF)}", f"m = {frame.reduce('max', 'x')}"]
    total = [f"s = {frame.reduce('sum', 'tl.exp(x - m)')}"]
    loss = ["v = tl.log(s) + m - xt", frame.store_row("v")]
    return [*pick, *load, *total, *loss] if frame.design.early_vectors else [*load, *total, *pick, *loss]


def _log_weights(frame: Frame, name: str, suffix: str) -> list[str]:
    """d = x - max(x), e = exp(d), s = sum(e), with zeros outside the row."""
    return [
        f"{name} = {frame.load(name, _INF)}",
        f"d{suffix} = tl.where($mask, {name} - {frame.reduce('max', name)}, 0.0)",
        f"e{suffix} = tl.where($mask, tl.exp(d{suffix}), 0.0)",
        f"s{suffix} = {frame.reduce('sum', f'e{suffix}')}",
    ]


def _entropy(frame: Frame) -> list[str]:
    return [*_log_weights(frame, "x", ""), f"v = tl.log(s) - {frame.reduce('sum', 'e * d')} / s", frame.store_row("v")]


def _kl_div(frame: Frame) -> list[str]:
    return [
        *_log_weights(frame, "x", "x"),
        *_log_weights(frame, "y", "y"),
        f"v = {frame.reduce('sum', 'ex * (dx - dy)')} / sx - tl.log(sx) + tl.log(sy)",
        frame.store_row("v"),
    ]


def _maximum(frame: LoopFrame, load: list[str], name: str, result: str) -> list[str]:
    """A pass for the row's maximum of `name`."""
    return [
        f"top = tl.full(($BLOCK,), {_INF}, dtype=tl.float32)",
        *frame.loop([*load, f"top = tl.maximum(top, {name})"]),
        f"{result} = tl.max(top, axis=0)",
    ]


def _looped_softmax(op: str, frame: LoopFrame) -> list[str]:
    load = _input(op, frame)
    body = [
        *_scale(op),
        *_maximum(frame, load, "x", "m"),
        "acc = tl.zeros(($BLOCK,), dtype=tl.float32)",
        *frame.loop([*load, "acc += tl.exp(x - m)"]),
    ]
    if op == "log_softmax":
        body.append("lse = tl.log(tl.sum(acc, axis=0))")
        return [*body, *frame.loop([*load, "v = x - m - lse", frame.store("v")])]
    body.append("s = tl.sum(acc, axis=0)")
    return [*body, *frame.loop([*load, "v = tl.exp(x - m) / s", frame.store("v")])]


def _looped_cross_entropy(frame: LoopFrame) -> list[str]:
    load = [f"x = {frame.load('x', _INF)}"]
    target = "$x_ptr + t" if frame.design.base == "advance" else f"$x_ptr + $row * {frame.step('x')} + t"
    return [
        f"t = {frame.row_scalar('tgt')}",
        f"xt = tl.load({target}).to(tl.float32)",
        *_maximum(frame, load, "x", "m"),
        "acc = tl.zeros(($BLOCK,), dtype=tl.float32)",
        *frame.loop([*load, "acc += tl.exp(x - m)"]),
        "v = tl.log(tl.sum(acc, axis=0)) + m - xt",
        frame.store_row("v"),
    ]


def _looped_entropy(frame: LoopFrame) -> list[str]:
    load = [f"x = {frame.load('x', _INF)}"]
    return [
        *_maximum(frame, load, "x", "m"),
        "acc = tl.zeros(($BLOCK,), dtype=tl.float32)",
        "dot = tl.zeros(($BLOCK,), dtype=tl.float32)",
        *frame.loop([*load, "d = tl.where($mask, x - m, 0.0)", "e = tl.where($mask, tl.exp(d), 0.0)", "acc += e", "dot += e * d"]),
        "s = tl.sum(acc, axis=0)",
        "v = tl.log(s) - tl.sum(dot, axis=0) / s",
        frame.store_row("v"),
    ]


_LOOPED = {"cross_entropy": _looped_cross_entropy, "entropy": _looped_entropy}

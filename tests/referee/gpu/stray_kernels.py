"""Kernels for silu that give the right answer and do one thing more which they must not, each with
the guards that may catch it.
"""

from __future__ import annotations

from dataclasses import dataclass

_TEXT = """
@triton.jit
def _kernel(x_ptr, out_ptr, scratch_ptr, total, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    at = tl.program_id(0).to(tl.int64) * BLOCK + lane
    mask = at < total
    few = lane < 8
    first = tl.program_id(0) == 0
    last = tl.program_id(0) == tl.num_programs(0) - 1
    far = tl.full((BLOCK,), 1 << 44, tl.int64)
    x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
    y = x * tl.sigmoid(x)
    BEFORE
    tl.store(out_ptr + at, y, mask=mask)
    AFTER


def run(x):
    out = torch.empty_like(x)
    scratch = torch.empty_like(x)
    _kernel[(triton.cdiv(x.numel(), 512),)](x, out, scratch, x.numel(), BLOCK=512)
    return out
"""
_USED = "y += tl.sum(tl.where(few, {} * 0.0, 0.0))"
_HIDDEN = "y += tl.sum(tl.where(few & ({} > 1e4), 1.0, 0.0))"


@dataclass(frozen=True)
class Stray:
    """`gpu` and `cpu` are the guards that may catch it there; no `cpu` guards: only a GPU can tell,
    or it would take too long.
    """

    gpu: frozenset[str]
    cpu: frozenset[str]
    source: str


def _stray(gpu: str, cpu: str, *, before: str = "pass", after: str = "pass") -> Stray:
    source = _TEXT.replace("BEFORE", before.replace("\n", "\n    ")).replace(
        "AFTER", after.replace("\n", "\n    ")
    )
    return Stray(frozenset(gpu.split()), frozenset(cpu.split()), source)


def _load(where: str) -> str:
    return f"tl.load({where}, mask=few, other=0.0).to(tl.float32)"


STRAYS = {
    "writes past the end": _stray(
        "guard_band", "out_of_bounds", after="tl.store(out_ptr + total + lane, y, mask=few & last)"
    ),
    "writes before the start": _stray(
        "guard_band", "out_of_bounds", after="tl.store(out_ptr - 8 + lane, y, mask=few & first)"
    ),
    "writes past the end of its input": _stray(
        "guard_band", "out_of_bounds", after="tl.store(x_ptr + total + lane, y, mask=few & last)"
    ),
    "writes before the start of its scratch": _stray(
        "guard_band", "out_of_bounds", after="tl.store(scratch_ptr - 8 + lane, y, mask=few & first)"
    ),
    "writes far outside": _stray(
        "out_of_bounds",
        "out_of_bounds",
        after="tl.store(out_ptr + far + lane, y, mask=few & first)",
    ),
    "reads past the end": _stray(
        "wrong_answer", "out_of_bounds", before=_USED.format(_load("x_ptr + total + lane"))
    ),
    "reads before the start": _stray(
        "wrong_answer", "out_of_bounds", before=_USED.format(_load("x_ptr - 8 + lane"))
    ),
    "reads past the end and hides NaN": _stray(
        "not_deterministic wrong_answer",
        "out_of_bounds",
        before=_HIDDEN.format(_load("x_ptr + total + lane")),
    ),
    "reads far outside": _stray(
        "out_of_bounds", "out_of_bounds", before=_USED.format(_load("x_ptr + far + lane"))
    ),
    "reads unwritten scratch": _stray(
        "wrong_answer", "not_deterministic", before=_USED.format(_load("scratch_ptr + lane"))
    ),
    "reads unwritten scratch and hides NaN": _stray(
        "not_deterministic", "not_deterministic", before=_HIDDEN.format(_load("scratch_ptr + lane"))
    ),
    "reads its output before it is written": _stray(
        "not_deterministic wrong_answer",
        "not_deterministic wrong_answer",
        before=_HIDDEN.format(_load("out_ptr + lane")),
    ),
    "leaves a part of its output unwritten": _stray(
        "wrong_answer", "wrong_answer", before="mask = mask & (at != 3)"
    ),
    "never ends": _stray(
        "timeout",
        "",
        before="turn = tl.load(x_ptr, volatile=True)\nwhile turn == turn:\n    turn = tl.load(x_ptr, volatile=True)",
    ),
    "gives the right answer and lingers": _stray(
        "timeout",
        "",
        after="turn = tl.load(x_ptr, volatile=True)\nwhile first & (turn == turn):\n    turn = tl.load(x_ptr, volatile=True)",
    ),
}
RIGHT = _stray("", "").source

"""Explains a wrong answer in one line: where, by how much, and the usual cause of such errors."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from referee.answers.tolerance import Expected
from referee.ops.torch_compat import computable
from referee.plans.arena import NAN

_SAMPLE = 1 << 20
_SPREAD = 1e-3
_SMALL = 1e-2
# Errors below this multiple of the budget are rounding errors, whose place and sign are random.
_ROUNDING = 4.0
# Number of elements from which a common factor is not a coincidence, even for small errors.
_MANY = 16
# Minimum share of wrong elements in a region; fewer may lie there by chance.
_DENSE = 0.25
_CANCELS = "in a norm subtract the mean before squaring, for E[x^2] - E[x]^2 cancels"


def explain(
    expected: Expected,
    output: Tensor,
    error: Tensor,
    wrong: Tensor,
    *,
    first_row: int = 0,
    norm: bool | None = None,
) -> str:
    """The message for the author. `error` and `wrong` are elementwise, in the output's shape.

    `norm` says whether the operation normalises rows; None means unknown.
    """
    count, total = int(wrong.sum()), wrong.numel()
    if expected.budget.isfinite().any() and output.is_floating_point():
        excess = torch.where(wrong, error / expected.budget, 0.0).nan_to_num(nan=torch.inf)
    else:
        excess = wrong.double()
    at = int(excess.argmax())
    where = _position(at, output, first_row)
    got, want = output.flatten()[at].item(), expected.value.flatten()[at].item()
    budget = expected.budget.flatten()[at].item()
    text = (
        f"{count} of {total} elements wrong, worst at {where}: got {got:.6g}, expected {want:.6g}"
    )
    if output.is_floating_point() and error.flatten()[at].isfinite():
        text += f" (error {error.flatten()[at].item():.3g}, allowed {budget:.3g})"
    hint = _hint(expected, output, error, wrong, norm)
    return f"{text}; {hint}" if hint else text


def _position(at: int, output: Tensor, first_row: int) -> str:
    index = [int(place) for place in np.unravel_index(at, tuple(output.shape))]
    if not index:
        return "the only element"
    index[0] += first_row
    if len(index) == 2:
        return f"row {index[0]}, column {index[1]}"
    return f"row {index[0]}" if len(index) == 1 else f"index {tuple(index)}"


def _hint(
    expected: Expected, output: Tensor, error: Tensor, wrong: Tensor, norm: bool | None
) -> str | None:
    return (
        _unwritten(output, wrong)
        or _not_finite(expected, output, wrong)
        or _zeros(output)
        or _small(expected, output, error, wrong, norm)
        or _region(wrong)
        or _half(expected, output, error, wrong)
        or _pattern(expected, output, wrong, "" if norm is False else _CANCELS)
    )


def _zeros(output: Tensor) -> str | None:
    if output.is_floating_point() and not bool(computable(output).any()):
        return "the output is all zeros"
    return None


def _small(
    expected: Expected, output: Tensor, error: Tensor, wrong: Tensor, norm: bool | None
) -> str | None:
    """Errors slightly above their budgets: a common factor of many elements, or rounding."""
    if not output.is_floating_point():
        return None
    share = (error / expected.budget)[wrong]
    if not bool((share < _ROUNDING).all()):
        return None
    ratio = _ratios(expected, output, wrong)[1]
    if len(ratio) >= _MANY and _one_factor(ratio):
        return _factor(ratio, _CANCELS if norm else "")
    if output.dtype.itemsize < 4:
        return _kept_in(output.dtype)
    advice = (
        f"accumulate in {_arithmetic(expected)}, a block at a time, "
        "and use no approximate function or shortened constant"
    )
    return f"the errors are of the size of rounding: {advice}" + (f"; {_CANCELS}" if norm else "")


def _arithmetic(expected: Expected) -> str:
    return "float64" if expected.dtype == torch.float64 else "fp32"


def _half(expected: Expected, output: Tensor, error: Tensor, wrong: Tensor) -> str | None:
    """Errors below one half-precision rounding of the row's largest answer, after cancellation."""
    if not output.is_floating_point() or output.dtype.itemsize >= 4 or not output.dim():
        return None
    value = expected.value.double()
    largest = torch.where(value.isfinite(), value.abs(), 0.0).amax(-1, keepdim=True)
    if not bool((error <= torch.finfo(output.dtype).eps * largest)[wrong].all()):
        return None
    ratio = _ratios(expected, output, wrong)[1]
    if len(ratio) >= _MANY and _one_factor(ratio):
        return None
    return _kept_in(output.dtype) + "; else a formula is approximate"


def _kept_in(dtype: torch.dtype) -> str:
    name = str(dtype).removeprefix("torch.")
    return (
        f"the errors are of the size of rounding, as if an intermediate is kept in {name}; "
        "convert every operand with `.to(tl.float32)` right after tl.load, "
        "and round once at the store"
    )


def _unwritten(output: Tensor, wrong: Tensor) -> str | None:
    if not output.is_floating_point() or output.dtype.itemsize == 1:
        return None
    bits = output.contiguous().view(
        {2: torch.int16, 4: torch.int32, 8: torch.int64}[output.dtype.itemsize]
    )
    poison = int.from_bytes(NAN.pattern * (output.dtype.itemsize // 2), "little", signed=True)
    untouched = int(((bits == poison) & wrong).sum())
    if not untouched:
        return None
    written, whole = output.numel() - untouched, output.numel()
    share = f"only {written} of {whole} elements were" if written else "no element was"
    return f"{share} written, or memory outside a tensor was read: check the grid and the masks"


def _not_finite(expected: Expected, output: Tensor, wrong: Tensor) -> str | None:
    if not output.is_floating_point():
        return None
    output = computable(output)
    bad = ~output.isfinite() & expected.value.isfinite() & wrong
    if not bool(bad.any()):
        missing = output.isfinite() & ~expected.value.isfinite() & wrong
        missed = "a NaN or infinity is missing: where the input or the formula has one"
        return f"{missed}, the output must" if bool(missing.any()) else None
    kind = "NaN" if bool(output[bad].isnan().any()) else "infinity"
    rows = int(_rows(bad).sum()) if bad.dim() > 1 else int(bad.sum())
    return (
        f"{kind} where the answer is finite, in {rows} rows; "
        "after an overflow subtract the row maximum before exp, guard large arguments, "
        "accumulate in fp32; after a division by zero add eps inside the root"
    )


def _rows(wrong: Tensor) -> Tensor:
    return wrong.reshape(wrong.shape[0], -1).any(1)


def _region(wrong: Tensor) -> str | None:
    if wrong.dim() != 2 or min(wrong.shape) < 2:
        return None
    columns = wrong.any(0).nonzero().flatten()
    first, last, width = int(columns[0]), int(columns[-1]), wrong.shape[1]
    solid = len(columns) == last - first + 1 and _dense(wrong[:, first : last + 1])
    if len(columns) < width and solid:
        if last == width - 1:
            return (
                f"only columns from {first} on are wrong: check the column loop's end and the mask"
            )
        if first == 0 and last < width - 1:
            return f"only columns up to {last} are wrong: check the column offsets"
    rows = _rows(wrong).nonzero().flatten()
    together = len(rows) < wrong.shape[0] and len(rows) == int(rows[-1]) - int(rows[0]) + 1
    if together and int(rows[-1]) == wrong.shape[0] - 1 and _dense(wrong[int(rows[0]) :]):
        return f"only rows from {int(rows[0])} on are wrong: check the grid and the row offsets"
    return None


def _dense(wrong: Tensor) -> bool:
    return int(wrong.sum()) >= _DENSE * wrong.numel()


def _ratios(expected: Expected, output: Tensor, wrong: Tensor) -> tuple[Tensor, Tensor]:
    """A mask of the wrong elements that are large enough, and the factors of a sample of them."""
    value, answer = expected.value.double(), output.double()
    usable = value.isfinite() & answer.isfinite() & (value.abs() > 8 * expected.budget) & wrong
    return usable, answer[usable][:_SAMPLE] / value[usable][:_SAMPLE]


def _factor(ratio: Tensor, cancels: str) -> str:
    factor = float(ratio.median())
    off = factor - 1
    if abs(off) >= _SMALL:
        return f"every wrong element is {factor:.4g} times the expected: check a constant factor"
    statistic = f", or the row statistic ({cancels})" if cancels else " or divisor"
    sign = "-" if off < 0 else "+"
    return (
        f"every wrong element is 1 {sign} {abs(off):.2g} times the expected: "
        f"check a constant factor{statistic}"
    )


def _pattern(expected: Expected, output: Tensor, wrong: Tensor, cancels: str) -> str | None:
    if not output.is_floating_point():
        return None
    value, answer = expected.value.double(), output.double()
    usable, ratio = _ratios(expected, output, wrong)
    if int(usable.sum()) < 2:
        return None
    picked = usable.nonzero()[:_SAMPLE]
    if _one_factor(ratio):
        return _factor(ratio, cancels)
    if wrong.dim() == 2 and wrong.shape[1] > 2:
        rows = picked[:, 0][:: max(1, len(picked) // 64)].tolist()
        if all(_one_factor(ratio[picked[:, 0] == row]) for row in set(rows)):
            near = f"; {cancels}" if cancels and float((ratio - 1).abs().max()) < _SMALL else ""
            return (
                "each row is off by another factor: "
                f"check the row statistic (eps, divisor, fp32 accumulation{near})"
            )
        shift = (answer - value)[usable][:_SAMPLE]
        if all(_steady(shift[picked[:, 0] == row]) for row in set(rows)):
            return (
                "each row is off by a constant: "
                "check the terms that are subtracted from the row or added to it"
            )
    positive = bool((value[wrong] >= 0).all())
    # Without answers of the other sign, as after a relu, the sign says nothing.
    if (positive and bool((value < 0).any())) or (
        bool((value[wrong] <= 0).all()) and bool((value > 0).any())
    ):
        sign = "positive" if positive else "negative"
        return f"only elements whose answer is {sign} are wrong: check that branch of the formula"
    largest = (
        float(((answer - value).abs() / value.abs().amax(-1, keepdim=True))[usable].max())
        if value.isfinite().all()
        else 1.0
    )
    if largest < _SMALL:
        return (
            f"the errors are small, at most {100 * largest:.2g} % of a row's largest answer: "
            "an approximate formula, or rounding"
            f" (accumulate in {_arithmetic(expected)}{'; ' if cancels else ''}{cancels})"
        )
    if int(wrong.sum()) < wrong.numel() // 2:
        large = value.abs()[wrong].median() > 2 * value.abs().median()
        small = value.abs()[wrong].median() < 0.5 * value.abs().median()
        if large or small:
            size = "large" if large else "small"
            return (
                f"mostly elements with {size} answers are wrong: "
                "check precision and overflow guards"
            )
    return "check the formula"


def _steady(values: Tensor) -> bool:
    return bool(len(values) > 1) and float(values.std()) < _SPREAD * float(values.mean().abs())


def _one_factor(ratio: Tensor) -> bool:
    """Ratios near one always look alike, so their distance from one must be alike too."""
    return _steady(ratio) and float(ratio.std()) < 0.25 * abs(float(ratio.mean()) - 1)

"""Planted mistakes: edits of a saved file's text, each of which makes its kernel wrong."""

from __future__ import annotations

import re
from collections.abc import Callable

from kmint_tui.save.judged_part import BEGIN, END

Edit = Callable[[str], str]


def _replaced(pattern: str, by: str, count: int = 0) -> Edit:
    return lambda text: re.sub(pattern, by, text, count=count)


def _stale(text: str) -> str:
    """The first weights of a shape and dtype are kept, and used ever after."""
    weight = re.search(r"def _run\((?:x, |x, residual, |q, )(w|bias|scale)\b", text)
    if weight is None:
        return text
    name = weight[1]
    kept = f"    {name} = _KEPT.setdefault((tuple({name}.shape), {name}.dtype), {name})\n"
    return re.sub(r"(def _run\(.*\):\n)", rf"_KEPT = {{}}\n\n\n\1{kept}", text)


_LOAD = (
    r"(tl\.load\([^,()]*(?:\([^()]*\)[^,()]*)*), mask=[^,()]*"
    r"(?:, other=[^()]*(?:\('inf'\))?)?\)"
)


def _dropped_mask(text: str) -> str:
    """Only where a sum then takes more than the row: elsewhere nothing wrong would be stored."""
    filled = "tl.where(mask, x, -float('inf'))"
    if filled in text:
        return text.replace(filled, "x")
    return re.sub(_LOAD, r"\1)", text, count=1) if "tl.sum" in text else text


def _transposed(text: str) -> str:
    """A vector is its own transposed."""
    turned = "    return out.t().contiguous().view(out.shape)\n"
    return text if "torch.empty((M,)" in text else text.replace("    return out\n", turned)


MISTAKES: dict[str, Edit] = {
    "factor": _replaced(r"(tl\.store\([^,]*, )(.*?)((?:, mask=.*)?\)\n)", r"\1(\2) * 0.99\3"),
    "missing max": _replaced(r"tl\.max\([a-z]+, axis=0\)", "0.0"),
    "wrong eps": _replaced(r"1e-0[56]", "2e-05"),
    "dropped mask": _dropped_mask,
    "fp16 sum": _replaced(r"tl\.sum\((.*?), axis=0\)", r"tl.sum((\1).to(tl.float16), axis=0)"),
    "swapped gate": _replaced(r"\]\(gate, up,", "](up, gate,"),
    "off-by-one column": _replaced(
        r"(x_ptr|q_ptr|gate_ptr|inputs\[0\]) \+ (.*?), mask", r"\1 + \2 + 1, mask", 1
    ),
    "stale weight": _stale,
    "wrong output dtype": _replaced(r"    return out\n", "    return out.to(torch.float64)\n"),
    "transposed": _transposed,
}


def planted(text: str) -> dict[str, str]:
    """The file with each mistake that applies to its kernel, in the judged part alone."""
    before, begin, rest = text.partition(BEGIN)
    kernel, end, after = rest.partition(END)
    made = {name: edit(kernel) for name, edit in MISTAKES.items()}
    return {
        name: f"{before}{begin}{edited}{end}{after}"
        for name, edited in made.items()
        if edited != kernel
    }

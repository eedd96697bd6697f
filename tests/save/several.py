"""Files that choose by shape, saved from gold kernels with made-up measurements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from kmint_tui.save.choosing import Outside, Row
from kmint_tui.save.saving import Saved, module_prefix, written
from kmint_tui.save.several import prepare_several
from referee.ops import get
from referee.verdict import Verdict
from tests.save.conftest import draft, op_name, passed_everywhere, session, source


def row(shape: str, number: int, ratio: float = 1.25) -> Row:
    """A measurement of draft 12.`number`, at a shape such as "8192x4096:bfloat16"."""
    sizes, _, dtype = shape.partition(":")
    rows, columns = map(int, sizes.split("x"))
    return Row(
        rows=rows,
        columns=columns,
        dtype=dtype,
        entry="",
        draft=f"12.{number}",
        ratio=ratio,
        low=ratio - 0.01,
        high=ratio + 0.01,
        bar="compile",
        microseconds=50.0,
        decision="win",
        where="NVIDIA H200, torch 2.11, triton 3.6",
    )


def save_several(
    names: Sequence[str],
    shapes: Sequence[tuple[str, int]],
    folder: Path,
    *,
    outside: Outside = "nearest",
    judge: Callable[[str], Verdict] | None = None,
) -> Saved:
    """Save the gold kernels as drafts 12.1, 12.2, ...; each shape names the number of its draft."""
    op = op_name(names[0])
    verdict = passed_everywhere(op)
    drafts = [
        (session(op), replace(draft(source(name), verdict), number=number))
        for number, name in enumerate(names, start=1)
    ]
    kernel = prepare_several(
        drafts,
        [row(shape, number) for shape, number in shapes],
        outside,
        get(op),
        judge=judge or (lambda _: verdict),
        folder=module_prefix(folder, get(op), "file"),
        licence="NOASSERTION",
    )
    return written(kernel, folder, "file", force=False)

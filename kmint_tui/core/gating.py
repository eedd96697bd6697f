"""The claims that `kmint gate` measures: a kernel at its usual shape, or at each asked one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kmint_tui import paths
from kmint_tui.core.kernel_choice import Claim, Kernel, chosen_kernel
from kmint_tui.errors import UsageError
from referee.versions import compiler_name

if TYPE_CHECKING:
    from referee.asked_shape import AskedShape
    from referee.reference.asked import Asked


def claims(
    wanted: str,
    op: str | None,
    reference: Asked | None,
    shapes: tuple[str, ...],
    dtype: str | None,
) -> tuple[tuple[str, Kernel], ...]:
    """Each shape as `--shape` takes it, with the kernel for it; one empty text without shapes.

    Raises KmintError as `chosen_kernel` and `asked_shapes` do.
    """
    from kmint_tui.core.shape import wanted_shapes
    from referee.asked_shape import AskedShape

    if not (shapes or dtype):
        return (("", chosen_kernel(wanted, op, reference)),)
    if reference is not None:
        raise UsageError(
            "--shape and --dtype are for operations of the catalogue",
            fix="give the sizes with --input",
        )
    first = chosen_kernel(wanted, op, None, any_entry=True)
    names = wanted_shapes(first.op, shapes, dtype)
    found = [_at(first, AskedShape.parse(name)) for name in names]
    return tuple(zip(names, found, strict=True))


def _at(kernel: Kernel, shape: AskedShape) -> Kernel:
    """The kernel with the task of one shape, and the claim that its verdict makes there."""
    task = replace(kernel.task, shapes=(str(shape),))
    source = kernel.source
    if kernel.origin == "saved file":
        source = _source_for(Path(kernel.name), kernel.source, shape)
    return replace(kernel, source=source, task=task, claim=_claim(kernel, shape))


def _source_for(file: Path, usual: str, shape: AskedShape) -> str:
    """The kernel that a saved file takes at the shape. Raises UsageError where it takes PyTorch."""
    from kmint_tui.core.kernel_file import read_source
    from kmint_tui.save.choosing import entry_for
    from kmint_tui.save.judged_part import candidates_of

    text = read_source(file)
    found = candidates_of(text)
    if list(found) == ["_run"]:
        return usual
    entry = entry_for(text, shape.rows, shape.columns, shape.dtype)
    if entry not in found:
        raise UsageError(
            f"{file} takes PyTorch at {shape}: no kernel of it is for that dtype",
            fix="name a dtype of its table SHAPES",
        )
    return found[entry]


def _claim(kernel: Kernel, shape: AskedShape) -> Claim | None:
    """What the verdict on a draft says at this shape; None for a file, and without a time there."""
    from kmint_tui.core.shape_times import named
    from kmint_tui.history.reading import read_history

    if kernel.draft is None or kernel.draft.number is None:
        return None
    with read_history(paths.history_file()) as history:
        draft = history.draft(kernel.draft.session, kernel.draft.number)
    row = named(draft).get(shape)
    if row is None:
        return None
    where = (draft.verdict or {}).get("environment") or {}
    environment = {name: where.get(name) for name in ("device", "cuda_driver", "torch")}
    if where.get("triton"):
        environment["triton"] = compiler_name(where)
    return Claim(row.decision, row.ratio, row.bar, environment)

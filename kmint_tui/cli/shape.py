"""`--shape` and `--dtype`: the shapes at which an operation is timed."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def shape_options(command: Command) -> Command:
    """The two options. The command gets `shapes`, texts of `--shape`, and `dtype`, or None."""

    @click.option(
        "--shape",
        "shapes",
        metavar="RxC",
        multiple=True,
        help="Rows and columns at which the kernel is judged and timed, as in 32768x1024 or 32768x1024:bf16; may be repeated."
        "  [default: 8192x4096; for rope 32768x128]",
    )
    @click.option(
        "--dtype",
        metavar="DTYPE",
        help="fp16, bf16 or fp32, for shapes that say none.  [default: fp16]",
    )
    @wraps(command)
    def with_shapes(*args: Any, **rest: Any) -> Any:
        return command(*args, **rest)

    return with_shapes  # type: ignore[return-value]

"""`--shape` and `--dtype`: the shapes at which an operation is timed."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


USUAL = "8192x4096; for rope 32768x128"


def shape_options(command: Command) -> Command:
    """The two options. The command gets `shapes`, texts of `--shape`, and `dtype`, or None."""
    return shapes_for("at which the kernel is judged and timed", USUAL)(command)


def shapes_for(what: str, default: str, dtype: str = "fp16") -> Callable[[Command], Command]:
    """The two options of a command, with the use of its shapes in words, and the defaults."""

    def decorate(command: Command) -> Command:
        @click.option(
            "--shape",
            "shapes",
            metavar="RxC",
            multiple=True,
            help=f"Rows and columns {what}, as in 32768x1024 or 32768x1024:bf16; Mx1024 is several"
            f" numbers of rows; may be repeated.  [default: {default}]",
        )
        @click.option(
            "--dtype",
            metavar="DTYPE",
            help=f"fp16, bf16 or fp32, for shapes that say none.  [default: {dtype}]",
        )
        @wraps(command)
        def with_shapes(*args: Any, **rest: Any) -> Any:
            return command(*args, **rest)

        return with_shapes  # type: ignore[return-value]

    return decorate

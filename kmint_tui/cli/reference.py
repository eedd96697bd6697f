"""`--reference`, `--input` and `--fix`: the options for the user's own function and its inputs."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click

from kmint_tui.core.reference import parse_reference

Command = TypeVar("Command", bound=Callable[..., Any])

RUNS_AS_YOU = "The file is your own code: kmint runs it as you, outside the sandbox."


def reference_option(
    meaning: str = "The reference it was minted by, when that was your own.",
) -> Callable[[Command], Command]:
    """`--reference FILE.py[:FN]`, with its meaning for this command, and `--input` and `--fix`.

    The command gets the three as one `Asked`, or None.
    """

    def decorate(command: Command) -> Command:
        @click.option("--reference", metavar="FILE.py[:FN]", help=f"{meaning} {RUNS_AS_YOU}")
        @click.option(
            "--input",
            "inputs",
            metavar="SET",
            multiple=True,
            help="Inputs of the reference, as in 'x=bf16[B,4096] eps=1e-6', or @FILE.json of `kmint record`; may be repeated.",
        )
        @click.option(
            "--fix",
            "fixed",
            metavar="NAME=VALUE",
            multiple=True,
            help="Fix a number of the reference: `run` does not get it.",
        )
        @wraps(command)
        def with_reference(
            *args: Any,
            reference: str | None,
            inputs: tuple[str, ...],
            fixed: tuple[str, ...],
            **rest: Any,
        ) -> Any:
            given = reference is not None or inputs or fixed
            found = parse_reference(reference, inputs, fixed) if given else None
            return command(*args, reference=found, **rest)

        return with_reference  # type: ignore[return-value]

    return decorate

"""Options that several commands share: operations, shapes, the user's own reference, and devices."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from kmint_tui.cli.state import State
from kmint_tui.core.farm.opening import FarmAsked
from kmint_tui.core.reference import parse_reference
from kmint_tui.core.task import operation


class Operation(click.ParamType[str]):
    """An operation, by its name or by words such as "rmsnorm residual silu"; its value is the
    operation's name.

    A note on stderr says which operation the words were taken for.
    """

    name = "operation"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        op = operation(value)
        if op.name != value and ctx is not None and not ctx.resilient_parsing:
            ctx.ensure_object(State).err.note(f"{value!r} is taken for {op.name}: {op.title}")
        return op.name


OPERATION = Operation()


def complete_operation(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completions for an operation's name."""
    from referee.ops import listed

    return [
        CompletionItem(op.name, help=op.title) for op in listed() if op.name.startswith(incomplete)
    ]


Command = TypeVar("Command", bound=Callable[..., Any])


USUAL = "8192x4096; for rope 32768x128"


def shape_options(command: Command) -> Command:
    """`--shape` and `--dtype`. The command gets `shapes`, texts of `--shape`, and `dtype`, or None."""
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


RAY = "A Ray cluster: HOST:PORT of its head, or `auto` to start one on this machine and end it."


def farm_options(command: Command) -> Command:
    """`--gpus`, `--ray` and `--ray-kind`; the command gets them as one `FarmAsked`."""

    @click.option(
        "--gpus",
        metavar="all|N|A,B",
        help="GPUs of this host, all of one kind: `all`, the first N, or those of these numbers.",
    )
    @click.option("--ray", metavar="ADDRESS", help=RAY)
    @click.option(
        "--ray-kind",
        metavar="KIND",
        help="With --ray: the kind of GPU, as Ray names it (H200), or `cpu`.  [default: the only kind there]",
    )
    @wraps(command)
    def with_farm(
        *args: Any, gpus: str | None, ray: str | None, ray_kind: str | None, **rest: Any
    ) -> Any:
        offline = None
        if ray is not None:
            from kmint_tui.core.offline import offline_reason

            state = click.get_current_context().ensure_object(State)
            offline = offline_reason(flag=state.offline)
        return command(*args, farm=FarmAsked(gpus, ray, ray_kind, offline), **rest)

    return with_farm  # type: ignore[return-value]


session_option = click.option(
    "--session",
    "by_session",
    is_flag=True,
    help="Let the session of `kmint serve` judge; without one, judge in this process.",
)

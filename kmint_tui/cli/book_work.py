"""`kmint book build` and `kmint book rejudge`, which need a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kmint_tui.cli.framework import Amount, RunsCandidates
from kmint_tui.cli.options import farm_options
from kmint_tui.cli.state import State
from kmint_tui.cli.streams import Diagnostics, Table
from kmint_tui.cli.termination import two_step_interrupt
from kmint_tui.core.exit_codes import ExitCode

if TYPE_CHECKING:
    from kmint_tui.core.book.progress import BuildEvent, Built
    from kmint_tui.core.book.rejudging import Rejudged
    from kmint_tui.core.farm.opening import FarmAsked

_OPS = click.option(
    "--ops",
    metavar="A,B|all",
    multiple=True,
    help="Only these operations; may be repeated.  [default: all]",
)


@click.command(cls=RunsCandidates)
@_OPS
@click.option(
    "--shape",
    "shapes",
    metavar="RxC",
    multiple=True,
    help="Rows and columns, as in 32768x1024 or Mx1024:fp16; may be repeated.  [default: a spread of four]",
)
@click.option(
    "--dtype",
    metavar="DTYPE",
    help="fp16, bf16 or fp32, for shapes that say none.  [default: bf16]",
)
@click.option(
    "--budget",
    metavar="MINUTES",
    type=Amount(0, 10_000, min_open=True),
    help="Begin no operation that would end later.  [default: none]",
)
@click.option(
    "--drafts",
    "-n",
    type=click.IntRange(1, 64),
    default=8,
    show_default=True,
    help="Drafts of the embedded smith for each operation.",
)
@click.option(
    "--again",
    is_flag=True,
    help="Also the places that the book has; their kernels compete again.",
)
@farm_options
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.book.build/1).")
@click.pass_obj
def build(
    state: State,
    ops: tuple[str, ...],
    shapes: tuple[str, ...],
    dtype: str | None,
    budget: float | None,
    drafts: int,
    again: bool,
    farm: FarmAsked,
    as_json: bool,
) -> int:
    """Build the book of the GPU here: draft, race, tune and judge kernels of each operation, and
    keep the best one of each shape.

    \b
      kmint book build --budget 10
      kmint book build --ops rmsnorm,softmax --shape 8192x4096 --shape 32768x1024
      kmint book build --gpus all
      kmint book build --ray 10.0.0.1:6379

    The operations that models run most come first. The same command goes on where it was
    interrupted, or where the budget ended. A kernel of the book is not made again, unless it is of
    other versions of torch or Triton. Kernels of imported books compete too.

    The first Ctrl-C ends the build after the operations under way, the second at once. Exit code 0
    means that each operation has a kernel now, 1 that one has none. Needs a GPU.
    """
    from kmint_tui.core.book.opening import build_here

    err = state.err
    result, device, known = None, "", 0
    with build_here(
        ops=ops,
        shapes=shapes,
        dtype=dtype,
        budget=budget,
        drafts=drafts,
        again=again,
        farm=farm,
        demand=state.demand(),
        note=err.note,
        tell=lambda event: _show(err, event),
    ) as opened:
        device, known = opened.device, opened.known
        if known:
            err.note(f"{known} kernels are in the book already")

        def stop() -> None:
            opened.build.stop()
            err.note("stopping after the operations under way; press Ctrl-C again to stop at once")

        with two_step_interrupt(stop) as interrupts:
            result = opened.build.run()
    if as_json:
        state.out.document("kmint.book.build/1", _document(result, device, known))
    else:
        _report(state, result, device)
    if interrupts:
        return ExitCode.INTERRUPTED
    return ExitCode.NOTHING_PASSED if result.failures else ExitCode.DONE


@click.command(cls=RunsCandidates)
@_OPS
@farm_options
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.book.rejudge/1).")
@click.pass_obj
def rejudge(state: State, ops: tuple[str, ...], farm: FarmAsked, as_json: bool) -> int:
    """Judge every kernel of the book again on the GPU here: the ratio then, now, and the
    difference. The book stays as it is.

    \b
      kmint book rejudge
      kmint book rejudge --ops softmax --json

    Exit code 0 means that every kernel was right and timed, 1 that one was not. Needs a GPU.
    """
    from kmint_tui.core.book.opening import rejudge_here

    err = state.err

    def show(one: Rejudged) -> None:
        now = f"{one.ratio:.3f}x now" if one.ratio else f"{one.verdict}: {one.reason}"
        err.note(f"{one.entry.place}: {one.entry.figures.ratio:.3f}x then, {now}")

    device, found = rejudge_here(
        ops=ops, farm=farm, demand=state.demand(), note=err.note, on_found=show
    )
    if as_json:
        content = {"device": device, "entries": [one.to_json() for one in found]}
        state.out.document("kmint.book.rejudge/1", content)
    else:
        headers = ("op", "shape", "dtype", "then", "now", "difference", "verdict")
        right = frozenset({"then", "now", "difference"})
        state.out.table(Table(headers, [_compared(one) for one in found], right))
    return ExitCode.DONE if all(one.ratio for one in found) else ExitCode.NOTHING_PASSED


def _compared(one: Rejudged) -> tuple[str, ...]:
    entry, difference = one.entry, one.difference
    return (
        *(entry.op, entry.shape, entry.dtype, f"{entry.figures.ratio:.3f}x"),
        f"{one.ratio:.3f}x" if one.ratio else "",
        f"{100 * difference:+.1f} %" if difference is not None else "",
        one.verdict if one.ratio else f"{one.verdict}: {one.reason}",
    )


def _show(err: Diagnostics, event: BuildEvent) -> None:
    from kmint_tui.core.book.progress import Step

    if isinstance(event, Step):
        err.note(event.text)
        return
    found = "; ".join(
        f"{one.shape} {one.dtype} {one.figures.verdict} {one.figures.ratio:.3f}x by {one.maker}"
        for one in event.entries
    )
    said = "; ".join(filter(None, (found, *event.failures)))
    left = f", about {_minutes(event.left)} left" if event.number < event.total else ""
    err.note(
        f"{event.number} of {event.total}, {_minutes(event.elapsed)}{left}: {event.work.op.name} {said}"
    )


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.1f} min"


def _document(result: Built, device: str, known: int) -> dict[str, object]:
    from dataclasses import asdict

    from kmint_tui.core.book.progress import profile_document

    return {
        "device": device,
        "entries": [asdict(entry) for entry in result.entries],
        "known": known,
        "failures": list(result.failures),
        "left": list(result.left),
        "seconds": profile_document(result.profile),
    }


def _report(state: State, result: Built, device: str) -> None:
    outcomes = [entry.figures.verdict for entry in result.entries]
    counted = ", ".join(f"{outcomes.count(name)} {name}" for name in dict.fromkeys(outcomes))
    state.out.text(
        f"{len(result.entries)} kernels for {device} in {_minutes(result.profile.wall)}"
        + (f": {counted}" if counted else "")
    )
    for failure in result.failures:
        state.out.text(f"no kernel: {failure}")
    if result.left:
        state.err.hint(f"{len(result.left)} operations are left; the same command goes on")

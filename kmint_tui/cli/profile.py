"""`kmint profile ID|FILE`: bytes, registers and occupancy of a kernel, and its time on a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kmint_tui.cli.framework import RunsCandidates
from kmint_tui.cli.history_ids import complete_draft
from kmint_tui.cli.options import OPERATION, complete_operation, reference_option
from kmint_tui.cli.state import State
from kmint_tui.cli.streams import Output, Table
from kmint_tui.core.exit_codes import ExitCode
from kmint_tui.errors import EnvironmentUnfit

if TYPE_CHECKING:
    from kmint_tui.profiling.computed import Computed
    from kmint_tui.profiling.measured import Measured
    from referee.reference.asked import Asked

_KIB, _MIB = 1 << 10, 1 << 20


@click.command(cls=RunsCandidates)
@click.argument(
    "wanted",
    metavar="ID|FILE",
    shell_complete=complete_draft,
    help="A draft such as 12.3 (`kmint history` lists the sessions), or a kernel file.",
)
@click.option(
    "--op",
    metavar="OP",
    type=OPERATION,
    shell_complete=complete_operation,
    help="The operation the kernel is for; drafts and saved kernels know it.",
)
@reference_option()
@click.option(
    "--target",
    metavar="ARCH",
    help="Compute for this GPU, such as sm_89, and measure nothing.  [default: the GPU that is here, else sm_90]",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.profile/1).")
@click.pass_obj
def profile(
    state: State,
    wanted: str,
    op: str | None,
    reference: Asked | None,
    target: str | None,
    as_json: bool,
) -> int:
    """Show the bytes, registers and occupancy of a kernel, and measure its launches on a GPU.

    \b
      kmint profile 12.3
      kmint profile softmax.py --op softmax --target sm_89

    Bytes come from the launches that the referee recorded; registers and shared memory come from
    the compiler; the theoretical occupancy comes from these and the limits of the card. On a GPU
    `ncu` (Nsight Compute) measures the same launches where it is on PATH, else torch's profiler.
    The time is compared with a copy of the same bytes. Without a GPU the computed part is shown,
    and the exit code is 3; with --target it is 0.
    """
    from kmint_tui.core.kernel_choice import chosen_kernel
    from kmint_tui.core.profile import profiled
    from kmint_tui.core.referee import check_target, no_gpu_reason

    check_target(target)
    found = profiled(chosen_kernel(wanted, op, reference), target, demand=state.demand())
    if as_json:
        state.out.document("kmint.profile/1", found.to_json())
    elif found.rejection is not None:
        state.out.text(f"rejected by {found.rejection.guard}: {found.rejection.reason}")
    if found.computed is None:
        return ExitCode.NOTHING_PASSED
    if not as_json:
        _show_computed(state.out, f"{found.kernel.op.name}: {found.kernel.name}", found.computed)
        if found.measured is not None:
            _show_measured(state.out, found.measured)
    if found.measured is None and target is None:
        raise EnvironmentUnfit(
            f"this is the computed part; the rest is measured on a GPU, and there is none: {no_gpu_reason()}",
            fix="--target sm_90 asks for the computed part alone",
        )
    return ExitCode.DONE


def _show_computed(out: Output, name: str, found: Computed) -> None:
    out.pairs(
        [
            ("kernel", name),
            ("case", found.case),
            ("computed for", f"{found.card} ({found.target}); nothing ran"),
            ("bytes, at least", f"{_bytes(found.least_bytes)}: each input and output once"),
            ("bytes, by plan", f"{_bytes(found.moved_bytes)}: each buffer once a step"),
        ]
    )
    out.text("")
    headers = ("launch", "programs", "warps", "registers", "spilled", "shared", "occupancy")
    rows = [
        (
            one.kernel,
            f"{one.programs:,}",
            str(one.num_warps),
            _number(one.registers),
            _number(one.spills),
            _bytes(one.shared),
            f"{one.occupancy.share:.0%}",
            one.occupancy.limit,
            f"{one.waves:.2f}",
        )
        for one in found.launches
    ]
    right = frozenset((*headers[1:], "waves"))
    out.table(Table((*headers, "limited by", "waves"), rows, right))


def _show_measured(out: Output, found: Measured) -> None:
    out.text("")
    tool = "Nsight Compute" if found.by == "ncu" else f"torch's profiler; {found.note}"
    out.pairs(
        [
            ("measured on", f"{found.device}, by {tool}"),
            ("a call", f"{found.us:.1f} us with a cold L2 cache"),
            ("copy floor", f"{found.floor_us:.1f} us for a copy of the same bytes"),
            ("share of the floor", f"{found.floor_share:.0%} of a copy's speed"),
        ]
    )
    out.text("")
    rows = [
        (
            one.name,
            "-" if one.us is None else f"{one.us:.1f}",
            "-" if one.moved_bytes is None else _bytes(one.moved_bytes),
            "-" if one.occupancy is None else f"{one.occupancy:.0%}",
        )
        for one in found.kernels
    ]
    headers = ("kernel", "us", "bytes", "occupancy")
    out.table(Table(headers, rows, frozenset(headers[1:])))


def _bytes(count: float) -> str:
    if count >= _MIB:
        return f"{count / _MIB:,.2f} MiB"
    return f"{count / _KIB:.1f} KiB" if count >= _KIB else f"{count:,.0f} B"


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)

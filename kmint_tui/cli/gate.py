"""`kmint gate ID|FILE` measures a kernel again in fresh processes, and says whether its claim to be
faster survives.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kmint_tui.cli.framework import RunsCandidates
from kmint_tui.cli.history_ids import complete_draft
from kmint_tui.cli.options import (
    OPERATION,
    USUAL,
    complete_operation,
    farm_options,
    reference_option,
    shapes_for,
)
from kmint_tui.cli.state import State
from kmint_tui.cli.streams import VERDICT_STYLES, Cell, Diagnostics, Output, Table
from kmint_tui.core.exit_codes import ExitCode

if TYPE_CHECKING:
    from kmint_tui.core.farm.farm import Farm
    from kmint_tui.core.farm.opening import FarmAsked
    from kmint_tui.core.kernel_choice import Claim, Kernel
    from referee.gate import GateReport, GateRun
    from referee.reference.asked import Asked
    from referee.sandbox.demand import Demand


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
@shapes_for("at which the claim is measured", USUAL)
@click.option(
    "--runs",
    type=click.IntRange(2, 50),
    default=5,
    show_default=True,
    help="How many fresh processes.",
)
@farm_options
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.gate/1).")
@click.pass_obj
def gate(
    state: State,
    wanted: str,
    op: str | None,
    reference: Asked | None,
    shapes: tuple[str, ...],
    dtype: str | None,
    runs: int,
    farm: FarmAsked,
    as_json: bool,
) -> int:
    """Judge and time a kernel again in fresh processes with fresh seeds: does its claim to be
    faster survive?

    \b
      kmint gate 12.3
      kmint gate softmax.py --op softmax --json
      kmint gate 12.3 --shape 8192x4096:bf16 --shape 32768x1024:bf16

    Every run checks every cell anew, with other inputs, and times the kernel against baselines
    built in that process. The claim survives when in every run the whole 95 % interval of the ratio
    to the fastest baseline lies above 1. With --shape each shape is a separate claim; a saved
    file of several kernels is measured with the one that it takes there. Exit code 0 means that it does, 1 that it does not or that
    the kernel was rejected. The result is kept in the history. Needs a GPU.
    """
    from kmint_tui.core.farm.opening import open_gpus
    from kmint_tui.core.gating import claims
    from kmint_tui.core.measuring import cache, keep

    wanted_claims = claims(wanted, op, reference, shapes, dtype)
    documents: list[dict[str, Any]] = []
    unkept = None
    with open_gpus(farm, "a gate") as devices:
        for shape, kernel in wanted_claims:
            if shape:
                state.err.note(f"at {shape}:")
            report = measured(kernel, runs, state.err, cache(), state.demand(), devices)
            document = {**as_document(kernel, report), **({"shape": shape} if shape else {})}
            documents.append(document)
            line = f"{f'at {shape} ' if shape else ''}{summary_line(report)}"
            unkept = keep("gate", kernel, report.environment, line, document) or unkept
            if not as_json:
                if shape:
                    state.out.heading(shape)
                show_report(state.out, kernel, report)
    survives = all(one["survives"] for one in documents)
    if as_json:
        state.out.document("kmint.gate/1", together(documents))
    if unkept is not None:
        raise unkept
    return ExitCode.DONE if survives else ExitCode.NOTHING_PASSED


def together(documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The document of one claim; of several the first with a list of all, and whether all survive."""
    first = documents[0]
    if len(documents) == 1:
        return first
    survives = all(one["survives"] for one in documents)
    return {**first, "survives": survives, "stable": survives, "shapes": list(documents)}


def measured(
    kernel: Kernel,
    runs: int,
    err: Diagnostics,
    cache: Path,
    demand: Demand,
    farm: Farm | None = None,
) -> GateReport:
    """The gate's report; with a `farm` its devices share the runs.

    Raises EnvironmentUnfit when the referee cannot work, or the sandbox is weaker than requested.
    """
    from convert.files import temporary_folder
    from kmint_tui.core.measuring import referee_failures
    from referee.gate import gate as measure
    from referee.gpu.compile_candidate import CandidateSource
    from referee.problem import Problem
    from referee.sandbox.zygote import Workers

    done: list[GateRun] = []

    def show(run: GateRun) -> None:
        done.append(run)
        err.note(f"run {len(done)} of {runs}: {_words(run)}")

    err.note(f"{kernel.op.name} in {runs} fresh processes; each builds its baselines anew")
    if farm is not None:
        from kmint_tui.core.farm.grids import gate_on

        return gate_on(farm, kernel, runs, demand, show)
    with (
        referee_failures(demand),
        Workers(demand=demand) as workers,
        temporary_folder() as scratch,
    ):
        subject = Problem(kernel.task).fitting(kernel.source)
        candidate = CandidateSource(kernel.source, subject, workers, cache=cache / "kernels")
        return measure(candidate.everywhere, runs=runs, on_run=show, scratch=scratch)


def as_document(kernel: Kernel, report: GateReport) -> dict[str, Any]:
    """The content of `kmint.gate/1`."""
    claim = kernel.claim
    return {
        "op": kernel.op.name,
        "kernel": kernel.to_json(),
        "claim": claim.to_json() if claim else None,
        "changed": _changed(claim, report),
        "survives": report.stable,
        **report.to_json(),
    }


def summary_line(report: GateReport) -> str:
    """The report in one line."""
    ratio = f", {report.ratio:.3f}x the fastest baseline" if report.ratio is not None else ""
    return f"{'survives' if report.stable else 'does not survive'}: {report.reason}{ratio}"


def show_report(out: Output, kernel: Kernel, report: GateReport) -> None:
    """Write the claim, the result and every run."""
    from kmint_tui.core.measuring import where

    claim, changed = kernel.claim, _changed(kernel.claim, report)
    out.pairs(
        [
            ("kernel", f"{kernel.name} ({kernel.origin}, sha256 {kernel.source_sha256[:16]})"),
            ("op", kernel.op.name),
            ("device", where(report.environment)),
            *([("claim", f"{claim.outcome}, {claim.ratio:.3f}x {claim.bar}")] if claim else []),
            *([("changed since", ", ".join(changed))] if changed else []),
            ("survives", "yes" if report.stable else "no"),
            ("why", report.reason),
            *(
                [("ratio", f"{report.ratio:.3f}x, spread {100 * (report.spread or 0):.1f} %")]
                if report.ratio is not None
                else []
            ),
        ]
    )
    out.text("")
    headers = ("run", "decision", "ratio", "low", "high", "baseline", "us", "baseline us", "why")
    right = frozenset({"run", "ratio", "low", "high", "us", "baseline us"})
    out.table(
        Table(
            headers, [_row(number, run) for number, run in enumerate(report.runs, start=1)], right
        )
    )


def _changed(claim: Claim | None, report: GateReport) -> list[str]:
    """The device and versions that are not those of the claim."""
    from referee.versions import compiler_name

    then = claim.environment if claim else {}
    now = {**report.environment, "triton": compiler_name(report.environment)}
    return [
        f"{name}: {value} -> {now.get(name)}"
        for name, value in then.items()
        if value != now.get(name)
    ]


def _words(run: GateRun) -> str:
    if run.ratio is None:
        return run.reason
    return f"{run.decision}, {run.ratio.ratio:.3f}x {run.bar} ({run.ratio.low:.3f} to {run.ratio.high:.3f})"


def _row(number: int, run: GateRun) -> tuple[Cell | str, ...]:
    decision = run.decision or "rejected"
    ratio = (
        (f"{run.ratio.ratio:.3f}x", f"{run.ratio.low:.3f}", f"{run.ratio.high:.3f}")
        if run.ratio
        else ("", "", "")
    )
    times = tuple(f"{time:.1f}" if time else "" for time in (run.candidate_us, run.bar_us))
    return (
        str(number),
        Cell(decision, VERDICT_STYLES[decision]),
        *ratio,
        run.bar or "",
        *times,
        run.reason,
    )

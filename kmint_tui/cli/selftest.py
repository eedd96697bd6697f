"""`kmint selftest` tests whether the referee is right about kernels whose verdict is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kmint_tui.cli.framework import RunsCandidates
from kmint_tui.cli.options import farm_options
from kmint_tui.cli.state import State
from kmint_tui.cli.streams import Diagnostics, Output, Table
from kmint_tui.cli.termination import two_step_interrupt
from kmint_tui.core.exit_codes import ExitCode
from kmint_tui.errors import UsageError

if TYPE_CHECKING:
    from kmint_tui.core.farm.opening import FarmAsked
    from referee.selftest.corpus import Kind
    from referee.selftest.runner import Result, SelftestReport

_NOTE_EVERY = 50


@click.command(cls=RunsCandidates)
@click.option(
    "--only", type=click.Choice(["gold", "wrong", "cheats"]), help="Only this kind of kernel."
)
@click.option("--name", metavar="TEXT", default="", help="Only kernels with TEXT in their name.")
@farm_options
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.selftest/1).")
@click.pass_obj
def selftest(state: State, only: Kind | None, name: str, farm: FarmAsked, as_json: bool) -> int:
    """Test the referee: good kernels must pass, wrong ones and cheats must be rejected by the guard
    meant for them.

    \b
      kmint selftest                        several minutes on two cores
      kmint selftest --only cheats --json
      kmint selftest --name softmax

    Cheats are judged twice: strictly, and as kernels of a user. Exit code 0 means that every
    verdict was right, 1 that one was not, even if only another guard rejected it. Without a GPU,
    Triton's interpreter stands in for it. Ctrl-C ends the test after the verdicts under way, and
    shows those that were made.
    """
    from kmint_tui.core.farm.judging import FarmJudge
    from kmint_tui.core.farm.opening import open_farm
    from kmint_tui.core.referee import MOST_THREADS, check_sandbox, judge_threads, no_gpu_reason
    from referee.selftest.corpus import KINDS
    from referee.selftest.runner import run, specimens

    chosen = specimens((only,) if only else KINDS, name)
    if not chosen:
        raise UsageError(
            f"no {only or 'known'} kernel has {name!r} in its name",
            fix="leave --name out to judge all of them",
        )
    lonely = no_gpu_reason()
    if lonely is not None and farm.ray is None:
        state.err.note(
            f"no GPU ({lonely}): kernels are checked by Triton's interpreter, and not timed"
        )
    wanted = state.demand()
    check_sandbox(wanted)
    total = len(chosen) + sum(specimen.kind == "cheats" for specimen in chosen)
    progress = _Progress(state.err, total)
    with (
        open_farm(farm, threads=judge_threads()) as devices,
        two_step_interrupt(lambda: None) as interrupts,
    ):
        report = run(
            chosen,
            threads=judge_threads() if devices is None else min(devices.places, MOST_THREADS),
            demand=wanted,
            on_result=progress.show,
            judge=None if devices is None else FarmJudge(devices, wanted),
            stopped=lambda: bool(interrupts),
        )
    progress.close()
    if as_json:
        state.out.document("kmint.selftest/1", report.to_json())
    else:
        show_report(state.out, report)
    if interrupts:
        return ExitCode.INTERRUPTED
    return ExitCode.DONE if report.passed else ExitCode.NOTHING_PASSED


class _Progress:
    """The progress on stderr: a live line on a terminal, otherwise one line for every `_NOTE_EVERY`
    results. It reports every mistake at once.
    """

    def __init__(self, diagnostics: Diagnostics, total: int) -> None:
        self._err, self._total, self._done = diagnostics, total, 0

    def show(self, result: Result) -> None:
        """Take note of one more result."""
        self._done += 1
        if result.status not in ("right", "skipped"):
            self._err.note(f"{result.row} {result.name}: {result.status}")
        if self._err.live:
            self._err.block([f"  {self._done} of {self._total}  {result.row}: {result.name}"])
        elif self._done % _NOTE_EVERY == 0:
            self._err.note(f"{self._done} of {self._total}")

    def close(self) -> None:
        """Leave nothing of the live line behind."""
        self._err.clear()


def show_report(out: Output, report: SelftestReport) -> None:
    """The confusion matrix, every mistake with the guards expected and met, and the sum of it."""
    from referee.selftest.runner import COLUMNS, failures

    rows = [
        (row, *(str(counts[column]) for column in COLUMNS))
        for row, counts in report.matrix.items()
        if any(counts.values())
    ]
    out.table(Table(("", *COLUMNS), rows, frozenset(COLUMNS)))
    out.text("")
    mistakes = list(failures(report))
    if mistakes:
        lines = [
            (one.status, one.row, one.name, " or ".join(one.expected), one.guard, one.reason)
            for one in mistakes
        ]
        out.table(Table(("mistake", "kind", "kernel", "expected", "got", "reason"), lines))
        out.text("")
    skipped = sum(result.status == "skipped" for result in report.results)
    told = f"{len(report.results) - skipped} verdicts ({report.mode}), {len(mistakes)} mistakes, {skipped} skipped, {report.seconds:.0f} s"
    ended = "stopped" if report.unjudged else "passed" if report.passed else "failed"
    out.text(f"{ended}: {told}")

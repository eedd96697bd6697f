"""`kmint doctor` reports the parts that work on this machine, and a fix for each one that fails."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from kmint_tui.cli.framework import Command
from kmint_tui.cli.state import State
from kmint_tui.cli.streams import Cell, Table
from kmint_tui.core.exit_codes import ExitCode

STYLES = {"ok": "green", "warn": "yellow", "fail": "red", "unknown": "dim"}


@click.command(cls=Command)
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.doctor/1).")
@click.option(
    "--report",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write one file for a bug report, without names.",
)
@click.pass_obj
def doctor(state: State, as_json: bool, report: Path | None) -> int:
    """Look at everything kmint stands on: GPU, versions, a real kernel, the sandbox, llama.cpp,
    models, disk, settings.

    \b
      kmint doctor
      kmint doctor --report kmint-report.json

    Takes less than 10 seconds, but for the first time with a Triton that kmint was not tested with.
    Opens no network connection, and says "unknown" of what it could not look at. Exit code 0 means
    that nothing failed, 3 that something did.
    """
    from kmint_tui.doctor import examine, worst_first
    from kmint_tui.doctor.report import SCHEMA, write_report

    state.err.block(["looking..."])
    found = worst_first(examine(offline=state.offline))
    state.err.clear()
    failed = any(one.status == "fail" for one in found)
    if as_json:
        state.out.document(
            SCHEMA, {"healthy": not failed, "findings": [asdict(one) for one in found]}
        )
    else:
        state.out.table(
            Table(
                ("what", "status", "found"),
                [(one.name, Cell(one.status, STYLES[one.status]), one.detail) for one in found],
            )
        )
        for one in found:
            if one.fix:
                state.out.text(f"\n{one.name}: {one.fix}")
    if report is not None:
        write_report(report, found)
        state.err.note(f"report written to {report}; read it before you send it")
    return ExitCode.ENVIRONMENT if failed else ExitCode.DONE

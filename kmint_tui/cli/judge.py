"""`kmint judge FILE --op OP`: referee one kernel file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from kmint_tui.cli.diagnostics import ExitCode
from kmint_tui.cli.framework import Command
from kmint_tui.cli.operations import complete_operation
from kmint_tui.cli.output import Cell, Output, Table
from kmint_tui.cli.patience import Patience
from kmint_tui.cli.state import State
from kmint_tui.cli.style import VERDICT_STYLES, cell_status
from kmint_tui.errors import UsageError

if TYPE_CHECKING:
    from referee.verdict import Verdict

MAX_BYTES = 1 << 20


@click.command(cls=Command)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--op", metavar="OP", shell_complete=complete_operation, help="The operation the kernel is for.")
@click.option("--reference", metavar="FILE.py[:FN]", help="Judge by your own PyTorch function instead of an operation of the catalogue.")
@click.option(
    "--level",
    type=click.Choice(["screen", "compile", "correct", "full"]),
    default="full",
    show_default=True,
    help="How far to go; without a GPU `full` means `correct`.",
)
@click.option("--target", metavar="ARCH", help="GPU to compile for, for example sm_90.  [default: the one here]")
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), help="Seed of the test inputs; secret and fresh by default.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.verdict/1).")
@click.pass_obj
def judge(
    state: State,
    file: Path,
    op: str | None,
    reference: str | None,
    level: Literal["screen", "compile", "correct", "full"],
    target: str | None,
    seed: int | None,
    as_json: bool,
) -> int:
    """Referee a kernel file that someone or something else wrote; `-` reads it from stdin.

    \b
      kmint judge softmax.py --op softmax
      kmint judge mine.py --reference reference.py:fused_norm --json

    The file defines `run` with the operation's arguments (`kmint ops show OP`). With --reference, FILE.py holds a PyTorch
    function and `get_inputs()`, or a KernelBench-style `Model`. Exit code 0 means that the kernel passed, 1 that it did not.
    With `--level screen` or `compile` nothing is run: the verdict is `unsure`, and 0 means that nothing stopped it up to there.
    """
    from kmint_tui.cli.referee import check_target, open_referee, unfit, wanted_task

    source = read_source(file)
    check_target(target)
    with Patience(state.err) as patience:
        patience.reading(reference)
        task = wanted_task(op, reference)[1]
        with open_referee() as referee:
            verdict = referee.judge(source, task, level=level, target=target, seed=seed, tell=patience.doing)
    if as_json:
        state.out.document("kmint.verdict/1", verdict.to_json())
    else:
        show_verdict(state.out, verdict)
    if verdict.verdict == "error":
        raise unfit(verdict)
    return ExitCode.DONE if verdict.survived else ExitCode.NOTHING_PASSED


def read_source(file: Path) -> str:
    """The text of a kernel file. Raises UsageError for one that cannot be a kernel: unreadable, empty, binary, too long."""
    from referee.reading.markdown import unfenced

    name = "stdin" if str(file) == "-" else str(file)
    try:
        with click.open_file(str(file), "rb") as stream:
            content: bytes = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(
            f"{name} cannot be read: {error.strerror or error}",
            title="draft not readable",
            fix="give the path of a kernel file, or - to read one from standard input",
        ) from error
    if len(content) > MAX_BYTES:
        raise UsageError(
            f"{name} is longer than {MAX_BYTES} bytes", title="draft not readable", fix="a kernel file is a few kilobytes long"
        )
    try:
        source = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is not UTF-8 text (byte {error.start})", title="draft not readable", fix="save it as UTF-8") from error
    if not source.strip():
        raise UsageError(
            f"{name} is empty", title="draft not readable", fix="a kernel file holds a @triton.jit kernel and a function `run`"
        )
    return unfenced(source)


def show_verdict(out: Output, verdict: Verdict) -> None:
    """The verdict, its checks and its cells."""
    from kmint_tui.cli.referee import device_microseconds
    from kmint_tui.minting.ranking import ratio

    time, gained = device_microseconds(verdict.timing), ratio(verdict.timing)
    out.pairs(
        [
            ("op", verdict.op),
            ("verdict", f"{verdict.verdict} ({verdict.mode})"),
            ("stage", verdict.stage),
            ("why", verdict.reason),
            *([("guard", verdict.guard)] if verdict.guard else []),
            *([("device time", f"{time:.1f} us")] if time else []),
            *([("ratio", f"{gained:.3f}x the fastest baseline")] if gained else []),
        ]
    )
    checks = [(check.name, _status(check.status), check.detail) for check in verdict.checks]
    cells = [(cell.name, cell.role, _status(cell_status(cell.status, cell.role)), cell.detail) for cell in verdict.cells]
    for headers, rows in ((("check", "status", "detail"), checks), (("cell", "role", "status", "detail"), cells)):
        if rows:
            out.text("")
            out.table(Table(headers, rows))


def _status(status: str) -> Cell:
    return Cell(status, VERDICT_STYLES.get(status, ""))

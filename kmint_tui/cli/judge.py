"""`kmint judge FILE...`: referee kernel files of any author."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from kmint_tui import __version__
from kmint_tui.cli.farm import farm_verdicts
from kmint_tui.cli.framework import RunsCandidates
from kmint_tui.cli.options import (
    OPERATION,
    complete_operation,
    farm_options,
    reference_option,
    session_option,
    shape_options,
)
from kmint_tui.cli.slow_steps import SlowStepNotice
from kmint_tui.cli.state import State
from kmint_tui.cli.streams import VERDICT_STYLES, Cell, Output, Table
from kmint_tui.cli.watching import Waiter, poll, saves
from kmint_tui.core.exit_codes import ExitCode
from kmint_tui.core.keeping import Keeper, Kept
from kmint_tui.core.kernel_file import STDIN, KernelFile, as_run, read_kernel
from kmint_tui.errors import EnvironmentUnfit, UsageError
from kmint_tui.history.verdicts import device_microseconds, ratio
from kmint_tui.minting.reasons import cell_status, weakness

if TYPE_CHECKING:
    from kmint_tui.core.farm.opening import FarmAsked
    from kmint_tui.service.work import Judging
    from referee.problem import TaskName
    from referee.reference.asked import Asked
    from referee.verdict import Verdict

Level = Literal["screen", "compile", "correct", "full"]


@click.command(cls=RunsCandidates)
@click.argument(
    "files",
    metavar="FILE...",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path),
    help="Kernel files; `-` reads one from stdin.",
)
@click.option(
    "--op",
    metavar="OP",
    type=OPERATION,
    shell_complete=complete_operation,
    help="The operation the kernels are for.  [default: guessed from the file's name]",
)
@reference_option("Judge by your own PyTorch function instead of an operation of the catalogue.")
@shape_options
@click.option(
    "--level",
    type=click.Choice(["screen", "compile", "correct", "full"]),
    default="full",
    show_default=True,
    help="How far to go; without a GPU `full` means `correct`.",
)
@click.option(
    "--target",
    metavar="ARCH",
    help="GPU to compile for, for example sm_90.  [default: the one here]",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**63 - 1),
    help="Seed of the test inputs; secret and fresh by default.",
)
@click.option(
    "--batch-invariant",
    is_flag=True,
    help="Reject a kernel whose rows change with the batch that they are in.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Reject host code that no verdict vouches for, as is done with drafts of a model.",
)
@session_option
@farm_options
@click.option(
    "--keep",
    "keep",
    metavar="NAME",
    help="Keep the kernels in the history, as drafts of the session NAME.",
)
@click.option("--watch", is_flag=True, help="Judge the file again at every save, until Ctrl-C.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="One JSON document (kmint.verdict/1; of several files kmint.verdicts/1).",
)
@click.pass_obj
def judge(
    state: State,
    files: tuple[Path, ...],
    op: str | None,
    reference: Asked | None,
    shapes: tuple[str, ...],
    dtype: str | None,
    level: Level,
    target: str | None,
    seed: int | None,
    batch_invariant: bool,
    strict: bool,
    by_session: bool,
    farm: FarmAsked,
    keep: str | None,
    watch: bool,
    as_json: bool,
) -> int:
    """Referee kernel files of any author; `-` reads one from stdin.

    \b
      kmint judge softmax.py
      kmint judge a.py b.py --op softmax --json
      kmint judge softmax.py --watch --keep "my softmax"
      kmint judge softmax.py --shape 32768x1024:bf16 --shape 8192x4096:bf16
      kmint judge mine.py --reference reference.py:fused_norm --input "x=bf16[B,4096] w=bf16[4096]"

    A file defines `run` with the operation's arguments (`kmint ops show OP`), or those of the
    reference. With --reference, FILE.py holds a PyTorch function, a module or a KernelBench-style
    `Model`. Its inputs are those of --input, else those of its `get_inputs()` or `EXAMPLES`. A
    class `ModelNew` in place of `run` is taken too, if its `forward` launches kernels alone.

    Exit code 0 means that every kernel passed, 1 that one did not. With `--level screen` or
    `compile` nothing is run. The verdict is then `unsure`, and 0 means that nothing stopped it up
    to there. With --watch, --json writes one document a line.

    A verdict vouches for launches. Host code that it does not vouch for is named in the reason;
    such a kernel is not saved as it is and holds no crown. With --strict it is rejected.

    With --gpus or --ray several devices judge the files. With --keep too, the same command goes on
    where it was killed: a verdict in the session NAME is not made again.

    With --keep, `kmint history`, `kmint save` and `kmint crowns claim` know the kernels by the ids
    that are shown.
    """
    from kmint_tui.core.judges import open_judge
    from kmint_tui.core.referee import check_target

    _check_files(files, watch)
    if watch and farm.asks:
        raise UsageError("--watch judges here", fix="leave --gpus and --ray out")
    keeper = Keeper(keep, level) if keep is not None else None
    options = JudgeOptions(
        op=op,
        reference=reference,
        shapes=shapes,
        dtype=dtype,
        level=level,
        target=check_target(target),
        seed=seed,
        batch_invariant=batch_invariant,
        strict=strict,
        keeper=keeper,
    )
    kernels = [] if watch else [read_kernel(file, op, reference) for file in files]
    with SlowStepNotice(state.err) as notice:
        notice.reading(reference)
        wanted = [prepared(kernel, options) for kernel in kernels]
        with open_judge(
            state.demand(), state.err.note, by_session=by_session, asked=farm
        ) as opened:
            if watch:
                return _watch(state, files[0], options, opened.judge, notice, as_json=as_json)
            if opened.farm is not None:
                notice.resting()
                found = farm_verdicts(opened, wanted, options, state)
                judged = [
                    Judged(one.kernel, had.verdict, had.kept)
                    for one, had in zip(wanted, found, strict=True)
                ]
            else:
                judged = [judged_by(opened.judge, one, options, state, notice) for one in wanted]
    _show_all(state, judged, as_json=as_json)
    return _code([one.verdict for one in judged])


@dataclass(frozen=True, kw_only=True)
class JudgeOptions:
    """The options that hold for every file of one command."""

    op: str | None
    reference: Asked | None
    shapes: tuple[str, ...]
    dtype: str | None
    level: Level
    target: str | None
    seed: int | None
    batch_invariant: bool
    strict: bool
    keeper: Keeper | None = None


@dataclass(frozen=True)
class Prepared:
    """A kernel with its operation and its task."""

    kernel: KernelFile
    op: str
    task: str | TaskName


@dataclass(frozen=True)
class Judged:
    """A verdict, and the draft that it is kept as."""

    kernel: KernelFile
    verdict: Verdict
    kept: Kept | None

    def to_json(self) -> dict[str, Any]:
        """The `kmint.verdict/1` document, with the draft's id where there is one."""
        return {**({"draft": self.kept.draft} if self.kept else {}), **self.verdict.to_json()}


def prepared(kernel: KernelFile, options: JudgeOptions) -> Prepared:
    """The kernel, ready to be judged. Raises KmintError."""
    from kmint_tui.core.task import wanted_task

    op, task = wanted_task(kernel.op, options.reference, options.shapes, options.dtype)
    return Prepared(as_run(kernel, op, options.reference), op.name, task)


def judged_by(
    referee: Judging, one: Prepared, options: JudgeOptions, state: State, notice: SlowStepNotice
) -> Judged:
    """The referee's verdict on one file. Notes on stderr name guesses and the kept draft."""
    kernel, kept = one.kernel, None
    for note in kernel.notes:
        state.err.note(note)
    draft = options.keeper.before(kernel.source, one.op, one.task) if options.keeper else None
    verdict = referee.judge(
        kernel.source,
        one.task,
        level=options.level,
        target=options.target,
        seed=options.seed,
        batch_invariant=options.batch_invariant,
        strict=options.strict,
        tell=notice.doing,
    )
    if options.keeper and draft:
        kept = options.keeper.after(draft, verdict)
        state.err.note(kept.text)
    return Judged(kernel, verdict, kept)


def _check_files(files: Sequence[Path], watch: bool) -> None:
    names = [str(file) for file in files]
    if names.count(STDIN) > 1:
        raise UsageError("standard input can be read once", fix="give `-` once")
    if watch and (len(files) != 1 or STDIN in names):
        raise UsageError(
            "--watch takes one file", fix="start one `kmint judge FILE --watch` for each file"
        )


def _show_all(state: State, judged: Sequence[Judged], *, as_json: bool) -> None:
    if as_json and len(judged) == 1:
        state.out.document("kmint.verdict/1", judged[0].to_json())
    elif as_json:
        state.out.document(
            "kmint.verdicts/1",
            {"verdicts": [{"file": one.kernel.name, **one.to_json()} for one in judged]},
        )
    else:
        for place, one in enumerate(judged):
            if len(judged) > 1:
                if place:
                    state.out.text("")
                state.out.heading(one.kernel.name)
            show_verdict(state.out, one.verdict)


def _code(verdicts: Sequence[Verdict]) -> int:
    """The exit code of several verdicts. Raises EnvironmentUnfit where the referee could not work."""
    from kmint_tui.core.referee import unfit

    if broken := [verdict for verdict in verdicts if verdict.verdict == "error"]:
        raise unfit(broken[0])
    return (
        ExitCode.DONE if all(verdict.survived for verdict in verdicts) else ExitCode.NOTHING_PASSED
    )


def _watch(
    state: State,
    file: Path,
    options: JudgeOptions,
    referee: Judging,
    notice: SlowStepNotice,
    *,
    as_json: bool,
    wait: Waiter = poll,
) -> int:
    """Judge the file at every save, until Ctrl-C or until the reader is gone.

    After an error the watch goes on.
    """
    err, out, verdicts = state.err, state.out, []
    for _ in saves(file, wait):
        try:
            one = judged_by(
                referee,
                prepared(read_kernel(file, options.op, options.reference), options),
                options,
                state,
                notice,
            )
        except (UsageError, EnvironmentUnfit) as error:
            err.error(error)
            continue
        verdicts.append(one.verdict)
        if as_json:
            out.record({"kmint_version": __version__, "file": str(file), **one.to_json()})
        else:
            show_verdict(out, one.verdict)
        if out.unread:
            break
        notice.resting()
        err.hint(f"waiting for the next save of {file}; Ctrl-C ends the watch")
    return _code(verdicts[-1:]) if verdicts else ExitCode.NOTHING_PASSED


def show_verdict(out: Output, verdict: Verdict) -> None:
    """The verdict, its checks and its cells."""
    from kmint_tui.core.shape_times import timed_at

    time, gained = device_microseconds(verdict.timing), ratio(verdict.timing)
    where = timed_at(verdict.timing) if verdict.timing else ""
    first = " at the first shape" if verdict.timing and verdict.timing.get("shapes") else ""
    out.pairs(
        [
            ("op", verdict.op),
            ("verdict", f"{verdict.verdict} ({verdict.mode})"),
            ("stage", verdict.stage),
            ("why", verdict.reason),
            # The reason says it too, but a rejection's does not.
            *(
                [("sandbox", weak)]
                if (weak := weakness(verdict.environment)) and weak not in verdict.reason
                else []
            ),
            *([("guard", verdict.guard)] if verdict.guard else []),
            *([("device time", f"{time:.1f} us{first}")] if time else []),
            *([("ratio", f"{gained:.3f}x the fastest baseline {where}")] if gained else []),
        ]
    )
    checks = [(check.name, _status(check.status), check.detail) for check in verdict.checks]
    cells = [
        (cell.name, cell.role, _status(cell_status(cell.status, cell.role)), cell.detail)
        for cell in verdict.cells
    ]
    for headers, rows in (
        (("check", "status", "detail"), checks),
        (("case", "role", "status", "detail"), cells),
    ):
        if rows:
            out.text("")
            out.table(Table(headers, rows))


def _status(status: str) -> Cell:
    return Cell(status, VERDICT_STYLES.get(status, ""))

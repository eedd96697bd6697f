"""`kmint tune ID`: find the fastest launch settings and structures of a kernel at your shapes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kmint_tui import paths
from kmint_tui.cli.framework import Amount, RunsCandidates
from kmint_tui.cli.history_ids import complete_draft
from kmint_tui.cli.options import farm_options, shapes_for
from kmint_tui.cli.state import State
from kmint_tui.cli.streams import Table
from kmint_tui.cli.termination import Terminated
from kmint_tui.core.exit_codes import ExitCode
from kmint_tui.errors import UsageError

if TYPE_CHECKING:
    from kmint_tui.core.farm.opening import FarmAsked
    from kmint_tui.core.tune import Tuned
    from kmint_tui.save.choosing import Outside
    from kmint_tui.save.saving import Saved

LONGEST = 24 * 60.0


@click.command(cls=RunsCandidates)
@click.argument(
    "wanted",
    metavar="ID",
    shell_complete=complete_draft,
    help="A draft such as 12.3, or a session: all its kernels that passed compete.",
)
@shapes_for(
    "to tune at",
    "8192x4096, 32768x1024 and 2048x16384; for rope 32768x128, 4096x128, 32768x64",
    "bf16",
)
@click.option(
    "--budget",
    "minutes",
    metavar="MINUTES",
    type=Amount(0, LONGEST, min_open=True),
    default=10.0,
    show_default=True,
    help="Time for the races; the shapes share it. The verdicts come after it.",
)
@click.option(
    "--template/--no-template",
    "template",
    default=True,
    show_default=True,
    help="Also race the kernels that kmint's template writes for each shape.",
)
@click.option(
    "--save",
    "folder",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Save the fastest kernels into DIR, in one file that chooses by shape.",
)
@click.option(
    "--outside",
    type=click.Choice(["nearest", "reference"]),
    help="With --save: what a dtype without a shape gets.  [default: nearest]",
)
@farm_options
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.tuned/1).")
@click.pass_obj
def tune(
    state: State,
    wanted: str,
    shapes: tuple[str, ...],
    dtype: str | None,
    minutes: float,
    template: bool,
    folder: Path | None,
    outside: Outside | None,
    farm: FarmAsked,
    as_json: bool,
) -> int:
    """Race launch settings and structures of a kernel at your shapes, and judge the winners.

    \b
      kmint tune 12.3 --shape 8192x4096:bf16 --shape 32768x1024:bf16 --save kernels
      kmint tune 12 --budget 30 --gpus all
      kmint tune 12 --ray 10.0.0.1:6379

    Block sizes, warps and stages change. The other kernels of the session that passed compete as
    well, and so do kernels that kmint's template writes in several structures. A model of cost
    leaves out variants that cannot win. It takes the bytes that move, the launches, the programs,
    and how much of the card they fill. --json has a reason for each structure that was not raced.

    Winners become drafts of the tuner in a new session. The same command goes on where it stopped:
    no race is held twice, and no kernel is judged twice. Needs a GPU. Exit code 0 means that every shape has a kernel.
    """
    from kmint_tui.core.judges import open_judge
    from kmint_tui.core.measuring import need_gpus
    from kmint_tui.core.planning import check_tunable
    from kmint_tui.core.shape_times import here
    from kmint_tui.core.tune import TuneAsked, start_of
    from kmint_tui.core.tune import tune as run
    from kmint_tui.history.tuned import TunedSessions

    if outside is not None and folder is None:
        raise UsageError("--outside is for a saved file", fix="give --save DIR, or leave it out")
    if not paths.history_file().exists():
        raise UsageError("the history is empty", fix="`kmint mint softmax` is a start")
    asked = TuneAsked(wanted=wanted, shapes=shapes, dtype=dtype, minutes=minutes, template=template)
    with TunedSessions(paths.history_file()) as history:
        start = start_of(history, asked)
        if not farm.asks:
            check_tunable(None, asked="a tune", fix="tune on a machine with a GPU")
        with open_judge(state.demand(), state.err.note, asked=farm) as opened:
            need_gpus("a tune", opened.farm)
            if opened.racer is None or not opened.times:
                check_tunable(None, asked="a tune", fix="tune on a machine with a GPU")
            where = here(opened.farm.device if opened.farm else None)
            try:
                found = run(
                    history,
                    start,
                    asked,
                    opened,
                    where=where,
                    cache=paths.cache_dir() / "referee",
                    tell=state.err.note,
                )
            except (KeyboardInterrupt, Terminated):
                state.err.hint("the same command goes on where it stopped")
                raise
            saved = None
            if folder is not None:
                from kmint_tui.core.save import save_tuned

                saved = save_tuned(
                    history, opened.judge, found.ids, folder, outside, tell=state.err.note
                )
    if as_json:
        files = [str(path) for path in saved.files] if saved else []
        state.out.document("kmint.tuned/1", {**found.to_json(), "files": files})
    else:
        _show(state, found, saved)
    return ExitCode.DONE


def _show(state: State, found: Tuned, saved: Saved | None) -> None:
    from kmint_tui.core.save import first_call
    from kmint_tui.core.shape_times import mean

    changes = {one.id: one.changes for one in found.drafts}
    headers = ("shape", "draft", "us", "ratio", "against", "decision", "changes")
    rows = [
        (
            row.name,
            row.draft,
            f"{row.microseconds:.1f}",
            f"{row.ratio:.3f}x",
            row.bar,
            row.decision,
            changes[row.draft],
        )
        for row in found.rows
    ]
    state.out.table(Table(headers, rows, frozenset({"us", "ratio"})))
    state.out.text("")
    state.out.text(f"geometric mean {mean(found.rows):.3f}, in {found.seconds:.0f} s")
    if not found.complete:
        state.err.note("time ran out before every variant was raced")
        state.err.hint("the same command with a larger --budget goes on where it stopped")
    if saved is None:
        state.err.hint(f"save it: kmint save {' '.join(found.ids)} --to DIR")
        return
    state.err.note(f"saved {', '.join(str(path) for path in saved.files)}")
    if hint := first_call(saved, None):
        state.err.hint(hint)

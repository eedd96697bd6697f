"""`kmint history diff|rm|rejudge|export|import`: compare, take out, judge again, carry to another machine."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kmint_tui import paths
from kmint_tui.cli.diagnostics import ExitCode
from kmint_tui.cli.framework import Command
from kmint_tui.cli.history_ids import complete_draft, complete_session
from kmint_tui.cli.patience import Patience
from kmint_tui.cli.state import State
from kmint_tui.errors import UsageError

if TYPE_CHECKING:
    from kmint_tui.history.records import Draft
    from kmint_tui.history.store import History
    from kmint_tui.history.transfer import Damage

_EXPORT = "give a file that `kmint history export > FILE` wrote"


@click.command(cls=Command)
@click.argument("first", metavar="A", shell_complete=complete_draft)
@click.argument("second", metavar="B", shell_complete=complete_draft)
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.diff/1).")
@click.pass_obj
def diff(state: State, first: str, second: str, as_json: bool) -> int:
    """Show how draft B differs from draft A. Exit code 0 when they are the same, 1 when not."""
    from kmint_tui.history.reading import for_reading
    from kmint_tui.history.store import History

    with for_reading(_file(), History) as history:
        before, after = _draft(history, first), _draft(history, second)
    lines = list(
        difflib.unified_diff(before.source.splitlines(), after.source.splitlines(), f"draft {first}", f"draft {second}", lineterm="")
    )
    if as_json:
        state.out.document("kmint.diff/1", {"first": first, "second": second, "same": not lines, "lines": lines})
    elif lines:
        state.out.text("\n".join(lines))
    return ExitCode.NOTHING_PASSED if lines else ExitCode.DONE


@click.command(cls=Command)
@click.argument("wanted", metavar="ID", nargs=-1, required=True, shell_complete=complete_session)
@click.pass_obj
def rm(state: State, wanted: tuple[str, ...]) -> None:
    """Take sessions (12) or drafts (12.3) out of the history: all that are named, or none. Crowns keep their kernels."""
    from kmint_tui.history.records import parse_id
    from kmint_tui.history.transfer import remove

    remove(_file(), *(parse_id(text) for text in wanted))
    for text in wanted:
        state.err.note(f"removed {text}")


@click.command(cls=Command)
@click.argument("wanted", metavar="ID", shell_complete=complete_draft)
@click.option("--reference", metavar="FILE.py[:FN]", help="The reference it was minted by, when that was your own.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.verdict/1).")
@click.pass_obj
def rejudge(state: State, wanted: str, reference: str | None, as_json: bool) -> int:
    """Judge a draft again, with a fresh seed; the new verdict takes the place of the old one."""
    from kmint_tui.cli.judge import show_verdict
    from kmint_tui.cli.referee import open_referee, unfit, wanted_task
    from kmint_tui.minting.ranking import ratio

    with _history() as history, open_referee() as referee, Patience(state.err) as patience:
        draft = _draft(history, wanted)
        if draft.duplicate_of is not None:
            raise UsageError(f"{wanted} is the same kernel as {draft.session}.{draft.duplicate_of}; judge that one")
        patience.reading(reference)
        task = wanted_task(None if reference else history.session(draft.session).op, reference)[1]
        verdict = referee.judge(draft.source, task, tell=patience.doing)
        if verdict.verdict == "error":
            raise unfit(verdict)
        history.set_verdict(draft.session, draft.number, verdict.to_json(), ratio=ratio(verdict.timing))
    if as_json:
        state.out.document("kmint.verdict/1", verdict.to_json())
    else:
        show_verdict(state.out, verdict)
    return ExitCode.DONE if verdict.passed else ExitCode.NOTHING_PASSED


@click.command(cls=Command)
@click.pass_obj
def export(state: State) -> int:
    """Write the whole history to stdout, one session a line (kmint.session/1).

    What a damaged file no longer gives is named on stderr, and the rest is written; the exit code is then 1.
    """
    from kmint_tui.history.transfer import Damage
    from kmint_tui.history.transfer import export as sessions

    damaged, out = 0, state.out
    for found in sessions(_file()):
        if isinstance(found, Damage):
            damaged += 1
            state.err.note(_lost(found))
        else:
            out.record(found)
        if out.unread:
            break
    return ExitCode.NOTHING_PASSED if damaged else ExitCode.DONE


@click.command(cls=Command)
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.pass_obj
def import_history(state: State, file: Path) -> None:
    """Take exported sessions in; `-` reads stdin. Sessions that are here already are left as they are."""
    from kmint_tui.history.transfer import take_in

    try:
        with click.open_file(str(file), encoding="utf-8") as lines:
            done = take_in(paths.history_file(), lines)
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not UTF-8 text (byte {error.start})", fix=_EXPORT) from error
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror or error}", fix=_EXPORT) from error
    state.err.note(f"{done.sessions} sessions with {done.drafts} drafts taken in, {done.known} were here already")


def _lost(found: Damage) -> str:
    if found.session is None:
        return f"the history is damaged; what can still be read is written: {found.reason}"
    what = f"session {found.session}" if found.draft is None else f"draft {found.session}.{found.draft}"
    return f"{what} is not whole: {found.reason}"


def _file() -> Path:
    file = paths.history_file()
    if not file.exists():
        raise UsageError("the history is empty", fix="`kmint mint softmax` is a start")
    return file


def _history() -> History:
    from kmint_tui.history.store import History

    return History(_file())


def _draft(history: History, text: str) -> Draft:
    from kmint_tui.history.records import parse_id

    reference = parse_id(text)
    if reference.number is None:
        raise UsageError(f"{text} is a session; name one of its drafts", fix=f"for example {text}.0")
    return history.draft(reference.session, reference.number)

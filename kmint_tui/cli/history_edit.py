"""`kmint history diff|rm|rejudge|export|import`: compare, take out, judge again, carry to another
machine.
"""

from __future__ import annotations

import difflib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kmint_tui import paths
from kmint_tui.cli.framework import Command, RunsCandidates
from kmint_tui.cli.history_ids import complete_draft, complete_session
from kmint_tui.cli.options import reference_option
from kmint_tui.cli.slow_steps import SlowStepNotice
from kmint_tui.cli.state import State
from kmint_tui.core.exit_codes import ExitCode
from kmint_tui.errors import UsageError
from kmint_tui.escapes import visible_line

if TYPE_CHECKING:
    from kmint_tui.history.records import Draft
    from kmint_tui.history.store import History
    from kmint_tui.history.transfer import Damage
    from referee.reference.asked import Asked

_EXPORT = "give a file that `kmint history export > FILE` wrote"


@click.command(cls=Command)
@click.argument(
    "first",
    metavar="A",
    shell_complete=complete_draft,
    help="A draft such as 12.3; `kmint history show 12` lists those of a session.",
)
@click.argument(
    "second",
    metavar="B",
    shell_complete=complete_draft,
    help="The draft to compare it with.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.diff/1).")
@click.pass_obj
def diff(state: State, first: str, second: str, as_json: bool) -> int:
    """Show how draft B differs from draft A. Exit code 0 when they are the same, 1 when not."""
    from kmint_tui.history.reading import read_history

    with read_history(_file()) as history:
        before, after = _draft(history, first), _draft(history, second)
    lines = list(
        difflib.unified_diff(
            before.source.splitlines(),
            after.source.splitlines(),
            f"draft {first}",
            f"draft {second}",
            lineterm="",
        )
    )
    if as_json:
        state.out.document(
            "kmint.diff/1", {"first": first, "second": second, "same": not lines, "lines": lines}
        )
    elif lines:
        state.out.text("\n".join(lines))
    return ExitCode.NOTHING_PASSED if lines else ExitCode.DONE


@click.command(cls=Command)
@click.argument(
    "wanted",
    metavar="ID",
    nargs=-1,
    required=True,
    shell_complete=complete_session,
    help="Sessions such as 12, or drafts such as 12.3.",
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.pass_obj
def rm(state: State, wanted: tuple[str, ...], yes: bool) -> None:
    """Take sessions (12) or drafts (12.3) out of the history: all that are named, or none. Crowns
    keep their kernels.

    It asks on a terminal, and needs --yes where there is none.
    """
    from kmint_tui.history.records import parse_id
    from kmint_tui.history.transfer import remove

    file, references = _file(), [parse_id(text) for text in wanted]
    _ask(f"remove {', '.join(wanted)} from the history, with all verdicts and sources?", yes=yes)
    remove(file, *references)
    for text in wanted:
        state.err.note(f"removed {text}")


@click.command(cls=RunsCandidates)
@click.argument(
    "wanted",
    metavar="ID",
    shell_complete=complete_draft,
    help="A draft such as 12.3; `kmint history` lists the sessions.",
)
@reference_option()
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.verdict/1).")
@click.pass_obj
def rejudge(state: State, wanted: str, reference: Asked | None, as_json: bool) -> int:
    """Judge a draft again, with a fresh seed; the new verdict takes the place of the old one."""
    from kmint_tui.cli.judge import show_verdict
    from kmint_tui.core.referee import open_referee, unfit
    from kmint_tui.core.rejudge import task_of
    from kmint_tui.history.named import FROM_OUTSIDE
    from kmint_tui.history.verdicts import ratio

    with (
        _history() as history,
        open_referee(state.demand(), state.err.note) as referee,
        SlowStepNotice(state.err) as notice,
    ):
        draft = _draft(history, wanted)
        if draft.duplicate_of is not None:
            raise UsageError(
                f"{wanted} is the same kernel as {draft.session}.{draft.duplicate_of}; judge that one"
            )
        session = history.session(draft.session)
        notice.reading(reference)
        task = task_of(session, reference)
        verdict = referee.judge(
            draft.source, task, strict=session.model_file != FROM_OUTSIDE, tell=notice.doing
        )
        if verdict.verdict == "error":
            raise unfit(verdict)
        history.set_verdict(
            draft.session, draft.number, verdict.to_json(), ratio=ratio(verdict.timing)
        )
    if as_json:
        state.out.document("kmint.verdict/1", verdict.to_json())
    else:
        show_verdict(state.out, verdict)
    return ExitCode.DONE if verdict.passed else ExitCode.NOTHING_PASSED


@click.command(cls=Command)
@click.pass_obj
def export(state: State) -> int:
    """Write the whole history to stdout, one session a line (kmint.session/1).

    What a damaged file no longer gives is named on stderr, and the rest is written; the exit code
    is then 1.
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
@click.argument(
    "file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A file that `kmint history export > FILE` wrote; `-` reads stdin.",
)
@click.pass_obj
def import_history(state: State, file: Path) -> int:
    """Take exported sessions in; `-` reads stdin. Sessions that are here already are left as they
    are.

    A session keeps its number where that is free. Lines that are no session are named and left out;
    the exit code is then 1.
    """
    from kmint_tui.history.transfer import take_in

    try:
        with click.open_file(str(file), "rb") as stream:
            done = take_in(paths.history_file(), stream)
    except OSError as error:
        raise UsageError(
            f"{file} cannot be read: {error.strerror or error}", fix=_EXPORT
        ) from error
    if done.left_out and not done.sessions + done.known:
        first = done.named[0]
        raise UsageError(
            f"{file} holds no session; line {first.number}: {first.reason}",
            fix=_EXPORT,
            title="not a history",
        )
    for line in done.named:
        state.err.note(f"line {line.number} is left out: {line.reason}")
    left_out = f"; {done.left_out} lines are left out" if done.left_out else ""
    state.err.note(
        f"{done.sessions} sessions with {done.drafts} drafts taken in,"
        f" {done.known} were here already{left_out}"
    )
    return ExitCode.NOTHING_PASSED if done.left_out else ExitCode.DONE


def _lost(found: Damage) -> str:
    if found.session is None:
        return f"the history is damaged; its readable part is written: {found.reason}"
    what = (
        f"session {found.session}"
        if found.draft is None
        else f"draft {found.session}.{found.draft}"
    )
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
        raise UsageError(
            f"{text} is a session; name one of its drafts", fix=f"for example {text}.0"
        )
    return history.draft(reference.session, reference.number)


def _ask(question: str, *, yes: bool) -> None:
    """Return after a yes, or at once where `yes` was given on the command line.

    Raises click.Abort after a no, and UsageError where there is no terminal to ask on.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("this needs a yes, and there is no terminal to ask on", fix="give --yes")
    click.confirm(visible_line(question), abort=True, err=True)

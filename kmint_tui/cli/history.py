"""`kmint history` lists the minted kernels. `kmint history show ID` shows one session, or one draft
with its source and verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from kmint_tui import paths
from kmint_tui.cli.framework import Lazy, LazyGroup
from kmint_tui.cli.history_ids import complete_session
from kmint_tui.cli.options import complete_operation
from kmint_tui.cli.state import State
from kmint_tui.cli.streams import VERDICT_STYLES, Cell, Table
from kmint_tui.errors import UsageError
from kmint_tui.history.documents import (
    draft_document,
    history_document,
    measurements_of,
    session_document,
)
from kmint_tui.minting.reasons import long_reason, short_reason

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from kmint_tui.history.records import Draft, Session, Summary
    from kmint_tui.history.store import History


_EDIT = "kmint_tui.cli.history_edit"
VERBS = {
    "diff": Lazy(f"{_EDIT}:diff", "Show how one draft differs from another."),
    "rejudge": Lazy(f"{_EDIT}:rejudge", "Judge a draft again."),
    "rm": Lazy(f"{_EDIT}:rm", "Take sessions or drafts out."),
    "export": Lazy(f"{_EDIT}:export", "Write everything as JSON lines."),
    "import": Lazy(f"{_EDIT}:import_history", "Take exported sessions in."),
}


@click.group(cls=LazyGroup, lazy=VERBS, invoke_without_command=True)
@click.option(
    "--op", metavar="OP", shell_complete=complete_operation, help="Only sessions of this operation."
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="At most this many sessions.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.history/1).")
@click.pass_context
def history(context: click.Context, op: str | None, limit: int, as_json: bool) -> None:
    """List the minted kernels, the newest session first.

    \b
      kmint history --op softmax
      kmint history show 12      one session
      kmint history show 12.3    one draft
    """
    if context.invoked_subcommand is not None:
        return
    state = context.ensure_object(State)
    sessions: tuple[Summary, ...] = ()
    if paths.history_file().exists():
        with _open() as store:
            sessions = store.summaries(op=op, limit=limit)
    if as_json:
        state.out.document("kmint.history/1", history_document(sessions))
        return
    headers = ("id", "started", "op", "model", "drafts", "correct", "best", "ratio", "state")
    state.out.table(
        Table(
            headers,
            [_row(session) for session in sessions],
            frozenset({"id", "drafts", "correct", "ratio"}),
        )
    )
    if sessions:
        state.err.hint("`kmint history show ID` for one of them")
    elif op is not None:
        state.err.hint(f"no session of {op!r}; `kmint history` lists all of them")
    else:
        state.err.hint("nothing minted yet; `kmint mint softmax` is a start")


@history.command("show")
@click.argument(
    "wanted",
    metavar="ID",
    shell_complete=complete_session,
    help="A session such as 12, or a draft such as 12.3; `kmint history` lists the sessions.",
)
@click.option(
    "--source", is_flag=True, help="Only the draft's source, with the imports that it lacks."
)
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON document (kmint.session/1 or kmint.draft/1)."
)
@click.pass_obj
def show(state: State, wanted: str, source: bool, as_json: bool) -> None:
    """Show a session (12) or a draft (12.3)."""
    from kmint_tui.history.records import parse_id

    reference = parse_id(wanted)
    if not paths.history_file().exists():
        raise UsageError("the history is empty", fix="`kmint mint softmax` is a start")
    with _open() as store:
        session = store.session(reference.session)
        if reference.number is None:
            if source:
                raise UsageError(
                    "--source needs a draft's id",
                    fix=f"for example `kmint history show {wanted}.0 --source`",
                )
            _show_session(state, session, store.drafts(session.id), as_json)
        else:
            _show_draft(state, session, store.draft(session.id, reference.number), source, as_json)


def _open() -> AbstractContextManager[History]:
    from kmint_tui.history.reading import read_history

    return read_history(paths.history_file())


def _row(session: Summary) -> tuple[Cell | str, ...]:
    best = session.best or ("-" if session.drafted else "")
    ratio = f"{session.ratio:.3f}x" if session.ratio is not None else ""
    counts = (f"{session.drafted}/{session.wanted}", str(session.passed))
    return (
        str(session.id),
        session.started[:19],
        session.op,
        session.model,
        *counts,
        Cell(best, VERDICT_STYLES.get(best, "")),
        ratio,
        session.state,
    )


def _show_session(state: State, session: Session, drafts: tuple[Draft, ...], as_json: bool) -> None:
    if as_json:
        state.out.document("kmint.session/1", session_document(session, drafts))
        return
    state.out.pairs(
        [
            ("session", str(session.id)),
            ("op", session.op),
            (
                "model",
                f"{session.model} ({session.model_file}, sha256 {session.model_sha256[:16]}…)",
            ),
            ("seed", str(session.seed)),
            ("started", session.started),
            ("finished", session.finished or f"not finished ({session.state})"),
            *[(name, _setting(value)) for name, value in session.settings.items()],
        ]
    )
    state.out.text("")
    derived = any(map(_origin, drafts))
    rows = [
        (
            draft.id,
            *((_origin(draft),) if derived else ()),
            str(draft.tokens),
            draft.finish,
            *_judged(draft, short_reason),
        )
        for draft in drafts
    ]
    headers = (
        "draft",
        *(("from",) if derived else ()),
        "tokens",
        "finish",
        "verdict",
        "ratio",
        "why",
    )
    state.out.table(Table(headers, rows, frozenset({"tokens", "ratio"})))


def _setting(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else str(value)


def _show_draft(state: State, session: Session, draft: Draft, source: bool, as_json: bool) -> None:
    from kmint_tui.minting.standalone import standalone

    measured = measurements_of(draft)
    if as_json:
        state.out.document("kmint.draft/1", draft_document(session, draft, measured))
        return
    if source:
        state.out.content(standalone(draft.source))
        return
    outcome, ratio, why = _judged(draft, long_reason)
    state.out.pairs(
        [
            ("draft", draft.id),
            ("op", session.op),
            ("made by", draft.maker(session.model)),
            *(
                [("round", f"{draft.round}, from draft {draft.session}.{draft.parent}")]
                if draft.round
                else []
            ),
            ("seed", f"{draft.seed} (of session seed {session.seed})"),
            ("tokens", f"{draft.tokens} in {draft.seconds:.1f} s, ended by {draft.finish}"),
            ("verdict", outcome.text + (f", {ratio}" if ratio else "")),
            ("why", why),
            *[(one.kind, f"{one.result} ({one.device}, {one.made[:19]})") for one in measured],
        ]
    )
    checks = draft.verdict.get("checks", []) if draft.verdict else []
    if checks:
        state.out.text("")
        rows = [
            (
                check["name"],
                Cell(check["status"], VERDICT_STYLES.get(check["status"], "")),
                check.get("detail", ""),
            )
            for check in checks
        ]
        state.out.table(Table(("check", "status", "detail"), rows))
    state.out.text("")
    state.out.text(draft.source)


def _origin(draft: Draft) -> str:
    """The template, or the draft that this one repairs or whose launch constants the tuner changed."""
    if draft.author == "template":
        return f"kmint's template ({draft.changes})" if draft.changes else "kmint's template"
    if draft.parent is None:
        return ""
    return f"{draft.session}.{draft.parent}" + (
        f" ({draft.changes})" if draft.author == "tuner" else ""
    )


def _judged(draft: Draft, reason: Callable[[Mapping[str, Any]], str]) -> tuple[Cell, str, str]:
    """The outcome, the ratio, and the `reason` of the verdict."""
    if draft.duplicate_of is not None:
        return Cell("same"), "", f"the same kernel as {draft.session}.{draft.duplicate_of}"
    if draft.verdict is None:
        return Cell("not judged"), "", ""
    outcome = draft.outcome or ""
    ratio = f"{draft.ratio:.3f}x" if draft.ratio is not None else ""
    return Cell(outcome, VERDICT_STYLES.get(outcome, "")), ratio, reason(draft.verdict)

"""`kmint crowns` lists the fastest kernel of each operation and device. `kmint crowns claim ID`
lets a draft challenge for one crown.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kmint_tui import paths
from kmint_tui.cli.framework import LazyGroup, RunsCandidates
from kmint_tui.cli.history_ids import complete_draft
from kmint_tui.cli.options import USUAL, complete_operation, shapes_for
from kmint_tui.cli.state import State
from kmint_tui.cli.streams import Table
from kmint_tui.core.exit_codes import ExitCode
from kmint_tui.errors import UsageError, storage_error

if TYPE_CHECKING:
    from kmint_tui.crowns.records import Reign
    from kmint_tui.crowns.store import Result


@click.group(cls=LazyGroup, invoke_without_command=True)
@click.option(
    "--op", metavar="OP", shell_complete=complete_operation, help="Only crowns of this operation."
)
@click.option("--past", is_flag=True, help="Also reigns that have ended.")
@click.option(
    "--report",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a report: FILE.md or FILE.html.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.crowns/1).")
@click.pass_context
def crowns(
    context: click.Context, op: str | None, past: bool, report: Path | None, as_json: bool
) -> None:
    """List the crowns: the fastest kernel for each operation, on each device, with each version of
    torch and Triton.

    \b
      kmint crowns --op softmax --past
      kmint crowns --report crowns.html
      kmint crowns claim 12.3

    A crown changes hands only by a win in a head-to-head replay of both kernels in one run. Nothing
    compares across devices.
    """
    if context.invoked_subcommand is not None:
        return
    state = context.ensure_object(State)
    if report is not None and report.suffix not in (".md", ".html"):
        raise UsageError(
            f"{report} is neither a .md nor a .html file",
            fix="the ending says which report to write",
        )
    reigns = _reigns(op, past or report is not None)
    if report is not None:
        _write(report, reigns)
        state.err.note(f"wrote {report}")
        return
    if as_json:
        state.out.document("kmint.crowns/1", {"reigns": [reign.to_json() for reign in reigns]})
        return
    headers = (
        "op",
        "cell",
        "device",
        "torch",
        "triton",
        "us",
        "ratio",
        "against",
        "draft",
        "model",
        "since",
        "until",
    )
    state.out.table(Table(headers, [_row(reign) for reign in reigns], frozenset({"us", "ratio"})))
    if not reigns:
        state.err.hint(
            "no crown is held yet; a draft that won on a GPU claims one with `kmint crowns claim ID`"
        )


@crowns.command("claim", cls=RunsCandidates, short_help="Let a draft that won claim its crown.")
@click.argument(
    "wanted",
    metavar="ID",
    shell_complete=complete_draft,
    help="A draft that won, such as 12.3; `kmint history` lists the sessions.",
)
@shapes_for("of the crown, at which the draft was timed", USUAL)
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.claim/1).")
@click.pass_obj
def claim(
    state: State, wanted: str, shapes: tuple[str, ...], dtype: str | None, as_json: bool
) -> int:
    """Let a draft that won claim its crown; if the crown is held, both kernels are replayed head to
    head.

    Each shape has a separate crown; without --shape it is that of the operation's usual shape. Of
    several, none is claimed unless the draft won at each.

    Exit code 0 means that the draft holds each crown now, 1 that it does not.
    """
    from kmint_tui.core.duel import head_to_head
    from kmint_tui.crowns.records import claim as claim_of
    from kmint_tui.crowns.store import Crowns, challenge
    from kmint_tui.history.records import parse_id
    from kmint_tui.history.store import History

    where = parse_id(wanted)
    if where.number is None:
        raise UsageError(
            f"{wanted} is a session; name one of its drafts", fix=f"for example {wanted}.0"
        )
    if not paths.history_file().exists():
        raise UsageError("the history is empty", fix="`kmint mint softmax` is a start")
    with History(paths.history_file()) as history:
        session = history.session(where.session)
        draft = history.draft(where.session, where.number)
        wanted_shapes = _shapes(session.op, shapes, dtype)
        claims = [claim_of(session, draft, shape) for shape in wanted_shapes]
    replay = partial(head_to_head, demand=state.demand())
    with Crowns(paths.history_file()) as store:
        results = []
        for one in claims:
            results.append(challenge(store, one, replay))
            if not as_json:
                state.out.text(_told(results[-1]))
    if as_json:
        documents = [_document(result) for result in results]
        several = {"shapes": documents} if len(documents) > 1 else {}
        state.out.document("kmint.claim/1", {**documents[0], **several})
    held = all(result.outcome != "kept" for result in results)
    return ExitCode.DONE if held else ExitCode.NOTHING_PASSED


def _document(result: Result) -> dict[str, Any]:
    return {
        "outcome": result.outcome,
        "holder": result.holder.to_json(),
        "duel": result.duel.to_json() if result.duel else None,
    }


def _shapes(op: str, shapes: tuple[str, ...], dtype: str | None) -> tuple[str | None, ...]:
    """The requested shapes; None alone for the usual one."""
    if not (shapes or dtype):
        return (None,)
    from kmint_tui.core.shape import wanted_shapes
    from kmint_tui.core.task import operation

    return wanted_shapes(operation(op), shapes, dtype)


def _told(result: Result) -> str:
    from kmint_tui.crowns.records import shape_of

    crown, duel = result.holder.crown, result.duel
    at = f" at {shape}" if (shape := shape_of(crown.cell)) else ""
    where = f"the crown for {crown.op}{at} on {crown.device}"
    against = (
        f": {duel.ratio:.3f}x ({duel.low:.3f} to {duel.high:.3f}), {duel.decision}" if duel else ""
    )
    match result.outcome:
        case "vacant":
            return f"{where} was vacant; {result.holder.draft} holds it now"
        case "held":
            return f"{result.holder.draft} holds {where} already"
        case "taken":
            return f"{result.holder.draft} takes {where}{against}"
    return f"{result.holder.draft} keeps {where}{against}"


def _reigns(op: str | None, past: bool) -> tuple[Reign, ...]:
    if not paths.history_file().exists():
        return ()
    from kmint_tui.crowns.store import Crowns
    from kmint_tui.history.reading import for_reading

    with for_reading(paths.history_file(), Crowns) as store:
        return store.reigns(op=op, past=past)


def _row(reign: Reign) -> tuple[str, ...]:
    crown = reign.crown
    figures = (f"{reign.device_us:.1f}", f"{reign.ratio:.3f}x", reign.bar)
    return (
        *(crown.op, crown.cell, crown.device, crown.torch, crown.triton),
        *figures,
        *(reign.draft, reign.model, reign.began[:19], (reign.ended or "")[:19]),
    )


def _write(file: Path, reigns: tuple[Reign, ...]) -> None:
    from kmint_tui.crowns.report import html, markdown

    try:
        file.write_text(
            html(reigns) if file.suffix == ".html" else markdown(reigns), encoding="utf-8"
        )
    except OSError as error:
        raise storage_error(file, error) from error

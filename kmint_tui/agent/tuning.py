"""The tool `tune`: a sweep over the launch constants of a kernel that passed, by the tuner of
`kmint mint --tune`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kmint_tui import paths
from kmint_tui.agent.arguments import Kernel, Tuned
from kmint_tui.agent.bounds import verdict_document
from kmint_tui.agent.call import Call
from kmint_tui.agent.kernels import Desk, stored
from kmint_tui.errors import EnvironmentUnfit, UsageError

if TYPE_CHECKING:
    from kmint_tui.history.records import Draft
    from kmint_tui.minting.tuning import Racer, Sweep
    from referee.problem import TaskName
    from referee.variant_timing import VariantTime

SCHEMA = "kmint.tune/1"
_FULL = Kernel(level="full")


@dataclass(frozen=True)
class _Base:
    """The kernel that tuning starts from; `draft` is None if it is not kept."""

    source: str
    op: str
    task: str | TaskName
    draft: Draft | None


def tune(desk: Desk, racer: Racer, given: Tuned, call: Call) -> dict[str, Any]:
    """A `kmint.tune/1` document. Raises KmintError; without a GPU before any work."""
    from kmint_tui.core.planning import check_tunable
    from kmint_tui.minting.reasons import long_reason
    from kmint_tui.minting.tuning import sweep

    check_tunable(None, asked="tune", fix="tune on a machine with a GPU")
    base = _base(desk, given)
    verdict = _timed(desk, base, call)
    found: dict[str, Any] = {
        "schema": SCHEMA,
        "op": base.op,
        "draft": base.draft.id if base.draft else None,
        "tuned": None,
        "changes": "",
        "source": None,
        "verdict": verdict_document(verdict),
        "tuned_verdict": None,
        "trials": [],
        "seconds": 0.0,
    }
    if verdict["verdict"] == "rejected":
        return {**found, "reason": f"only a kernel that passed is tuned: {long_reason(verdict)}"}

    def race(sources: Sequence[str]) -> Sequence[VariantTime]:
        from referee.variant_timing import VariantsNotTimed

        call.tell(f"racing {len(sources) - 1} variants")
        try:
            return racer.time_variants(sources, base.task)
        except VariantsNotTimed as error:
            raise EnvironmentUnfit(str(error), title="the race was not held") from error
        finally:
            call.check()

    swept = sweep(base.draft.number if base.draft else 0, base.source, race)
    content = {name: value for name, value in swept.to_json().items() if name != "draft"}
    found |= {**content, "source": swept.source}
    return found | (_store_tuned(desk, base, swept, call) if swept.source is not None else {})


def _base(desk: Desk, given: Tuned) -> _Base:
    if given.draft is not None:
        if any((given.source, given.file, given.op, given.session)):
            raise UsageError(
                "`draft` goes with `reference` alone", fix="name a draft, or give a kernel"
            )
        if stored(given.draft)[0].state == "running":
            raise UsageError(
                f"the session of draft {given.draft} still runs", fix="tune it when that is over"
            )
        draft, op, task = desk.of_history(given.draft, given.reference)
        return _Base(draft.source, op.name, task, draft)
    kernel, op, task = desk.wanted(_of_saved(desk, given))
    kept = None
    if given.session is not None:
        from kmint_tui.core.keeping import Keeper

        _, kept = stored(Keeper(given.session, "full").before(kernel.source, op.name, task))
    return _Base(kernel.source, op.name, task, kept)


def _of_saved(desk: Desk, given: Tuned) -> Tuned:
    """The kernel and reference in a file that kmint saved; any other file as it is."""
    from kmint_tui.save.judged_part import candidate_of
    from kmint_tui.save.single_file import provenance

    if given.file is None or given.source is not None:
        return given
    text = desk.folders.kernel(given.file)
    if (origin := provenance(text)) is None:
        return given
    if "reference" in origin and given.reference is None:
        raise UsageError(
            f"{given.file} was judged by a reference of the user's own",
            fix="give its file as `reference`",
        )
    own = given.reference is not None
    return replace(
        given,
        file=None,
        source=candidate_of(text),
        op=given.op if own else given.op or origin.get("op"),
        inputs=given.inputs or (tuple(map(str, origin.get("inputs") or ())) if own else ()),
        fixed=given.fixed or (tuple(map(str, origin.get("fixed") or ())) if own else ()),
    )


def _timed(desk: Desk, base: _Base, call: Call) -> dict[str, Any]:
    """The kernel's verdict: from the history if that was timed or rejects, else a new one."""
    known = base.draft.verdict if base.draft else None
    if known is not None and (known.get("timing") or known.get("verdict") == "rejected"):
        return dict(known)
    return _judged(desk, base.source, base.task, base.draft, call)


def _judged(
    desk: Desk, source: str, task: str | TaskName, draft: Draft | None, call: Call
) -> dict[str, Any]:
    from kmint_tui.history.named import NamedSessions
    from kmint_tui.history.verdicts import ratio

    verdict = desk.verdict(source, task, _FULL, call)
    if draft is not None:
        with NamedSessions(paths.history_file()) as sessions:
            sessions.set_verdict(
                draft.session, draft.number, verdict.to_json(), ratio=ratio(verdict.timing)
            )
    return verdict.to_json()


def _store_tuned(desk: Desk, base: _Base, swept: Sweep, call: Call) -> dict[str, Any]:
    """The tuned kernel, kept in its parent's session and judged like any draft."""
    from kmint_tui.history.named import NamedSessions

    assert swept.source is not None
    made: Draft | None = None
    if base.draft is not None:
        with NamedSessions(paths.history_file()) as sessions:
            made = sessions.keep_tuned(base.draft, swept.source, swept.changes, swept.seconds)
    call.tell("judging the tuned kernel")
    verdict = _judged(desk, swept.source, base.task, made, call)
    return {"tuned": made.id if made else None, "tuned_verdict": verdict_document(verdict)}

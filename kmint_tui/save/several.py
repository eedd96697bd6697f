"""Several kernels of one operation in one file that chooses among them by shape.

Each kernel keeps a separate judged part with separate names, and is judged once more as it stands.
The file accepts the inputs that every kernel accepts, so that any choice gives a right answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kmint_tui.history.records import Draft, Session
from kmint_tui.save.choosing import Choice, Outside, Row, in_order
from kmint_tui.save.first_call import call
from kmint_tui.save.fixed_configuration import Chosen, fix_configuration
from kmint_tui.save.generated_test import render_test
from kmint_tui.save.host_code import HostCode, NotSaveable, check
from kmint_tui.save.host_cost import host_cost
from kmint_tui.save.judged_part import JudgedPart, build, candidates_of
from kmint_tui.save.kernel import Kernel
from kmint_tui.save.line_width import narrow
from kmint_tui.save.operator_code import registration
from kmint_tui.save.receipt import sha256
from kmint_tui.save.saving import check_python, origin_of, receipt_of, verdict_of
from kmint_tui.save.single_file import file_stem, render
from kmint_tui.save.support import domain, in_common, reach, support
from kmint_tui.save.tolerance import tolerance
from referee.ops import Op
from referee.verdict import Verdict


@dataclass(frozen=True)
class _Entry:
    """One kernel of the file: its draft, its code, its judged part and the verdict on that."""

    session: Session
    draft: Draft
    chosen: Chosen | None
    part: JudgedPart
    verdict: Verdict

    def to_json(self) -> dict[str, Any]:
        """For the receipt."""
        return {
            "entry": self.part.entry,
            "id": self.draft.id,
            "model": self.draft.maker(self.session.model),
            "source_sha256": self.draft.source_sha256,
            "configuration": self.chosen.to_json() if self.chosen else None,
            "verdict": self.verdict.to_json(),
        }


def prepare_several(
    drafts: Sequence[tuple[Session, Draft]],
    rows: Sequence[Row],
    outside: Outside,
    op: Op,
    *,
    judge: Callable[[str], Verdict],
    folder: str,
    licence: str,
) -> Kernel:
    """The file that chooses among these drafts by `rows`. Each row names the id of one draft.

    `judge` returns the referee's verdict on a candidate's text, with a fresh seed. The test imports
    the module from `folder`. Raises UsageError for a draft that did not pass, and NotSaveable.
    """
    stem = file_stem(op)
    sources = [fix_configuration(draft.source, verdict_of(draft)) for _, draft in drafts]
    codes = [check(source) for source, _ in sources]
    how, why = _registration(codes)
    entries = [
        _entry(session, draft, chosen, code, judge, public=stem, wrap=how == "triton_op", number=at)
        for at, ((session, draft), (_, chosen), code) in enumerate(
            zip(drafts, sources, codes, strict=True), start=1
        )
    ]
    choice = Choice(rows=_placed(rows, entries), outside=outside)
    able = in_common(
        [support(op, [verdict_of(one.draft), one.verdict.to_json()]) for one in entries]
    )
    _check_inside(choice, able.dtypes)
    parts = [one.part for one in entries]
    digest = sha256("\0".join([op.name, *(part.text for part in parts)]))
    first = entries[0]
    origin = replace(
        origin_of(first.session, first.draft, op, first.verdict, licence, None),
        model="; ".join(dict.fromkeys(one.draft.maker(one.session.model) for one in entries)),
        measured=f"Measured on {choice.rows[0].where}.",
        drafts=tuple(f"{one.draft.id} {one.draft.source_sha256}" for one in entries),
    )
    namespace = f"kmint_{digest[:8]}"
    text = render(op, parts, able, how, namespace, origin, choice)
    if candidates_of(text) != {part.entry: part.candidate for part in parts}:
        raise NotSaveable("its saved form does not hold the code that was judged")
    share = max(tolerance(op, one.verdict) for one in entries)
    test = narrow(render_test(op, stem, able, module=folder + stem, tolerance=share, choice=choice))
    check_python(text, test)
    receipt: Mapping[str, Any] = {
        **receipt_of(first.session, first.draft, first.verdict, able, how, why),
        "licence": licence,
        "reach": reach(first.verdict).to_json(),
        "test_tolerance": share,
        "host": host_cost(op, stem, able).to_json(),
        "reference": None,
        "inputs": [],
        "fixed": [],
        "configuration": None,
        "namespace": namespace,
        "entries": [one.to_json() for one in entries],
        "shapes": [row.to_json() for row in in_order(choice.rows)],
        "outside": outside,
    }
    return Kernel(
        stem=stem,
        code=text,
        test=test,
        receipt=receipt,
        verdict=first.verdict,
        call=call(op, stem, able, gpu=first.verdict.mode == "replay"),
        kind=op.kind,
        unjudged=able.unjudged,
        choice=choice,
    )


def _entry(
    session: Session,
    draft: Draft,
    chosen: Chosen | None,
    code: HostCode,
    judge: Callable[[str], Verdict],
    *,
    public: str,
    wrap: bool,
    number: int,
) -> _Entry:
    part = build(code, public=public, wrap=wrap, suffix=f"_{number}")
    verdict = judge(part.candidate)
    if not verdict.passed:
        raise NotSaveable(f"draft {draft.id} does not pass in its saved form: {verdict.reason}")
    if (limits := domain(verdict)) is not None:
        raise NotSaveable(
            f"draft {draft.id} is right for {limits.words}, and a file that chooses by shape may "
            "call it for any",
            fix=f"save it alone: `kmint save {draft.id} --to DIR`",
        )
    return _Entry(session, draft, chosen, part, verdict)


def _registration(codes: Sequence[HostCode]) -> tuple[Any, str]:
    """The form of registration that suits all: opaque where one of them cannot be traced."""
    found = [registration(code) for code in codes]
    return next((one for one in found if one[0] == "custom_op"), found[0])


def _placed(rows: Sequence[Row], entries: Sequence[_Entry]) -> tuple[Row, ...]:
    names = {one.draft.id: one.part.entry for one in entries}
    return tuple(replace(row, entry=names[row.draft]) for row in rows)


def _check_inside(choice: Choice, dtypes: Sequence[str]) -> None:
    """Raises NotSaveable for a row of a dtype that one of the kernels was not judged at."""
    if left := [row.name for row in choice.rows if row.dtype not in dtypes]:
        raise NotSaveable(f"not every kernel of the file takes {', '.join(left)}")

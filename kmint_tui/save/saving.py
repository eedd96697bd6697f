"""Turns a draft that passed into files of a project: check, render, judge once more, write."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from kmint_tui import __version__
from kmint_tui.errors import UsageError
from kmint_tui.history.records import Draft, Session, draft_id
from kmint_tui.history.store import PASSED
from kmint_tui.history.verdicts import speed
from kmint_tui.minting.request import environment
from kmint_tui.save import writer
from kmint_tui.save.choosing import Choice, Row, in_order
from kmint_tui.save.first_call import call, command
from kmint_tui.save.fixed_configuration import fix_configuration
from kmint_tui.save.generated_test import render_test
from kmint_tui.save.hf_kernel import package, package_name
from kmint_tui.save.host_code import NotSaveable, check
from kmint_tui.save.host_cost import host_cost
from kmint_tui.save.judged_part import build, candidate_of
from kmint_tui.save.kernel import Kernel
from kmint_tui.save.line_width import narrow
from kmint_tui.save.operator_code import Registration, registration
from kmint_tui.save.own_reference import Judged, OwnReference, judged, judged_by_own
from kmint_tui.save.receipt import referee_identity, seal, sha256, with_versions
from kmint_tui.save.reference_copy import small_cases
from kmint_tui.save.single_file import Provenance, file_stem, render, verify_command
from kmint_tui.save.support import Domain, Support, domain, reach, support
from kmint_tui.save.tolerance import own_tolerance, tolerance
from kmint_tui.save.user_test import render_user_test
from referee.ops import Op, UnknownOp, get
from referee.verdict import Verdict

Form = Literal["file", "hf-kernel"]

_GIVE_IT = "give --reference FILE.py[:FN], the one it was minted by"
NO_LICENCE = "NOASSERTION"
"""SPDX's word for an unknown licence."""
_NOT_REGISTERED = (
    "the reference is the user's own and is not saved with the kernel: there is "
    "nothing to run on the CPU"
)


@dataclass(frozen=True)
class Saved:
    """The written files, the kernel's first, and the verdict on the saved file.

    `choice` is the table of a file that chooses by shape; `verdict` is then that on its first
    kernel. `first_call` is a command that calls the kernel once; a package has none. `unjudged` has in words
    the inputs that were not judged because time ran out.
    """

    files: tuple[Path, ...]
    verdict: Verdict
    first_call: str
    unjudged: tuple[str, ...] = ()
    choice: Choice | None = None


def save(
    session: Session,
    draft: Draft,
    op: Op,
    folder: Path,
    *,
    judge: Callable[[str], Verdict],
    own: OwnReference | None = None,
    form: Form = "file",
    force: bool = False,
    licence: str = NO_LICENCE,
    rows: Sequence[Row] = (),
) -> Saved:
    """Save a draft that passed into `folder`. The receipt lists `rows`, its measured shapes.

    `judge` returns the referee's verdict on a candidate's text, with a fresh seed. `own` is the
    user's reference that `op` was made from.

    Raises UsageError for a draft that did not pass or that belongs to another operation. Raises
    NotSaveable for host code outside the allow-list, or a saved form that does not pass. Raises
    StorageError if kmint cannot write.
    """
    kernel = prepare(
        session,
        draft,
        op,
        judge=judge,
        own=own,
        folder=module_prefix(folder, op, form),
        licence=licence,
        rows=rows,
    )
    return written(kernel, folder, form, force=force)


def module_prefix(folder: Path, op: Op, form: Form) -> str:
    """The text before the module's name in the imports of the saved test."""
    if form == "hf-kernel":
        return f"{package_name(file_stem(op))}."
    return "." if (folder / "__init__.py").is_file() else ""


def written(kernel: Kernel, folder: Path, form: Form, *, force: bool) -> Saved:
    """Write the files of a kernel. Raises UsageError for edited files, and StorageError."""
    if form == "hf-kernel":
        texts, name = package(kernel)
    else:
        texts = {f"{kernel.stem}.py": kernel.code, f"test_{kernel.stem}.py": kernel.test}
        texts |= kernel.copies
        name = f"{kernel.stem}.receipt.json"
        texts[name] = seal(
            {**kernel.receipt, "files": {file: sha256(text) for file, text in texts.items()}}
        )
    files = writer.write(folder, texts, name, force=force)
    first_call = command(files[0], kernel.call) if form == "file" else ""
    return Saved(files, kernel.verdict, first_call, kernel.unjudged, kernel.choice)


def prepare(
    session: Session,
    draft: Draft,
    op: Op,
    *,
    judge: Callable[[str], Verdict],
    own: OwnReference | None = None,
    folder: str = "",
    licence: str = NO_LICENCE,
    rows: Sequence[Row] = (),
) -> Kernel:
    """The files of `save` before they are written. The test imports the module from `folder`."""
    verdict_of(draft)
    _check_minted_by(session, draft, op, own)
    assert draft.verdict is not None
    source, chosen = fix_configuration(draft.source, draft.verdict)
    code, stem = check(source), file_stem(op)
    how, why = registration(code) if own is None else (None, _NOT_REGISTERED)
    part = build(code, public=stem, wrap=how == "triton_op")
    verdict = judge(part.candidate)
    if not verdict.passed:
        raise NotSaveable(f"in its saved form it does not pass: {verdict.reason}")
    limits = domain(verdict)
    able = (
        judged(op.arguments, own, verdict)
        if own
        else support(op, [draft.verdict, verdict.to_json()])
    )
    namespace = "kmint_" + sha256(f"{op.name}\0{part.text}")[:8]
    text = render(
        op, [part], able, how, namespace, origin_of(session, draft, op, verdict, licence, limits)
    )
    if candidate_of(text) != part.candidate:
        raise NotSaveable("its saved form does not hold the code that was judged")
    module = folder + stem
    copies: dict[str, str] = {}
    if isinstance(able, Support):
        share = tolerance(op, verdict)
        test = render_test(op, stem, able, module=module, tolerance=share, limits=limits)
    else:
        assert own is not None
        passed = {one.name for one in verdict.cells if one.status == "pass"}
        judged_at = [cell for cell in own.cells("cpu") if cell.name in passed]
        share = own_tolerance(judged_at, verdict)
        cases = small_cases(judged_at) if own.copy else ()
        if own.copy and cases:
            copies[f"{stem}_reference.py"] = own.copy.text
        test = render_user_test(
            stem,
            module,
            verify_command(stem, able),
            copy=own.copy,
            cases=cases,
            numbers=[number.name for number in own.numbers],
            tolerance=share,
        )
    test = narrow(test)
    check_python(text, test)
    receipt = {
        **receipt_of(session, draft, verdict, able, how, why),
        "licence": licence,
        "reach": reach(verdict).to_json(),
        "test_tolerance": share,
        "host": host_cost(op, stem, able).to_json() if isinstance(able, Support) else None,
        "reference": asdict(own.file) if own else None,
        "inputs": list(own.inputs) if own else [],
        "fixed": list(own.fixed) if own else [],
        "configuration": chosen.to_json() if chosen else None,
        "namespace": namespace if how else None,
        **(
            {"shapes": [{**row.to_json(), "entry": part.entry} for row in in_order(rows)]}
            if rows
            else {}
        ),
    }
    expression = call(op, stem, able, gpu=verdict.mode == "replay")
    return Kernel(
        stem=stem,
        code=text,
        test=test,
        receipt=receipt,
        verdict=verdict,
        call=expression,
        kind=op.kind,
        copies=copies,
        unjudged=able.unjudged if isinstance(able, Support) else (),
    )


def verdict_of(draft: Draft) -> Mapping[str, Any]:
    """The verdict on a draft that passed. Raises UsageError for another draft."""
    if draft.outcome not in PASSED or draft.verdict is None:
        raise UsageError(
            f"draft {draft.id} is {_said(draft)}; only kernels that passed can be saved",
            fix=_way_out(draft),
        )
    return draft.verdict


def check_needs_no_reference(session: Session, draft: Draft) -> None:
    """Raises UsageError for a draft that was minted by a user's reference, even if its name is an
    operation's.
    """
    if judged_by_own(draft.verdict) or not _in_catalogue(session.op):
        raise UsageError(
            f"draft {draft.id} was minted by a reference of your own, {session.op}", fix=_GIVE_IT
        )


def _in_catalogue(name: str) -> bool:
    try:
        get(name)
    except UnknownOp:
        return False
    return True


def _check_minted_by(session: Session, draft: Draft, op: Op, own: OwnReference | None) -> None:
    """Raises UsageError for a draft that was minted by another operation or reference."""
    if own is None:
        check_needs_no_reference(session, draft)
    elif not judged_by_own(draft.verdict):
        raise UsageError(
            f"draft {draft.id} was minted by the catalogue's {session.op}, not by a reference",
            fix="leave out --reference",
        )
    if op.name != session.op:
        raise UsageError(
            f"draft {draft.id} was minted by {session.op}, not by {op.name}",
            fix=_GIVE_IT if own else "",
        )


def check_python(*texts: str) -> None:
    """Raises NotSaveable for a text that Python cannot compile."""
    for text in texts:
        try:
            compile(text, "<saved>", "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            raise NotSaveable(f"its saved form is not Python: {error}") from error


def _said(draft: Draft) -> str:
    if draft.duplicate_of is not None:
        return f"the same kernel as {draft_id(draft.session, draft.duplicate_of)}"
    return draft.outcome or "not judged"


def _way_out(draft: Draft) -> str:
    if draft.duplicate_of is not None:
        return f"save {draft_id(draft.session, draft.duplicate_of)}"
    return f"`kmint history show {draft.session}` lists the session's drafts"


def origin_of(
    session: Session,
    draft: Draft,
    op: Op,
    verdict: Verdict,
    licence: str,
    limits: Domain | None,
) -> Provenance:
    """The origin of a draft, for the saved file."""
    assert draft.verdict is not None
    return Provenance(
        op=op.name,
        id=draft.id,
        created=session.started,
        model=draft.maker(session.model),
        by_kmint=draft.author != "smith",
        model_sha256=session.model_sha256,
        prompt_sha256=_prompt_digest(session),
        seed=session.seed,
        draft_seed=draft.seed,
        source_sha256=draft.source_sha256,
        verdict=f"{draft.outcome} ({draft.verdict.get('mode')}); as saved {verdict.verdict} "
        f"({verdict.mode})",
        reach=str(reach(verdict)) + (f"; {limits.words}" if limits else ""),
        measured=_measured(draft.verdict),
        licence=licence,
        versions={
            name: value for name, value in session.environment.items() if isinstance(value, str)
        },
    )


def _measured(verdict: Mapping[str, Any]) -> str:
    """One sentence on speed: the device, the baseline and the state of the cache."""
    found = speed(verdict)
    if found is None:
        return "Its speed was not measured."
    device = (verdict.get("environment") or {}).get("device", "an unknown device")
    bounded = found.low is not None and found.high is not None
    interval = (
        f"95 % interval {found.low:.3f} to {found.high:.3f}"
        if bounded
        else "too little data for an interval"
    )
    return (
        f"Measured on {device} at {found.cell}: {found.microseconds:.1f} us a call with a cold L2"
        f" cache, {found.ratio:.3f}x as fast as {found.bar} ({interval})."
    )


def receipt_of(
    session: Session,
    draft: Draft,
    verdict: Verdict,
    able: Support | Judged,
    how: Registration | None,
    why: str,
) -> dict[str, Any]:
    """The fields of a receipt that say where a draft comes from and how it was judged."""
    assert draft.verdict is not None
    return {
        "kmint_version": __version__,
        "saved": datetime.now(UTC).isoformat(timespec="seconds"),
        "op": session.op,
        "id": draft.id,
        "registration": {"kind": how or "none", "reason": why},
        "support": able.to_json(),
        "model": {
            "id": session.model,
            "file": session.model_file,
            "sha256": session.model_sha256,
            "prompt_sha256": _prompt_digest(session),
            "session_seed": session.seed,
            "draft_seed": draft.seed,
            "settings": dict(session.settings),
        },
        "draft": {
            "author": draft.author,
            "round": draft.round,
            "parent": draft.parent,
            "changes": draft.changes,
        },
        "source_sha256": draft.source_sha256,
        "referee": referee_identity(),
        "verdict": with_versions(verdict.to_json(), __version__),
        "draft_verdict": with_versions(
            draft.verdict, (draft.verdict.get("environment") or {}).get("kmint")
        ),
        "timing": draft.verdict.get("timing"),
        "environment": environment(),
    }


def _prompt_digest(session: Session) -> str:
    return sha256(f"{session.system}\0{session.user}")

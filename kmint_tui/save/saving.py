"""From a draft that passed to the files in a project: checked, rendered, its judged part judged once more, then written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from kmint_tui import __version__
from kmint_tui.errors import UsageError
from kmint_tui.history.records import Draft, Session, draft_id
from kmint_tui.history.store import PASSED
from kmint_tui.minting.request import environment
from kmint_tui.save import writer
from kmint_tui.save.fixed_configuration import fix_configuration
from kmint_tui.save.generated_test import render_test
from kmint_tui.save.hf_kernel import package
from kmint_tui.save.host_code import NotSaveable, check
from kmint_tui.save.judged_part import build, candidate_of
from kmint_tui.save.kernel import Kernel
from kmint_tui.save.own_reference import Judged, OwnReference, judged, judged_by_own
from kmint_tui.save.receipt import seal, sha256
from kmint_tui.save.referee_identity import referee_identity, with_versions
from kmint_tui.save.single_file import Provenance, file_stem, render
from kmint_tui.save.support import Support, support
from kmint_tui.save.traceable import Registration, registration
from referee.ops import Op, UnknownOp, get
from referee.verdict import Verdict

Form = Literal["file", "hf-kernel"]

_GIVE_IT = "give --reference FILE.py[:FN], the one it was minted by"
_NOT_REGISTERED = "the reference is the user's own and is not saved with the kernel: there is nothing to run on the CPU"


@dataclass(frozen=True)
class Saved:
    """The files written, the kernel's first, and the verdict on the saved file."""

    files: tuple[Path, ...]
    verdict: Verdict


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
) -> Saved:
    """Save a draft that passed. `judge` gives the referee's verdict on a candidate's text, with a fresh seed.

    `own` is the reference when `op` is of the user's own. Raises UsageError for a draft that did not pass or was minted by something
    else, NotSaveable for one that may not be saved or whose saved form does not pass, StorageError when it cannot be written.
    """
    kernel = prepare(session, draft, op, judge=judge, own=own)
    if form == "hf-kernel":
        texts, name = package(kernel)
    else:
        texts = {f"{kernel.stem}.py": kernel.code, f"test_{kernel.stem}.py": kernel.test}
        name = f"{kernel.stem}.receipt.json"
        texts[name] = seal({**kernel.receipt, "files": {file: sha256(text) for file, text in texts.items()}})
    return Saved(writer.write(folder, texts, name, force=force), kernel.verdict)


def prepare(session: Session, draft: Draft, op: Op, *, judge: Callable[[str], Verdict], own: OwnReference | None = None) -> Kernel:
    """Everything of `save` but the writing."""
    if draft.outcome not in PASSED or draft.verdict is None:
        raise UsageError(f"draft {draft.id} is {_said(draft)}; only kernels that passed can be saved", fix=_way_out(draft))
    _check_minted_by(session, draft, op, own)
    source, chosen = fix_configuration(draft.source, draft.verdict)
    code, stem = check(source), file_stem(op)
    how, why = registration(code) if own is None else (None, _NOT_REGISTERED)
    part = build(code, public=stem, wrap=how == "triton_op")
    verdict = judge(part.candidate)
    if not verdict.passed:
        raise NotSaveable(f"in its saved form it does not pass: {verdict.reason}")
    able = judged(op.arguments, own, verdict) if own else support(op, [draft.verdict, verdict.to_json()])
    namespace = "kmint_" + sha256(f"{op.name}\0{part.text}")[:8]
    text = render(op, part, able, how, namespace, _origin(session, draft, op, verdict))
    if candidate_of(text) != part.candidate:
        raise NotSaveable("its saved form does not hold the code that was judged")
    test = render_test(op, stem, able)
    _check_python(text)
    _check_python(test)
    receipt = {
        **_receipt(session, draft, verdict, able, how, why),
        "reference": asdict(own.file) if own else None,
        "configuration": chosen.to_json() if chosen else None,
        "namespace": namespace if how else None,
    }
    return Kernel(stem, text, test, receipt, verdict)


def check_needs_no_reference(session: Session, draft: Draft) -> None:
    """Raises UsageError when the draft was minted by a reference of the user's own, which may have the name of an operation."""
    if judged_by_own(draft.verdict) or not _in_catalogue(session.op):
        raise UsageError(f"draft {draft.id} was minted by a reference of your own, {session.op}", fix=_GIVE_IT)


def _in_catalogue(name: str) -> bool:
    try:
        get(name)
    except UnknownOp:
        return False
    return True


def _check_minted_by(session: Session, draft: Draft, op: Op, own: OwnReference | None) -> None:
    """Raises UsageError when the draft was minted by something else than `op`, or than `own`, the reference that `op` is from."""
    if own is None:
        check_needs_no_reference(session, draft)
    elif not judged_by_own(draft.verdict):
        raise UsageError(f"draft {draft.id} was minted by the catalogue's {session.op}, not by a reference", fix="leave out --reference")
    if op.name != session.op:
        raise UsageError(f"draft {draft.id} was minted by {session.op}, not by {op.name}", fix=_GIVE_IT if own else "")


def _check_python(text: str) -> None:
    """Nothing is written that Python cannot read, whatever the names in it are."""
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


def _origin(session: Session, draft: Draft, op: Op, verdict: Verdict) -> Provenance:
    assert draft.verdict is not None
    return Provenance(
        op=op.name,
        id=draft.id,
        created=session.started,
        model=draft.maker(session.model),
        model_sha256=session.model_sha256,
        prompt_sha256=_prompt_digest(session),
        seed=session.seed,
        draft_seed=draft.seed,
        source_sha256=draft.source_sha256,
        verdict=f"{draft.outcome} ({draft.verdict.get('mode')}); as saved {verdict.verdict} ({verdict.mode})",
        measured=_measured(draft.verdict),
        versions={name: value for name, value in session.environment.items() if isinstance(value, str)},
    )


def _measured(verdict: Mapping[str, Any]) -> str:
    """One line on speed: where, against what, in which state of the cache; or that nothing was measured."""
    timing = verdict.get("timing")
    if not timing or not timing.get("ratio"):
        return "Its speed was not measured."
    micros = timing["device"]["candidate"]["median"]
    device = (verdict.get("environment") or {}).get("device", "an unknown device")
    interval = timing["ratio"]
    return (
        f"Measured on {device} at {timing['cell']}: {micros:.1f} us a call with a cold L2 cache, {interval['ratio']:.3f}x as fast as"
        f" {timing['bar']} (95 % interval {interval['low']:.3f} to {interval['high']:.3f})."
    )


def _receipt(
    session: Session, draft: Draft, verdict: Verdict, able: Support | Judged, how: Registration | None, why: str
) -> dict[str, Any]:
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
        "draft": {"author": draft.author, "round": draft.round, "parent": draft.parent, "changes": draft.changes},
        "source_sha256": draft.source_sha256,
        "referee": referee_identity(),
        "verdict": with_versions(verdict.to_json(), __version__),
        "draft_verdict": with_versions(draft.verdict, (draft.verdict.get("environment") or {}).get("kmint")),
        "timing": draft.verdict.get("timing"),
        "environment": environment(),
    }


def _prompt_digest(session: Session) -> str:
    return sha256(f"{session.system}\0{session.user}")

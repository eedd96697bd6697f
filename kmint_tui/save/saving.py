"""From a draft that passed to the files in a project: checked, rendered, judged once more as it will stand, then written."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kmint_tui import __version__
from kmint_tui.documents import finite
from kmint_tui.errors import UsageError
from kmint_tui.history.records import Draft, Session, draft_id
from kmint_tui.history.store import PASSED
from kmint_tui.minting.request import environment
from kmint_tui.save import writer
from kmint_tui.save.generated_test import render_test
from kmint_tui.save.host_code import NotSaveable, check
from kmint_tui.save.single_file import Provenance, file_stem, render
from referee.ops import Op
from referee.verdict import Verdict

RECEIPT_SCHEMA = "kmint.receipt/1"


@dataclass(frozen=True)
class Saved:
    """The files written, the kernel's first, and the verdict on the saved file."""

    files: tuple[Path, ...]
    verdict: Verdict


def save(session: Session, draft: Draft, op: Op, folder: Path, *, judge: Callable[[str], Verdict], force: bool = False) -> Saved:
    """Save a draft that passed. `judge` gives the referee's verdict on the text of the saved file.

    Raises UsageError for a draft that did not pass, NotSaveable for one that may not be saved or whose saved form does not
    pass, StorageError when it cannot be written.
    """
    if draft.outcome not in PASSED:
        raise UsageError(f"draft {draft.id} is {_said(draft)}; only kernels that passed can be saved", fix=_way_out(draft))
    code = check(draft.source)
    stem, text = file_stem(op), render(op, code, _origin(session, draft))
    verdict = judge(text)
    if not verdict.passed:
        raise NotSaveable(f"in its saved form it does not pass: {verdict.reason}")
    texts = {f"{stem}.py": text, f"test_{stem}.py": render_test(op, stem)}
    receipt = f"{stem}.receipt.json"
    texts[receipt] = json.dumps(finite(_receipt(session, draft, texts, verdict)), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    return Saved(writer.write(folder, texts, receipt, force=force), verdict)


def _said(draft: Draft) -> str:
    if draft.duplicate_of is not None:
        return f"the same kernel as {draft_id(draft.session, draft.duplicate_of)}"
    return draft.outcome or "not judged"


def _way_out(draft: Draft) -> str:
    if draft.duplicate_of is not None:
        return f"save {draft_id(draft.session, draft.duplicate_of)}"
    return f"`kmint history show {draft.session}` lists the session's drafts"


def _origin(session: Session, draft: Draft) -> Provenance:
    assert draft.verdict is not None
    return Provenance(
        id=draft.id,
        created=session.started,
        model=session.model,
        model_sha256=session.model_sha256,
        prompt_sha256=_prompt_digest(session),
        seed=session.seed,
        draft_seed=draft.seed,
        source_sha256=draft.source_sha256,
        verdict=f"{draft.outcome} ({draft.verdict.get('mode')})",
        versions={name: value for name, value in session.environment.items() if isinstance(value, str)},
    )


def _receipt(session: Session, draft: Draft, texts: dict[str, str], verdict: Verdict) -> dict[str, Any]:
    return {
        "schema": RECEIPT_SCHEMA,
        "kmint_version": __version__,
        "saved": datetime.now(UTC).isoformat(timespec="seconds"),
        "op": session.op,
        "id": draft.id,
        "model": session.model,
        "model_sha256": session.model_sha256,
        "prompt_sha256": _prompt_digest(session),
        "seed": session.seed,
        "draft_seed": draft.seed,
        "source_sha256": draft.source_sha256,
        "files": {name: writer.sha256(text) for name, text in texts.items()},
        "verdict": verdict.to_json(),
        "draft_verdict": draft.verdict,
        "environment": environment(),
    }


def _prompt_digest(session: Session) -> str:
    return writer.sha256(f"{session.system}\0{session.user}")

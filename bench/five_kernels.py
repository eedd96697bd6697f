"""The five kernels of a small transformer, minted or taken from the selftest, and saved as `kmint
save` saves.
"""

from __future__ import annotations

import importlib.util
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from bench.saved_block import load
from kmint_tui.core.planning import MintOptions, plan
from kmint_tui.core.save import save_draft
from kmint_tui.events import Finished
from kmint_tui.history.records import NewDraft, NewSession
from kmint_tui.history.store import History
from kmint_tui.mint import Mint
from kmint_tui.minting.request import environment
from kmint_tui.save.saving import Saved
from kmint_tui.smith import Options, Smith
from referee.judge import Referee

Author = Literal["smith", "selftest"]

KERNELS = {
    "rmsnorm": "row_rmsnorm",
    "add_rmsnorm": "row_add_rmsnorm",
    "swiglu": "flat_swiglu",
    "rope": "rows_rope",
    "cross_entropy": "row_cross_entropy",
}
"""Each operation, with a right kernel of the selftest for it."""
GOLD = Path(__file__).parents[1] / "referee" / "selftest" / "gold"
DRAFTS = 4


class NothingPassed(RuntimeError):
    """No draft of an operation passed."""


@dataclass(frozen=True)
class Operations:
    """The operations a model is built from: rows of numbers to rows, and the loss of every row."""

    rmsnorm: Callable[[Tensor, Tensor], Tensor]
    add_rmsnorm: Callable[[Tensor, Tensor, Tensor], Tensor]
    swiglu: Callable[[Tensor, Tensor], Tensor]
    rope: Callable[[Tensor, Tensor, Tensor], Tensor]
    cross_entropy: Callable[[Tensor, Tensor], Tensor]


def operations(folder: Path) -> tuple[Operations, Operations]:
    """In plain PyTorch (the references of the saved files), and the saved kernels."""
    modules = [load(folder / f"{name}.py") for name in KERNELS]
    plain = Operations(*(module.reference for module in modules))
    return plain, Operations(
        *(getattr(module, name) for module, name in zip(modules, KERNELS, strict=True))
    )


def save_five(folder: Path, author: Author) -> dict[str, dict[str, Any]]:
    """Save all five into `folder`; of each the verdict on the saved file and what a call costs the
    host. Raises NothingPassed, or KmintError.
    """
    with (
        tempfile.TemporaryDirectory() as home,
        Referee(cache=Path(home) / "referee") as referee,
        History(Path(home) / "history.db") as history,
    ):
        ids = (
            _minted(referee, history, Path(home))
            if author == "smith"
            else _judged(referee, history)
        )
        saved = {op: save_draft(history, referee, of, folder) for op, of in ids.items()}
    return {op: {"verdict": one.verdict.verdict, "host": _host(one)} for op, one in saved.items()}


def _host(saved: Saved) -> dict[str, Any] | None:
    (receipt,) = (file for file in saved.files if file.suffix == ".json")
    host: dict[str, Any] | None = json.loads(receipt.read_text(encoding="utf-8"))["host"]
    return host


def default_author() -> Author:
    """The smith, where llama.cpp is built."""
    return "smith" if importlib.util.find_spec("llama_cpp") else "selftest"


def _minted(referee: Referee, history: History, home: Path) -> dict[str, str]:
    """The first right draft of the embedded smith for each operation; no draft is timed."""
    ids = {}
    first = plan(_wishes("rmsnorm"), draw_seed=lambda: 1)
    with Smith(
        first.model.file.path, Options(log=home / "smith.log", tuning=home / "tuning.json")
    ) as smith:
        for op in KERNELS:
            request = replace(plan(_wishes(op), draw_seed=lambda: 1), level="correct")
            session = Mint(request, smith=smith, judge=referee, history=history, judges=DRAFTS)
            (finished,) = [event for event in session.run() if isinstance(event, Finished)]
            if finished.result.best_id is None:
                raise NothingPassed(f"{op}: none of {DRAFTS} drafts passed")
            ids[op] = finished.result.best_id
    return ids


def _wishes(op: str) -> MintOptions:
    """`kmint mint OP --drafts 4 --seed 1 --until first --no-template`."""
    return MintOptions(
        op=op,
        reference=None,
        model="embedded",
        drafts=DRAFTS,
        seed=1,
        temperature=None,
        top_p=None,
        max_tokens=None,
        until="first",
        target=None,
        dialect=None,
        template=False,
    )


def _judged(referee: Referee, history: History) -> dict[str, str]:
    """The kernels of the selftest, judged on this machine and entered as drafts."""
    ids = {}
    for op, name in KERNELS.items():
        text = (GOLD / f"{name}.py.txt").read_text(encoding="utf-8")
        verdict = referee.judge(text, op, level="correct")
        if not verdict.passed:
            raise NothingPassed(f"{op}: {verdict.reason}")
        number = history.begin(
            NewSession(
                op=op,
                model="selftest",
                model_file=name,
                model_sha256="",
                system="",
                user="",
                seed=0,
                wanted=1,
                settings={},
                environment=environment(),
            )
        )
        history.add_draft(
            number,
            NewDraft(
                number=0, source=text, seed=0, temperature=0.0, tokens=0, seconds=0.0, finish="stop"
            ),
        )
        history.set_verdict(number, 0, verdict.to_json(), ratio=None)
        ids[op] = history.draft(number, 0).id
    return ids

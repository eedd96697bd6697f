"""Kernels that were really judged and really saved, shared by the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from kmint_tui.history.records import Draft, Session
from kmint_tui.save.receipt import sha256
from kmint_tui.save.saving import Saved, save
from referee.judge import Referee
from referee.ops import get
from referee.verdict import Verdict

GOLD = Path(__file__).parents[2] / "referee" / "selftest" / "gold"

BY_KIND = {
    "unary": "online_softmax",
    "row_reduce": "row_entropy",
    "rms": "row_rmsnorm",
    "ln": "row_layernorm",
    "add_rms": "row_add_rmsnorm",
    "add_ln": "row_add_layernorm",
    "gate_up": "flat_swiglu",
    "bias": "strided_bias_gelu",
    "scale": "exp2_softmax_scale",
    "dequant": "row_dequant_int8",
    "target": "row_cross_entropy",
    "rope": "rows_rope",
    "rope_interleaved": "pairs_rope_interleaved",
    "norm_rope": "row_qknorm_rope",
    "add_norm_rope": "row_add_rmsnorm_rope",
    "pair_reduce": "row_kl_div",
}
"""A right kernel of the selftest for an op of every signature kind."""

OPAQUE = ("keywords_rmsnorm_short", "tuple_add_layernorm_gelu")
"""Two whose host code `torch.compile` cannot trace."""


def source(name: str) -> str:
    """The text of a gold kernel."""
    return (GOLD / f"{name}.py.txt").read_text(encoding="utf-8")


def op_name(name: str) -> str:
    """The op that a gold kernel is for."""
    return name.partition("_")[2]


def session(op: str) -> Session:
    """A session as the history would hold it."""
    settings, environment = {"temperature": 0.7}, {"torch": "2.11", "triton": None}
    return Session(12, "2026-01-01T00:00:00+00:00", None, "done", op, "gold", "m.gguf", "ab" * 32, "s", "u", 7, 8, settings, environment)


def draft(text: str, verdict: Verdict) -> Draft:
    """A judged draft as the history would hold it."""
    return Draft(12, 3, text, sha256(text), 11, 0.7, 100, 1.0, "stop", None, verdict.verdict, None, verdict.to_json())


@dataclass(frozen=True)
class Project:
    """A folder with saved kernels: by the gold kernel's name."""

    folder: Path
    saved: dict[str, Saved]


@pytest.fixture(scope="session")
def referee() -> Iterator[Referee]:
    """The real referee, warm."""
    with Referee() as referee:
        yield referee


def save_gold(referee: Referee, name: str, folder: Path) -> Saved:
    """Judge a gold kernel and save it, all for real."""
    op, text = op_name(name), source(name)
    verdict = referee.judge(text, op, level="correct")
    assert verdict.passed, (name, verdict.reason)
    return save(session(op), draft(text, verdict), get(op), folder, judge=lambda candidate: referee.judge(candidate, op, level="correct"))


@pytest.fixture(scope="session")
def project(referee: Referee, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """One folder with a saved kernel of every signature kind, and of both ways to register one."""
    folder = tmp_path_factory.mktemp("project")
    names = (*BY_KIND.values(), *OPAQUE)
    with ThreadPoolExecutor(2) as pool:
        return Project(folder, dict(zip(names, pool.map(lambda name: save_gold(referee, name, folder), names), strict=True)))

"""Kernels that were really judged and really saved, shared by the tests of this folder."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from kmint_tui.history.records import Draft, Session
from kmint_tui.save.receipt import sha256
from kmint_tui.save.saving import Form, Saved, save
from referee.judge import Referee
from referee.ops import cells, get
from referee.verdict import CellResult, Verdict
from tests.sampling import sample

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
DRAFTED = OPAQUE[1]
"""One that is judged as a draft too, before it is saved."""


def source(name: str) -> str:
    """The text of a gold kernel."""
    return (GOLD / f"{name}.py.txt").read_text(encoding="utf-8")


def op_name(name: str) -> str:
    """The op that a gold kernel is for."""
    return name.partition("_")[2]


def session(op: str) -> Session:
    """A session as the history would hold it."""
    settings, environment = {"temperature": 0.7}, {"torch": "2.11", "triton": None}
    return Session(
        id=12,
        started="2026-01-01T00:00:00+00:00",
        finished=None,
        state="done",
        op=op,
        model="gold",
        model_file="m.gguf",
        model_sha256="ab" * 32,
        system="s",
        user="u",
        seed=7,
        wanted=8,
        settings=settings,
        environment=environment,
    )


def draft(text: str, verdict: Verdict) -> Draft:
    """A judged draft as the history would hold it."""
    return Draft(
        session=12,
        number=3,
        source=text,
        source_sha256=sha256(text),
        seed=11,
        temperature=0.7,
        tokens=100,
        seconds=1.0,
        finish="stop",
        duplicate_of=None,
        outcome=verdict.verdict,
        ratio=None,
        verdict=verdict.to_json(),
    )


JUDGED = (*sample(BY_KIND.values(), start=1, step=3), *OPAQUE)
"""Gold kernels that are really judged as they are saved in the project of the tests."""


@dataclass(frozen=True)
class Project:
    """A folder with saved kernels, by the gold kernel's name."""

    folder: Path
    saved: dict[str, Saved]


@pytest.fixture(scope="session")
def referee(shared_referee: Referee) -> Referee:
    """The real referee, warm."""
    return shared_referee


def passed_everywhere(op: str) -> Verdict:
    """A made-up verdict: right at every case that is judged without a GPU."""
    results = tuple(CellResult(one.name, one.role, "pass") for one in cells(get(op), profile="cpu"))
    return Verdict(op, "correct", "done", "because", None, "interpret", cells=results)


def save_gold(referee: Referee, name: str, folder: Path, *, drafted: bool = True) -> Saved:
    """Judge a gold kernel and save it, all for real; without `drafted` it is judged only as it is
    saved.
    """
    op, text = op_name(name), source(name)
    verdict = referee.judge(text, op, level="correct") if drafted else passed_everywhere(op)
    assert verdict.passed, (name, verdict.reason)
    return save(
        session(op),
        draft(text, verdict),
        get(op),
        folder,
        # With a seed of its own, as a command does it.
        judge=lambda candidate: Referee.judge(referee, candidate, op, level="correct"),
    )


def save_quickly(name: str, folder: Path, form: Form = "file") -> Saved:
    """A gold kernel, saved by a made-up verdict."""
    op = op_name(name)
    verdict = passed_everywhere(op)
    return save(
        session(op),
        draft(source(name), verdict),
        get(op),
        folder,
        judge=lambda _: verdict,
        form=form,
    )


@pytest.fixture(scope="session")
def project(referee: Referee, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """One folder with a saved kernel of every signature kind, and of both ways to register one.

    The kernels of `JUDGED` are judged as they are saved; the others have a made-up verdict. On a GPU
    all are judged: a made-up verdict allows layouts that a kernel may not have.
    """
    folder = tmp_path_factory.mktemp("project")
    names = (*BY_KIND.values(), *OPAQUE)
    with ThreadPoolExecutor(min(8, len(os.sched_getaffinity(0)))) as pool:
        made = pool.map(
            lambda name: (
                save_gold(referee, name, folder, drafted=name == DRAFTED)
                if name in JUDGED or torch.cuda.is_available()
                else save_quickly(name, folder)
            ),
            names,
        )
        return Project(folder, dict(zip(names, made, strict=True)))

"""Cells that hypothesis makes up within an op's contract: right kernels pass at every one of them,
slips are found out.

The referee itself draws its fresh cells with a seeded generator of its own
(`referee/ops/fresh_cells.py`), because a verdict must be repeatable from its seed and needs no test
library. Here both are held to the same contract.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from referee import ops
from referee.cases import CaseData
from referee.cpu_path import CpuPath
from referee.ops import Op
from referee.ops.cell_spec import CellSpec
from referee.ops.cells import cell_of
from referee.ops.fresh_cells import (
    CPU_COLUMNS,
    CPU_ROWS,
    DTYPES,
    HEADS,
    RECIPES,
)
from referee.ops.signatures import ROPE_KINDS, signature
from referee.ops.task import load
from referee.reading.kernels import extract
from referee.sandbox.zygote import Workers
from referee.selftest.corpus import Specimen
from referee.selftest.corpus import load as specimens
from referee.target import Target
from referee.tracing.trace import trace
from referee.verdict import Rejection

SEED = 20261121
SLOW = settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)
GOLD = (
    "online_softmax",
    "welford_layernorm_hardtanh",
    "looped_cross_entropy",
    "scan_cumsum",
    "pairs_rope_interleaved",
    "split_l2norm",
)
SLIPS = (
    "softmax_no_max",
    "layernorm_single_pass",
    "cumsum_last_block",
    "looped_rmsnorm_first_block",
    "swiglu_swapped",
)
"""Most show only at some cells: at large values, at a shifted mean, in rows of several blocks."""


class Bench:
    """Runs kernels at cells of ours on the CPU path."""

    def __init__(self) -> None:
        self.tracers, self.interpreters = Workers(), Workers(interpret=True)

    def rejection(self, kernel: Specimen, drafts: Sequence[CellSpec]) -> Rejection | None:
        """Why the kernel falls at the first of these cells where it does."""
        op = ops.get(kernel.op)
        cells = [
            replace(cell_of(op, draft), name=f"{number}") for number, draft in enumerate(drafts)
        ]
        module = extract(kernel.source)
        plans = trace(self.tracers, kernel.source, cells, Target(), module)
        if isinstance(plans, Rejection):
            return plans
        atomic = any(one.atomic for one in module.signatures)
        path = CpuPath(
            workers=self.interpreters,
            data=CaseData(load(kernel.op, "cpu"), SEED),
            text=module.text,
            atomic=atomic,
        )
        return path.required(list(zip(cells, plans, strict=True)))[1]


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    found = Bench()
    yield found
    found.tracers.close()
    found.interpreters.close()


def drafts(op: Op) -> st.SearchStrategy[CellSpec]:
    """Any cell of the op's contract that the interpreter runs in reasonable time."""
    edges = st.sampled_from([1, 2, 127, 128, 129, 1023, 1024, 1025, 2048])
    columns = (
        st.sampled_from(HEADS)
        if op.kind in ROPE_KINDS
        else st.one_of(edges, st.integers(1, CPU_COLUMNS))
    )
    scaled = st.sets(st.sampled_from(signature(op))).map(lambda names: tuple(sorted(names)))
    return st.builds(
        CellSpec,
        rows=st.integers(1, CPU_ROWS),
        columns=columns,
        dtype=st.sampled_from(DTYPES),
        values=st.sampled_from([*RECIPES, "mixed"]),
        scale=st.integers(-6, 6).map(lambda power: 2.0**power),
        scaled=scaled,
    )


@pytest.mark.sweep
@pytest.mark.parametrize("name", GOLD)
def test_right_kernels_pass_wherever_the_contract_reaches(bench: Bench, name: str) -> None:
    kernel = next(one for one in specimens("gold") if one.name == name)

    @SLOW
    @given(st.lists(drafts(ops.get(kernel.op)), min_size=2, max_size=4))
    def at_any(cells: list[CellSpec]) -> None:
        assert bench.rejection(kernel, cells) is None

    at_any()


@pytest.mark.parametrize("name", SLIPS)
def test_slips_are_found_out_by_generated_cells(bench: Bench, name: str) -> None:
    kernel = next(one for one in specimens("wrong") if one.name == name)
    strategy = st.lists(drafts(ops.get(kernel.op)), min_size=4, max_size=8)
    twenty = settings(SLOW, max_examples=20)
    shown = find(
        strategy,
        lambda cells: bench.rejection(kernel, cells) is not None,
        settings=twenty,
        random=Random(1),
    )
    rejection = bench.rejection(kernel, shown)
    assert rejection is not None and rejection.guard in ("wrong_answer", "not_deterministic")

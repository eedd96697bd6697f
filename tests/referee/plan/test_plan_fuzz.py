"""Mutated plans never crash the parser, and none that it accepts reaches outside what it may. More:
bench/fuzz_plan.py.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from referee.plans.plan import Fill
from referee.plans.plan_parse import PlanError, parse
from tests.referee.plan.example import INPUTS, MODULE, OUTPUTS, PLAN, SCRATCH, X
from tests.referee.plan.mutate import complaint, try_mutations


@pytest.mark.parametrize("seed", range(4))
def test_mutated_plans(seed: int) -> None:
    counts = try_mutations(seed, 2000)
    # The mutations are subtle enough that some are still plans, and harsh enough that most are not.
    assert counts["accepted_other"] > 50 and counts["refused"] > 1000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda children: (
        st.lists(children, max_size=5) | st.dictionaries(st.text(max_size=10), children, max_size=5)
    ),
    max_leaves=20,
)


@settings(max_examples=300, deadline=None)
@given(JSON)
def test_arbitrary_data(data: object) -> None:
    with pytest.raises(PlanError):
        parse(data, INPUTS, OUTPUTS, MODULE)


def test_the_independent_judge_sees_what_it_must() -> None:
    assert complaint(PLAN) is None
    assert complaint(replace(PLAN, outputs=(replace(PLAN.outputs[0], offset=2),))) is not None
    assert complaint(replace(PLAN, steps=(Fill(X, 0.0),))) == "an input is written"
    assert complaint(replace(PLAN, steps=(Fill(replace(SCRATCH, offset=20), 0.0),))) is not None

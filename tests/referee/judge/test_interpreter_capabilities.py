"""Beside a replay the interpreter also runs small capability cases: a fault that only they show
rejects the kernel.
"""

from __future__ import annotations

import pytest

from referee.selftest.corpus import load
from referee.verdict import Rejection
from tests.referee.stand_in import Replayer, Servers, judged

SPECIMENS = {one.name: one for one in load("wrong")}


@pytest.mark.parametrize(
    ("name", "guard"),
    [
        ("rmsnorm_padded_rows_race", "not_deterministic"),
        ("rope_other_heads_race", "not_deterministic"),
        ("softmax_padded_in_place", "input_mutated"),
    ],
)
def test_what_only_a_capability_case_shows_is_rejected(
    servers: Servers, name: str, guard: str
) -> None:
    _, found = judged(servers, SPECIMENS[name].source, Replayer(), SPECIMENS[name].op)
    assert (
        isinstance(found, Rejection)
        and found.guard == guard
        and ", a capability case: " in found.reason
    ), found

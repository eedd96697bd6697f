"""Random functions have the forms that joined the vocabulary after the shipped edition."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress

import pytest

from forge import beginnings
from forge.chain import Chain
from forge.graphs import program
from kmint_tui.graph.program import OutOfScope, Stage
from kmint_tui.graph.sizes import Size
from kmint_tui.graph.values import Value


def test_newer_forms_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also several results of one computation, and several numbers of the host."""
    forms, plain = Counter[str](), beginnings._newer

    def noted(chain: Chain, form: str, dims: list[Size], last: int) -> list[Value]:
        forms[form] += 1
        return plain(chain, form, dims, last)

    monkeypatch.setattr(beginnings, "_newer", noted)
    stages: list[Stage] = []
    for seed in range(300):
        with suppress(OutOfScope):
            made = program(random.Random(seed))
            stages.append(made.stages[made.main])
    assert len(stages) > 285 and set(forms) == set(beginnings._NEWER)
    assert Counter(len(stage.writes) for stage in stages)[3] > 5
    assert max(len(stage.numbers) for stage in stages) > 1

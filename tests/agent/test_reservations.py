"""A verdict with reservations is explained with them, and such a kernel may claim no crown."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kmint_tui.agent.explanation import meaning
from kmint_tui.crowns.records import NoClaim, claim
from kmint_tui.history.verdicts import verdict_document
from referee.verdict import Holds, HostCode, Refused, Verdict

RIGHT = Verdict("silu", "win", "done", "faster", None, "replay")
RESERVED = replace(
    RIGHT,
    host_code=(HostCode(12, "functools.lru_cache", "not on the list"),),
    holds=Holds("holds for float32", (Refused("f32-3x33001", "ValueError: too wide"),), ()),
)


def test_reservations_are_part_of_the_meaning() -> None:
    assert meaning(RIGHT.to_json()) == "It is right at every case, and faster than every baseline."
    said = meaning(RESERVED.to_json())
    assert "every case that its launcher accepts" in said and said.endswith(
        "it is not saved as it is."
    )


def test_reservations_survive_the_history() -> None:
    found = verdict_document(json.loads(json.dumps(RESERVED.to_json())))
    assert found["host_code"] == [
        {"line": 12, "what": "functools.lru_cache", "reason": "not on the list"}
    ]
    assert found["holds"]["refused"]


def test_such_a_kernel_claims_no_crown(monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    timing = {
        "cell": "c",
        "bar": "eager",
        "ratio": {"ratio": 2.0},
        "device": {"candidate": {"median": 1.0}},
    }
    verdict = {**RESERVED.to_json(), "timing": timing}
    draft = SimpleNamespace(id="1.0", verdict=verdict, outcome="win", source="")
    with pytest.raises(NoClaim, match="line 12, functools.lru_cache"):
        claim(SimpleNamespace(op="silu", model="m"), draft)  # type: ignore[arg-type]

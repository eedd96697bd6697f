"""The measurement of small calls: its files launch directly, and its document gives the claim's table."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import saved_calls
from bench.claims import CLAIMS
from bench.claims.using import MOST_OVER_US


def test_the_document_gives_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_calls, "REPEATS", 1)
    parts = [saved_calls.part("softmax")]
    calls = [
        saved_calls.call(file, saved_calls.saved_file(file, tmp_path), shape)
        for file in ("softmax by shape", "rmsnorm")
        for shape in ((64, 1024), (2, 3, 64))
    ]
    raw, claim = saved_calls.raw(parts, calls), CLAIMS["saved_calls"]
    assert raw["schema"] == claim.schema
    figures = claim.reduce(raw)
    assert list(figures["calls"]) == [
        "softmax by shape, 64x1024", "softmax by shape, 2x3x64", "rmsnorm, 64x1024", "rmsnorm, 2x3x64",
    ]  # fmt: skip
    assert all(row["bare"] > 0 for row in figures["calls"].values())
    label = "Saved files over Triton's launch and its allocation, worst, us"
    gpu = dict.fromkeys(("bare", "saved_grad", "operator", "torch"), 9.0)
    for over, words in ((MOST_OVER_US, "kept"), (MOST_OVER_US + 0.1, "NOT kept")):
        figures["calls"] = {"a file": {**gpu, "over": over}}
        assert claim.rows(figures)[label] == f"{over:.1f} (limit 8, {words})"
    figures["calls"] = {"a file": {"over": 1.0}}
    assert label not in claim.rows(figures), "without a GPU there is no launch of Triton's"

"""The claim about the build of a book, from a raw document to the rows of its table."""

from __future__ import annotations

from dataclasses import asdict

from bench.claims.book import BOOK
from tests.book.examples import entry


def test_a_build_becomes_a_table_with_every_loss() -> None:
    entries = [
        asdict(entry(ratio=2.0)),
        asdict(entry(op="relu2", ratio=0.5, verdict="loss", author="tuner")),
    ]
    raw = {
        "operations": 3,
        "cores": 16,
        "seconds": 300.0,
        "load": {"gpu": [50, 100], "cores": [40.0, 60.0]},
        "built": {
            "entries": entries,
            "failures": ["gelu: wrong"],
            "seconds": {"waited": {"baselines": 60.0, "contests": 230.0}},
        },
        "rejudged": {
            "entries": [
                {"ratio": 2.1, "difference": 0.05},
                {"ratio": 0.5, "difference": -0.01},
                {"ratio": None, "difference": None},
            ]
        },
    }
    (claim,) = BOOK
    rows = list(claim.rows(claim.reduce(raw)).values())
    assert rows == [
        "3, 2, 1",
        "5.0, 16",
        "1 win, 0 tie, 0 unsure, 1 loss; geometric mean 1.00x",
        "relu2 8192x4096 0.50x",
        "1, 0, 1",
        "baselines 60, contests 230",
        "75 %, 50 %",
        "3.0 %, 5.0 %",
    ]

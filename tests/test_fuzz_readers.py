"""A short form of `bench/fuzz_readers.py`: no reader ends in a fault, hangs or eats memory; and the
script finds those that do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import fuzz_readers
from bench.fuzz_inputs import SPECIAL
from bench.fuzz_reader import Reader
from bench.fuzz_readers import fuzz, in_worker
from bench.fuzz_table import READERS

COUNT, SEED = len(SPECIAL) + 40, 1


@pytest.mark.sweep
@pytest.mark.parametrize("reader", READERS, ids=[reader.name for reader in READERS])
def test_a_reader_holds(reader: Reader, tmp_path: Path) -> None:
    outcome = in_worker(reader, COUNT, SEED, tmp_path)
    assert outcome.accepted + outcome.refused == COUNT and not outcome.failed, outcome


def test_a_reader_that_breaks_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_readers, "HANG_SECONDS", 0.2)

    def read(data: bytes) -> None:
        document = json.loads(data)
        while document == []:
            pass
        document["a"].lower()

    inputs = [b'{"a": "x"}', b"{", b"[]", b'{"a": 1}', b"{}", b"[" * 100_000]
    monkeypatch.setattr(fuzz_readers, "SPECIAL", ())
    frail = Reader(
        "frail",
        lambda chance, seeds: inputs.pop(),
        lambda home: (read, [b'{"a": "x"}']),
        ("JSONDecodeError",),
    )
    outcome = fuzz(frail, len(inputs), SEED, tmp_path, tmp_path / "kept")
    assert (outcome.accepted, outcome.refused, outcome.failed) == (1, 1, True)
    assert [kind.partition(" ")[0] for kind in outcome.faults] == [
        "RecursionError",
        "KeyError",
        "AttributeError",
        "Hang",
    ]
    assert len(outcome.kept) == len(list((tmp_path / "kept").iterdir())) == 4

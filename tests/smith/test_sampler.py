"""Cutting rows of logits down to candidates never changes the token that llama.cpp's chain would have chosen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kmint_tui.smith.native import Log, Logits, NativeError, library
from kmint_tui.smith.sampler import Chain, Picker, candidates, peaks
from kmint_tui.smith.sampling import Sampling


@pytest.fixture(scope="module")
def lib() -> Any:
    bindings = library()
    bindings.kept_log = Log(bindings, lambda level, line: None)
    return bindings


def logits(seed: int, rows: int, width: int, levels: int = 0) -> Logits:
    drawn = np.random.default_rng(seed).standard_normal((rows, width)).astype(np.float32) * 4
    return (np.round(drawn * levels) / levels).astype(np.float32) if levels else drawn


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([8192, 8193, 12289, 40961]), st.integers(1, 64), st.sampled_from([0, 1, 8]), st.booleans())
def test_candidates_hold_the_k_largest(seed: int, width: int, k: int, levels: int, holes: bool) -> None:
    rows = logits(seed, 2, width, levels)
    if holes:
        rows[0, ::2] = -np.inf
    cut = peaks(rows, k)
    assert cut is not None
    for row, maxima, bound in zip(rows, cut.maxima, cut.bounds, strict=True):
        ids, values = candidates(row, maxima, float(bound))
        assert np.array_equal(values, row[ids]) and len(set(ids.tolist())) == len(ids)
        assert np.array_equal(np.sort(values)[-k:], np.sort(row)[-k:])
        assert set(np.flatnonzero(row > np.sort(row)[-k]).tolist()) <= set(ids.tolist())


def test_short_rows_and_an_open_top_k_are_not_cut() -> None:
    assert peaks(logits(0, 1, 2048), 40) is None
    assert peaks(logits(0, 1, 50_000), 0) is None


@pytest.mark.parametrize("width", [500, 20_001])
def test_the_cut_row_gives_the_token_of_the_whole_row(lib: Any, width: int) -> None:
    settings_used = Sampling(temperature=1.3, min_p=0.001)
    cut, whole = (Chain(lib, settings_used, 1.3, seed=7) for _ in range(2))
    picker = Picker()
    chosen = []
    for step in range(200):
        row: Logits = (logits(step, 1, width) / 2).astype(np.float32)
        chosen.append(picker.pick(row, [cut])[0])
        assert chosen[-1] == whole.pick(row[0], None, 0.0)
    assert len(set(chosen)) > 100
    cut.close()
    whole.close()


def test_workers_do_not_change_the_tokens(lib: Any) -> None:
    rows = logits(1, 7, 20_000)
    chosen = []
    for workers in (1, 2, 5):
        chains = [Chain(lib, Sampling(), 0.7, seed) for seed in range(7)]
        picker = Picker(workers)
        chosen.append([picker.pick(rows, chains) for _ in range(5)])
        picker.close()
        for chain in chains:
            chain.close()
    assert chosen[0] == chosen[1] == chosen[2]


def test_greedy_takes_the_first_of_the_largest(lib: Any) -> None:
    row = np.zeros((1, 9000), np.float32)
    row[0, [17, 4000]] = 3
    chain = Chain(lib, Sampling(temperature=0), 0.0, 1)
    assert Picker().pick(row, [chain]) == [17]
    chain.close()


def test_greedy_and_drawn_drafts_can_share_a_batch(lib: Any) -> None:
    rows = logits(3, 2, 20_000)
    chains = [Chain(lib, Sampling(), 0.0, 1), Chain(lib, Sampling(top_k=1), 0.9, 1)]
    assert Picker().pick(rows, chains) == rows.argmax(axis=1).tolist()
    for chain in chains:
        chain.close()


def test_truncation_comes_before_the_temperature(lib: Any) -> None:
    row: Logits = np.log(np.array([[0.6, 0.39, 0.005, 0.005]])).astype(np.float32)
    chain = Chain(lib, Sampling(temperature=5, top_p=0.97), 5.0, 1)
    chosen = [Picker().pick(row, [chain])[0] for _ in range(300)]
    assert set(chosen) == {0, 1}
    assert 100 < chosen.count(1) < 190  # at temperature 5 the two are nearly even
    chain.close()


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("width", [100, 20_000])
def test_logits_that_are_not_numbers_are_an_error(lib: Any, temperature: float, width: int) -> None:
    chain = Chain(lib, Sampling(), temperature, 1)
    with pytest.raises(NativeError, match="not numbers"):
        Picker().pick(np.full((1, width), np.nan, np.float32), [chain])
    chain.close()

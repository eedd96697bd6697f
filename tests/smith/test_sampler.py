"""Drawing on the host gives the tokens of llama.cpp's own chains; shortlists lose no candidate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kmint_tui.smith.native import Log, Logits, NativeError, library
from kmint_tui.smith.sampler import (
    DEPTH,
    Chain,
    Picker,
    SamplerState,
    group_maxima,
    is_cut,
    shortlist,
)
from kmint_tui.smith.sampling import Sampling


@pytest.fixture(scope="module")
def lib() -> Any:
    bindings = library()
    bindings.kept_log = Log(bindings, lambda level, line: None)
    return bindings


@pytest.fixture
def pickers() -> Iterator[list[Picker]]:
    """Pickers of one, two and five workers."""
    made = [Picker(workers) for workers in (1, 2, 5)]
    yield made
    for picker in made:
        picker.close()


def logits(seed: int, rows: int, width: int, levels: int = 0) -> Logits:
    drawn = np.random.default_rng(seed).standard_normal((rows, width)).astype(np.float32) * 4
    return (np.round(drawn * levels) / levels).astype(np.float32) if levels else drawn


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from([1, 7, 300, 4095, 4096, 4111, 8193, 40961]),
    st.sampled_from([1, 2, 40, 64, 65, 900]),
    st.sampled_from([0, 1, 8]),
    st.booleans(),
)
def test_the_shortlist_holds_the_k_largest_from_the_top(
    seed: int, width: int, k: int, levels: int, holes: bool
) -> None:
    rows = logits(seed, 3, width, levels)
    if holes:
        rows[0, 1::2] = -np.inf
    listed = shortlist(rows, k)
    if is_cut(width, k):
        maxima = np.full((3, width // DEPTH), np.nan, np.float32)
        group_maxima(rows, maxima)
        again = shortlist(rows, k, maxima)
        assert np.array_equal(again.ids, listed.ids) and np.array_equal(again.logits, listed.logits)
    assert listed.ids.shape == listed.logits.shape == (3, min(k, width))
    assert np.array_equal(listed.logits, -np.sort(-rows, axis=1)[:, :k])
    assert np.array_equal(np.take_along_axis(rows, listed.ids, axis=1), listed.logits)
    assert all(len(set(row.tolist())) == row.size for row in listed.ids)


@pytest.mark.parametrize("place", [0, 4095, 40000, 40959, 40960])
def test_the_largest_value_is_found_wherever_it_is(place: int) -> None:
    rows = logits(1, 2, 40961)
    rows[1, place] = 99
    assert shortlist(rows, 40).ids[1, 0] == place
    assert shortlist(np.zeros((1, 40961), np.float32), 40).ids.shape == (1, 40)


@pytest.mark.parametrize("width", [500, 20_001])
@pytest.mark.parametrize(
    "wishes",
    [
        {},
        {"temperature": 1.3, "min_p": 0.001},
        {"temperature": 5.0, "top_p": 1.0},
        {"temperature": 0.3, "top_k": 3},
        {"temperature": 2.0, "top_p": 0.6, "min_p": 0.2, "top_k": 400},
        {"temperature": 1.0, "top_k": 1},
    ],
    ids=str,
)
def test_dice_draw_what_llama_cpp_draws(lib: Any, width: int, wishes: dict[str, Any]) -> None:
    sampling = Sampling(**wishes)
    chains = [Chain(lib, sampling, sampling.temperature, seed) for seed in (7, 8)]
    states = [SamplerState(sampling, sampling.temperature, seed) for seed in (7, 8)]
    picker = Picker()
    chosen = []
    for step in range(200):
        rows = logits(step, 2, width)
        tokens = picker.pick(rows, states)
        assert tokens == [chain.pick(row) for chain, row in zip(chains, rows, strict=True)]
        chosen += tokens
    assert len(set(chosen)) > 100
    for chain in chains:
        chain.close()


def test_one_row_serves_all_first_tokens(lib: Any) -> None:
    row = logits(2, 1, 20_000)
    states = [SamplerState(Sampling(), 1.5, seed) for seed in range(6)]
    chains = [Chain(lib, Sampling(), 1.5, seed) for seed in range(6)]
    assert Picker().pick(row, states) == Picker().pick(row, chains)
    for chain in chains:
        chain.close()


def test_workers_do_not_change_the_tokens(pickers: list[Picker]) -> None:
    rows = logits(1, 17, 20_000)
    chosen = []
    for picker in pickers:
        states = [SamplerState(Sampling(), 0.7, seed) for seed in range(17)]
        chosen.append([picker.pick(rows[:count], states[:count]) for count in (17, 9, 3, 17)])
    assert chosen[0] == chosen[1] == chosen[2]


@pytest.mark.parametrize("width", [9000, 90])
def test_greedy_takes_the_first_of_the_largest(lib: Any, width: int) -> None:
    row = np.zeros((1, width), np.float32)
    row[0, [17, 40]] = 3
    chain = Chain(lib, Sampling(temperature=0), 0.0, 1)
    assert (
        Picker().pick(row, [chain])
        == Picker().pick(row, [SamplerState(Sampling(temperature=0), 0.0, 1)])
        == [17]
    )
    chain.close()


def test_drafts_of_different_settings_can_share_a_batch() -> None:
    rows = logits(3, 4, 20_000)
    states = [
        SamplerState(Sampling(), 0.0, 1),
        SamplerState(Sampling(top_k=1), 0.9, 1),
        SamplerState(Sampling(), 0.9, 5),
        SamplerState(Sampling(top_p=1), 0.2, 6),
    ]
    alone = [SamplerState(Sampling(), 0.9, 5), SamplerState(Sampling(top_p=1), 0.2, 6)]
    tokens = Picker().pick(rows, states)
    assert tokens[:2] == rows[:2].argmax(axis=1).tolist()
    assert tokens[2:] == [
        Picker().pick(rows[2:3], alone[:1])[0],
        Picker().pick(rows[3:], alone[1:])[0],
    ]


def test_truncation_comes_before_the_temperature() -> None:
    row: Logits = np.log(np.array([[0.6, 0.39, 0.005, 0.005]])).astype(np.float32)
    states = [SamplerState(Sampling(temperature=5, top_p=0.97), 5.0, 1)]
    chosen = [Picker().pick(row, states)[0] for _ in range(300)]
    assert set(chosen) == {0, 1}
    assert 100 < chosen.count(1) < 190  # at temperature 5 the two are nearly even


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("width", [100, 20_000])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_logits_that_are_not_numbers_are_an_error(
    lib: Any, temperature: float, width: int, value: float
) -> None:
    chain = Chain(lib, Sampling(), temperature, 1)
    for drawer in (chain, SamplerState(Sampling(), temperature, 1)):
        with pytest.raises(NativeError, match="not numbers"):
            Picker().pick(np.full((1, width), value, np.float32), [drawer])
    chain.close()

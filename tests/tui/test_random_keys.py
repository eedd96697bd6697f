"""Random keys: nothing breaks, and there is always a way back. `bench/tui_random_keys.py` runs 500 of these."""

from __future__ import annotations

import pytest

from tests.tui.random_keys import one_sequence

SEQUENCES, LENGTH = 16, 30


@pytest.mark.asyncio
@pytest.mark.parametrize("seed", range(SEQUENCES))
async def test_random_keys(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Nothing may be fetched, and a session started by chance has no model to wait for.
    monkeypatch.setenv("KMINT_OFFLINE", "1")
    monkeypatch.setattr("kmint_tui.models.store.installed", lambda entry: None)
    await one_sequence(seed, LENGTH)

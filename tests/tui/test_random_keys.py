"""Random keys break nothing, and there is always a way back. KMINT_TEST_ALL=1 runs 500 sequences."""

from __future__ import annotations

import pytest

from tests.sampling import repeats
from tests.tui.random_keys import one_sequence

LENGTH = 30


@pytest.mark.asyncio
@pytest.mark.parametrize("seed", repeats(8, 500))
async def test_random_keys(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Nothing may be fetched, and a session started by chance has no model to wait for.
    monkeypatch.setenv("KMINT_OFFLINE", "1")
    monkeypatch.setattr("kmint_tui.models.store.installed", lambda entry: None)
    await one_sequence(seed, LENGTH)

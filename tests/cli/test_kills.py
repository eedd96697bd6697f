"""Commands that write are killed before random changes to files; `bench/kill_commands.py` is the
long form of this.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.kill_commands import run
from bench.kill_judge import adopting
from bench.killed_commands import OPERATIONS

KILLS = 4


@pytest.mark.parametrize("name", ["import", "convert", "history"])
def test_a_kill_loses_nothing_and_the_next_start_cleans_up(name: str, tmp_path: Path) -> None:
    """Saving takes a judgement each time, and is killed in `tests/save/test_saving.py` while it
    writes.
    """
    (operation,) = (one for one in OPERATIONS if one.name == name)
    with adopting():
        tally = run(operation, KILLS, seed=6, folder=tmp_path, by_time=False)
    assert tally.wrong == [] and (tally.kills, tally.ended_before) == (KILLS, 0)

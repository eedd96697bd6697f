"""Verdicts while the referee's processes are killed at random: right or "error", never wrong, and
nothing is left behind.

The long run with its figures is `bench/kill_judge.py`, also for a GPU's replay worker.
"""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace

from bench import kill_judge
from bench.kill_judge import Tally, Watched
from referee.judge import Referee

JUDGEMENTS = 24
LIGHT = (
    "flat_silu flat_swiglu row_rmsnorm row_dequant_int8 silu_no_factor swiglu_swapped rmsnorm_no_eps "
    "080_library_call"
).split()
"""Kernels whose verdicts take seconds. `bench/kill_judge.py` has slow ones too."""


# However slow the machine is, as many are judged.
def test_kills_at_random_make_no_verdict_wrong_and_leave_nothing() -> None:
    tally = kill_judge.run(
        kill_judge.known(LIGHT), JUDGEMENTS, mode="interpret", seed=20261121, seconds=math.inf
    )
    assert tally.wrong == [] and tally.left == []
    assert tally.holds and tally.right + len(tally.errors) == tally.judgements
    assert tally.judgements == JUDGEMENTS + 3 and sum(tally.kills.values()) >= 3, tally


def test_a_wrong_verdict_and_a_left_process_would_be_seen() -> None:
    right, wrong = kill_judge.known(("flat_silu", "silu_no_factor"))
    swapped = replace(wrong, kind="gold")
    tally = Tally()
    with Referee(mode="interpret") as referee:
        for one in (right, swapped):
            kill_judge._count(tally, one, referee.judge(one.source, one.op, level="correct"))
    assert (tally.judgements, tally.right, len(tally.wrong), tally.holds) == (2, 1, 1, False)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert child.pid in kill_judge.descendants()
        (left,) = Watched([child.pid]).left(0.0)
        assert left.startswith(f"{child.pid} ") and "input()" in left
    finally:
        child.communicate(b"\n")
    assert not Watched([child.pid]).left(0.0)

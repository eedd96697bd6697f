"""The stage fixture, on the CPU and on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch

from referee.plans.plan import Buffer, LaunchPlan, Step
from referee.replaying.driver import Driver
from referee.replaying.replay import Runner
from referee.replaying.replay_check import Host
from referee.timing import stage as stage_module
from referee.timing.baselines import Baselines
from referee.timing.contest import Contest
from referee.timing.stage import Stage
from tests.referee.gpu.staging import (
    CELL,
    INPUT,
    OUTPUT,
    ROUNDS,
    SIZE,
    TASK,
    doubling,
)

Staged = Callable[..., Stage]


GPU = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=GPU)])
def staged(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Staged:
    """Makes a stage for the given steps, filled for its first block."""
    if request.param == "cpu":
        monkeypatch.setattr(stage_module, "free_bytes", lambda: 4 << 30)
    host = Host(request.param, Driver() if request.param == "cuda" else None, lambda *_: None)

    def make(
        *steps: Step, atomics: bool = False, rivals: Sequence[str] = (), rowwise: bool = False
    ) -> Stage:
        plan = LaunchPlan((Buffer(SIZE, 0), Buffer(SIZE), Buffer(SIZE)), (INPUT,), steps, (OUTPUT,))
        runner = Runner(plan, {}, host.driver)
        baselines = Baselines(dict.fromkeys(rivals, doubling), {}, {})
        stage = Stage(
            host,
            Contest(
                task=replace(TASK, rowwise=rowwise),
                cell=CELL,
                runner=runner,
                choice={},
                atomics=atomics,
                baselines=baselines,
                seed=5,
            ),
            ROUNDS,
        )
        stage.refill(1, ROUNDS, dict.fromkeys(rivals, ROUNDS))
        return stage

    return make

"""The memory a plan goes through, by which kernels are compared where none is timed."""

from __future__ import annotations

import pytest

from referee.plans.plan import (
    Argument,
    Buffer,
    Copy,
    Fill,
    Launch,
    LaunchConfig,
    LaunchPlan,
    Step,
    View,
    traffic,
)

X, OUT, SCRATCH = (View(index, 0, (16,), (1,), "float32") for index in range(3))


def launch(*views: View) -> Launch:
    arguments = tuple(Argument(f"a{index}", view, False) for index, view in enumerate(views))
    return Launch("_kernel", (LaunchConfig((1, 1, 1), (*arguments, Argument("N", 16, False))),))


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ((launch(X, OUT),), 1.0),
        ((launch(X, X, OUT),), 1.0),
        ((Copy(SCRATCH, X), launch(SCRATCH, OUT)), 2.0),
        ((Fill(OUT, 0), launch(X, OUT)), 1.5),
        ((launch(X, SCRATCH), launch(X, SCRATCH, OUT)), 2.5),
    ],
)
def test_each_step_goes_through_its_buffers_once(steps: tuple[Step, ...], expected: float) -> None:
    buffers = (Buffer(64, 0), Buffer(64), Buffer(64))
    assert traffic(LaunchPlan(buffers, (X,), steps, (OUT,))) == expected

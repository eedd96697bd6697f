"""Stands in for the replay worker where there is no GPU, with times that depend on the kernels: the
nearer to 8 warps, the faster. Traces, compilations and the interpreter are real.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from referee.gpu.jobs import Checked, CompiledCandidate
from referee.timing.measurement import ChosenConfigs, Timing, TimingOptions
from referee.timing.stats import Interval, Summary
from referee.versions import describe_triton
from tests.referee.stand_in import checked

DEVICE = "Stand-in 90"
BEST_WARPS, BEST_US, BAR_US = 8, 10.0, 15.0
TIMED: list[str] = []
"""The cells that were timed, by all workers."""


def microseconds(prepared: CompiledCandidate) -> float:
    """The time of a candidate at its timed case."""
    assert prepared.bench is not None
    warps = [binary.num_warps for binary in prepared.bench.binaries.values()]
    return BEST_US + sum(abs(BEST_WARPS - number) for number in warps)


class TimingStandIn:
    """The part of `referee.gpu.replayer.Replayer` that a referee uses."""

    seconds, busy = 0.0, False

    def __init__(self, *, cache: Path | None = None) -> None:
        self.cache = cache
        self.spent: dict[str, float] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @staticmethod
    def available() -> str | None:
        return None

    def environment(self) -> dict[str, Any]:
        return {"device": DEVICE, "target": None, "arch": 90, **describe_triton()}

    def expect_capabilities(self) -> None:
        return

    def check(self, prepared: CompiledCandidate, *, seed: int) -> Checked:
        return checked([job.cell for job in prepared.jobs], ())

    def tune(self, prepared: CompiledCandidate, *, seed: int) -> ChosenConfigs:
        return ChosenConfigs({0: 0}, {}, {})

    def race(
        self, prepared: Sequence[CompiledCandidate], *, seed: int
    ) -> list[tuple[float, float]]:
        times = [microseconds(one) for one in prepared]
        return [(us, times[0] / us) for us in times]

    def time(
        self, prepared: CompiledCandidate, *, seed: int, options: TimingOptions | None = None
    ) -> Timing:
        assert prepared.bench is not None
        TIMED.append(prepared.bench.cell.name)
        return timing(prepared.bench.cell.name, microseconds(prepared))

    def interrupt(self) -> None:
        return

    def close(self) -> None:
        return


def timing(cell: str, us: float) -> Timing:
    """A measurement in which every baseline takes `BAR_US` or more."""
    ratio = Interval(BAR_US / us, BAR_US / us - 0.01, BAR_US / us + 0.01, 0.95, 240, 6)
    times = {"candidate": us, "eager": 30.0, "compile": BAR_US, "floor": 9.0}
    device = {name: Summary(value, value, value, 240) for name, value in times.items()}
    return Timing(
        decision="win" if us < BAR_US else "loss",
        reason="",
        cell=cell,
        bar="compile",
        ratio=ratio,
        device=device,
        ratios={"compile": ratio},
        call={},
        graph={},
        missing={},
        bytes_read=1,
        bytes_written=1,
        floor_share=9.0 / us,
        rounds=240,
        blocks=6,
        dropped_rounds=0,
        dropped={},
        sm_clock=None,
        temperature=None,
        power=None,
        power_capped=False,
        l2_bytes=1,
        flush_bytes=3,
        window_us=1.0,
    )

"""The driver, flush buffer and cache directory of scripts that use the GPU half of the referee in
their process.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from bench import handmade
from referee.gpu.replay_service import Loaded
from referee.ops.task import load
from referee.replaying.driver import Driver
from referee.replaying.replay_check import Host
from referee.timing.baselines import Baselines, BaselineStore
from referee.timing.contest import Contest
from referee.timing.measurement import Timing, TimingOptions
from referee.timing.nvml import Clocks
from referee.timing.record import Record
from referee.timing.rounds import Flush
from referee.timing.timer import Timer


class Smoke:
    """Construction starts CUDA."""

    def __init__(self, cache: Path) -> None:
        torch.set_grad_enabled(False)
        torch.zeros(1, device="cuda")
        self.cache = cache
        self.driver = Driver()
        self.host = Host("cuda", self.driver, lambda text, seconds, whose: None)
        self.arch = (
            torch.cuda.get_device_capability()[0] * 10 + torch.cuda.get_device_capability()[1]
        )
        self.flush = Flush(torch.cuda.get_device_properties(0).L2_cache_size)
        self.baselines = BaselineStore(lambda text, seconds: None, lambda: self.flush)
        self.clocks = Clocks.open(self.driver.pci_bus_id())

    def timing(
        self,
        kernel: str,
        op: str,
        baselines: Baselines,
        seed: int,
        extra_rows: float = 0.0,
        **options: Any,
    ) -> Timing:
        """Time one hand-written kernel at its bench cell, in this process."""
        return self.recorded(kernel, op, baselines, seed, extra_rows, **options)[0]

    def recorded(
        self,
        kernel: str,
        op: str,
        baselines: Baselines,
        seed: int,
        extra_rows: float = 0.0,
        **options: Any,
    ) -> tuple[Timing, Record]:
        """The same with the times of every round."""
        job = handmade.job(kernel, handmade.bench_cell(op), arch=self.arch, extra_rows=extra_rows)
        with Loaded(self.host, job) as runner:
            contest = Contest(
                task=load(op, "gpu"),
                cell=job.cell,
                runner=runner,
                choice={},
                atomics=False,
                baselines=baselines,
                seed=seed,
            )
            timer = Timer(self.host, contest, TimingOptions(**options), self.flush, self.clocks)
            return timer.measure(), timer.record

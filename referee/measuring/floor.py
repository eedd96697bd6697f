"""The floor of an operation: reading and writing the same numbers of bytes, and the memory's rated speed.

Every input must be read and every output written once, whatever the kernel does, so a time clearly below the same traffic
under the same protocol, and below every baseline, is not a record but a mistake in measuring, or work that was not done. Clearly
means more than the traffic's own time varies: in 118 verdicts the same traffic took from 47.4 to 51.2 us, and a right kernel was
6.7 % faster than it (`bench/results/judge_catalogue_a1a75c3_h200.json`). Operations that mostly read (a loss per row) are held to a copy of
the same number of bytes for show, and to the rated bandwidth. Below 10 us launch costs dominate: shown only.
"""

from __future__ import annotations

from referee.measuring.measurement import BARS, CANDIDATE, FLOOR
from referee.measuring.stats import LEAST_BLOCKS, Interval, Summary
from referee.measuring.streaming import stream
from referee.ops.spec import Cell, TensorSpec
from referee.plans.dtypes import ITEMSIZE
from referee.replaying.driver import CudaError, Driver

BELOW = 0.93
RATED_BELOW = 0.95
LEAST_US = 10.0
MOSTLY_READS = 8

DEVICE_MEMORY_CLOCK, DEVICE_BUS_WIDTH = 36, 37


def bytes_moved(cell: Cell) -> tuple[int, int]:
    """Bytes that must be read and bytes that must be written at a cell, each tensor once."""
    return sum(map(_bytes, cell.inputs)), sum(map(_bytes, cell.outputs))


def rated_bandwidth(driver: Driver) -> float | None:
    """Bytes a second the device's memory is rated for (double data rate); None where the driver does not say."""
    try:
        clock, width = driver.device_attribute(DEVICE_MEMORY_CLOCK), driver.device_attribute(DEVICE_BUS_WIDTH)
    except CudaError:
        return None
    return 2e3 * clock * width / 8 or None


class Floor:
    """The traffic, and the judgement of times against it."""

    def __init__(self, read: int, written: int, bandwidth: float | None) -> None:
        self._read, self._written, self._bandwidth = read, written, bandwidth
        half = (read + written) // 2
        mix = (read, written) if read <= MOSTLY_READS * written else (half, half)
        self._stream = stream(*mix)

    def call(self, index: int) -> None:
        """Queue the traffic once."""
        self._stream(index)

    def problem(self, device: dict[str, Summary], ratios: dict[str, Interval]) -> str | None:
        """Why the candidate's time cannot be true, in one line; None when it can."""
        mine = device.get(CANDIDATE)
        if mine is None:
            return None
        if self._bandwidth:
            rated = 1e6 * self._read / self._bandwidth
            if rated >= LEAST_US and mine.median < RATED_BELOW * rated:
                return _impossible(mine, rated, "reading the inputs at the memory's rated speed")
        known = {name: ratio for name, ratio in ratios.items() if ratio.blocks >= LEAST_BLOCKS}
        if FLOOR not in known or device[FLOOR].median < LEAST_US or self._read > MOSTLY_READS * self._written:
            return None
        # A baseline does all of the work: what it needs no longer for than the candidate does is possible, whatever the traffic took.
        if all(known[name].low > 1 / BELOW for name in (FLOOR, *BARS) if name in known):
            return _impossible(mine, device[FLOOR].median, "moving the same bytes")
        return None


def _impossible(mine: Summary, least: float, what: str) -> str:
    return f"the kernel took {mine.median:.1f} us, and {what} takes {least:.1f} us: not a record but an error"


def _bytes(spec: TensorSpec) -> int:
    count = 1
    for size in spec.shape:
        count *= size
    return count * ITEMSIZE[spec.dtype]

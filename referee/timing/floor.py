"""The floor of an operation: a copy of the same numbers of bytes, and the memory's rated speed.

Every kernel must read every input and write every output once. A time clearly below the same
traffic under the same protocol, and below every baseline, is a measuring error or missing work.
"Clearly" exceeds the variation of the traffic's time. In 118 verdicts the same traffic took 47.4 to
51.2 us, and a right kernel was 6.7 % faster (`docs/timing-notes.md`). Operations that mostly read
(a loss per row) are compared with a copy for display, and with the rated bandwidth. Below 10 us
launch costs dominate, so the floor is only displayed.
"""

from __future__ import annotations

from referee.ops.spec import Cell, TensorSpec
from referee.plans.dtypes import ITEMSIZE
from referee.replaying.driver import CudaError, Driver
from referee.timing.measurement import BARS, CANDIDATE, FLOOR
from referee.timing.stats import LEAST_BLOCKS, Interval, Summary
from referee.timing.streaming import stream

BELOW = 0.93
RATED_BELOW = 0.95
LEAST_US = 10.0
MOSTLY_READS = 8

DEVICE_MEMORY_CLOCK, DEVICE_BUS_WIDTH = 36, 37


def bytes_moved(cell: Cell) -> tuple[int, int]:
    """Bytes to read and bytes to write at a test case, each tensor once."""
    return sum(map(_bytes, cell.inputs)), sum(map(_bytes, cell.outputs))


def rated_bandwidth(driver: Driver) -> float | None:
    """Rated bytes per second of the device's memory; None if the driver does not report it."""
    try:
        clock, width = (
            driver.device_attribute(DEVICE_MEMORY_CLOCK),
            driver.device_attribute(DEVICE_BUS_WIDTH),
        )
    except CudaError:
        return None
    return 2e3 * clock * width / 8 or None


class Floor:
    """The traffic, and the check of times against it."""

    def __init__(self, read: int, written: int, bandwidth: float | None) -> None:
        self._read, self._written, self._bandwidth = read, written, bandwidth
        half = (read + written) // 2
        mix = (read, written) if read <= MOSTLY_READS * written else (half, half)
        self._stream = stream(*mix)

    def call(self, index: int) -> None:
        """Queues the traffic once."""
        self._stream(index)

    def problem(self, device: dict[str, Summary], ratios: dict[str, Interval]) -> str | None:
        """The reason in one line why the candidate's time cannot be true, or None."""
        mine = device.get(CANDIDATE)
        if mine is None:
            return None
        if self._bandwidth:
            rated = 1e6 * self._read / self._bandwidth
            if rated >= LEAST_US and mine.median < RATED_BELOW * rated:
                return _impossible(mine, rated, "reading the inputs at the memory's rated speed")
        known = {name: ratio for name, ratio in ratios.items() if ratio.blocks >= LEAST_BLOCKS}
        if (
            FLOOR not in known
            or device[FLOOR].median < LEAST_US
            or self._read > MOSTLY_READS * self._written
        ):
            return None
        # A baseline does all of the work, so a candidate's time that it reaches is possible,
        # whatever the traffic took.
        if all(known[name].low > 1 / BELOW for name in (FLOOR, *BARS) if name in known):
            return _impossible(mine, device[FLOOR].median, "moving the same bytes")
        return None


def _impossible(mine: Summary, least: float, what: str) -> str:
    return (
        f"the kernel took {mine.median:.1f} us, and {what} takes {least:.1f} us: not a "
        "record but an error"
    )


def _bytes(spec: TensorSpec) -> int:
    count = 1
    for size in spec.shape:
        count *= size
    return count * ITEMSIZE[spec.dtype]

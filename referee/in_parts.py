"""The cells of the CPU path in a few parts, each in a process of its own, told as if one cell had been run after the other.

Where there are several processors a verdict comes sooner; and a part is compared as soon as it has run, so that a kernel that is wrong
at its first cells is not run at the others. Limits: how long a cell takes is guessed from its programs and elements, and the part that
takes longest holds up the verdict.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

from referee.cpu_path import CpuPath, Judged, Traced
from referee.device.gpu import unreached
from referee.one_thread import one_thread
from referee.parts import parts
from referee.verdict import CellResult

PARTS = 4
"""Where one takes as long as all others together, two processors still share the work evenly."""


def required_in_parts(path: CpuPath, traced: Traced) -> Judged:
    """As `CpuPath.required`: the results up to the first failure, in order. Raises JobLost or InterpreterUnsupported."""
    results: list[CellResult] = []
    stop = os.eventfd(0, os.EFD_CLOEXEC)

    def judge(part: Traced) -> Judged:
        with one_thread():
            return path.required(part, among=traced, stop=stop)

    try:
        with ThreadPoolExecutor(min(PARTS, len(os.sched_getaffinity(0))), thread_name_prefix="part") as pool:
            judged = [pool.submit(judge, part) for part in parts([path.effort(*one) for one in traced], traced, PARTS)]
            try:
                for one in judged:
                    some, rejection = one.result()
                    results += some
                    if rejection:
                        return (*results, *(unreached(cell) for cell, _ in traced[len(results) :])), rejection
            finally:
                # What has not begun never does, and what is running ends.
                for one in judged:
                    one.cancel()
                os.eventfd_write(stop, 1)
    finally:
        os.close(stop)
    return tuple(results), None

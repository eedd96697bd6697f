"""The GPU of this process as a farm of one device."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from kmint_tui.core.farm.farm import Answer, Count, Tell
from kmint_tui.core.farm.job import Job, opened
from kmint_tui.core.farm.work import Workbench, visible_device


class FarmHere:
    """One device, with `at_once` jobs at a time. A context manager.

    Timing is exclusive in any case. At the end of the context, jobs under way are broken off.
    """

    devices = 1

    def __init__(self, *, at_once: int) -> None:
        self.device, self.places = visible_device(), at_once
        self._bench = Workbench(self.device)
        self._pool = ThreadPoolExecutor(at_once, thread_name_prefix="device")
        self._open = set[Future[Answer]]()

    @property
    def free(self) -> int:
        """1 while the device has no job."""
        return int(not self._open)

    @property
    def spent(self) -> dict[str, float]:
        """Seconds by part of the work of the GPU's processes."""
        return self._bench.spent

    def submit(
        self, job: Job, tell: Tell = lambda step: None, count: Count = lambda done, total: None
    ) -> Future[Answer]:
        """Begin a job, or let it wait for a free place."""

        def do() -> Answer:
            return Answer(opened(self._bench.do(job, tell, count)), "others none")

        future = self._pool.submit(do)
        self._open.add(future)
        future.add_done_callback(self._open.discard)
        return future

    def __enter__(self) -> FarmHere:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._bench.interrupt()
        self._pool.shutdown()
        self._bench.close()

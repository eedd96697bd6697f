"""Compiles kernels while their candidate is still being traced, from plans that the trace tells as soon as it has made them.

What is told early may be forged, as what is told in the end may be. It decides only what is compiled before it is asked for: kernels are
found again by all that they were compiled of, and those that nobody asks for are thrown away.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from referee.aside import Aside
from referee.compiling.compile_cache import CompileCache
from referee.compiling.compile_jobs import Begun, CompileJobs, Request, requests, worker_count
from referee.ops.spec import Cell
from referee.plans.plan_parse import PlanError, parse

MAX_KERNELS = 16
"""As many are begun, and not more than there are processors; the others may come in groups."""
MAX_LINE = 1 << 20


class CompileAhead:
    """The kernels of one candidate. A context manager: at its end nothing new is begun, and what is still being compiled is stopped.

    `begun` is what was begun, here or by others who were given it.
    """

    def __init__(self, jobs: CompileJobs, cache_dir: Path | None) -> None:
        self._jobs = jobs
        self._cache = CompileCache(cache_dir) if cache_dir is not None else None
        self._left = worker_count(MAX_KERNELS)
        self._aside = Aside("ahead", self._left)
        self.begun = Begun()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._aside.__exit__(kind, error, trace)

    @contextlib.contextmanager
    def listening(self, cells: Sequence[Cell]) -> Iterator[int]:
        """A descriptor for a trace to tell plans to: on each line the number of a cell, and its plan. Those of `cells` are listened to."""
        read, write = os.pipe()
        listener = threading.Thread(target=self._listen, args=(read, cells), name="listening")
        listener.start()
        try:
            yield write
        finally:
            os.close(write)
            listener.join()

    def _listen(self, descriptor: int, cells: Sequence[Cell]) -> None:
        with open(descriptor, "rb") as lines:
            for _ in cells:
                try:
                    number, data = json.loads(lines.readline(MAX_LINE))
                    cell = cells[number]
                    plan = parse(data, cell.inputs, cell.outputs, self._jobs.module)
                except (ValueError, TypeError, IndexError, RecursionError, PlanError):
                    # The end of what is told, or nothing that a trace says. Its answer in the end is looked at in any case.
                    return
                for _, request in requests(plan):
                    self._begin(self._jobs.key(request), request)

    def _begin(self, key: str, request: Request) -> None:
        kept = self._cache is not None and self._cache.load(key, request["kernel"]) is not None
        # Where no processor is free the others come in groups.
        if not kept and key not in self.begun and self._left and self._jobs.idle() > 0:
            self._left -= 1
            self.begun.unless_begun(key, partial(self._aside.submit, partial(self._jobs.run, {key: request}, self._aside.stop)))

"""The task that Ray runs on a worker: one job, with a referee that stays warm in its process."""

from __future__ import annotations

import threading
from platform import node

from kmint_tui.core.farm.job import MOST_BYTES, Job
from kmint_tui.core.farm.work import Workbench
from kmint_tui.documents import compact, parse_json
from kmint_tui.typed import made

_lock = threading.Lock()
_bench: Workbench | None = None


def do(text: str) -> str:
    """The answer to the job in a JSON text, and the name of the host that did it, as JSON."""
    global _bench
    with _lock:
        if _bench is None:
            from kmint_tui import paths

            paths.settle()
            _bench = Workbench()
    done = _bench.do(made(Job, parse_json(text, most_bytes=MOST_BYTES), "the job"))
    return compact({"host": node(), "answer": done})

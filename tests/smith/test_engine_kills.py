"""A killed child loses nothing that was finished, and another one takes its place."""

from __future__ import annotations

import os
import random
import signal
import threading
from queue import SimpleQueue

from kmint_tui.smith import (
    Event,
    Failed,
    ModelLoaded,
    RunDone,
)
from tests.sampling import repeats
from tests.smith.conftest import MakeSmith, done
from tests.smith.test_engine import GIVE_UP_SECONDS, PROMPT, last, wait_for_end


def test_killing_the_child_at_any_moment_loses_nothing_finished(make_smith: MakeSmith) -> None:
    killed = 0
    moments = [0, 1, 2, *random.Random(3).choices(range(40), k=len(repeats(5, 17)))]
    for number, moment in enumerate(moments):
        smith = make_smith("ending")
        *_, loaded = smith.load()
        assert isinstance(loaded, ModelLoaded)
        pid = smith.pid
        assert pid is not None
        run = smith.draft(PROMPT, 6, max_tokens=300, seed=number)
        events = [event for _, event in zip(range(moment), run, strict=False)]
        os.kill(pid, signal.SIGKILL)
        events += run
        finished = done(events)
        if isinstance(events[-1], RunDone):
            # The child was done before it died: then everything must have arrived.
            assert len(finished) == events[-1].drafts == 6 and not events[-1].cancelled
        else:
            killed += 1
            assert (
                isinstance(events[-1], Failed)
                and events[-1].code == "killed"
                and "SIGKILL" in events[-1].reason
            )
            assert not any(isinstance(event, RunDone) for event in events)
        assert all(
            draft.finish in ("stop", "length") and draft.text is not None
            for draft in finished.values()
        )
        assert wait_for_end(pid)
        assert isinstance(last(smith), RunDone)
        assert smith.pid not in (None, pid)
        smith.close()
    # The first moments come before a child can have finished on any machine.
    assert killed >= 2


def test_a_lost_child_is_replaced_before_its_end_is_read(make_smith: MakeSmith) -> None:
    read = threading.Event()

    class Late(SimpleQueue[Event]):
        def put(self, item: Event, block: bool = True, timeout: float | None = None) -> None:
            read.wait(GIVE_UP_SECONDS)
            super().put(item, block, timeout)

    smith = make_smith("ending")
    assert isinstance(last(smith), RunDone)
    child, pid = smith._child, smith.pid
    assert child is not None and pid is not None
    child.events = Late()
    try:
        os.kill(pid, signal.SIGKILL)
        assert wait_for_end(pid)
        assert smith.pid is None
    finally:
        read.set()
    assert isinstance(last(smith), RunDone)

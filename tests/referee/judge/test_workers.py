"""A job whose worker is killed from outside is run again, once."""

from __future__ import annotations

import os
import select
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from referee.sandbox.zygote import JobLost, Limits, Outcome, Workers

JOBS = Path(__file__).with_name("jobs")
ENTRY = "waiting_job:begin_then_wait"
LIMITS = Limits(seconds=300.0, memory_bytes=1 << 28, output_bytes=1 << 10)


def run_while_killing(times: int) -> Outcome:
    """Runs a job, kills the fork server the first `times` times it has begun, then lets the job
    end.
    """
    begun_out, begun_in = os.pipe()
    go_out, go_in = os.pipe()
    try:
        with Workers(preload=(), extra_path=(str(JOBS),)) as workers, ThreadPoolExecutor(1) as pool:
            job = pool.submit(workers.run, ENTRY, b"", limits=LIMITS, fds=(begun_in, go_out))
            for kills in range(2):
                assert select.select([begun_out], [], [], 300)[0], job.result(timeout=1)
                os.read(begun_out, 1)
                if kills == times:
                    os.write(go_in, b"y")
                    break
                os.kill(workers.pid, signal.SIGKILL)
            return job.result(timeout=300)
    finally:
        for fd in (begun_out, begun_in, go_out, go_in):
            os.close(fd)


def test_a_job_lost_once_is_run_again() -> None:
    outcome = run_while_killing(1)
    assert (outcome.status, outcome.data) == ("ok", b"y")


def test_a_job_lost_twice_is_no_outcome() -> None:
    with pytest.raises(JobLost, match="lost twice"):
        run_while_killing(2)


def test_workers_let_others_go_first_where_that_is_asked() -> None:
    here = os.getpriority(os.PRIO_PROCESS, 0)
    with Workers(preload=()) as usual, Workers(preload=(), nice=3) as polite:
        assert usual.protections and polite.protections
        assert os.getpriority(os.PRIO_PROCESS, usual.pid) == here
        assert os.getpriority(os.PRIO_PROCESS, polite.pid) == min(here + 3, 19)

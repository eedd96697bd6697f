"""Servers and jobs end when they should, restart when they can, and leave nothing behind."""

from __future__ import annotations

import dataclasses
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from referee.concurrency import CancelToken
from referee.sandbox.zygote import Limits, Outcome, Zygote, ZygoteError
from tests.referee.sandbox.support import (
    HOSTILE,
    LIMITS,
    WORLDS,
    Processes,
    descendants,
    make,
    parent_of,
    scratch_of,
)

LONG = dataclasses.replace(LIMITS, seconds=600.0)
# How long to wait for what must come: far more than it takes on any machine.
WAIT_SECONDS = 240.0
ROOT = Path(__file__).parents[3]


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as executor:
        yield executor


@pytest.fixture
def own() -> Iterator[Zygote]:
    """A fork server of the test's own, to be killed."""
    with make() as zygote:
        yield zygote


def start_sleeping(
    zygote: Zygote, pool: ThreadPoolExecutor, cancel: CancelToken | None = None
) -> Future[Outcome]:
    """Submit a job that sleeps, and wait until it does."""
    read, write = os.pipe()
    try:
        job = pool.submit(
            zygote.run, "hostile_resources:sleep", b"", limits=LONG, fds=[write], cancel=cancel
        )
        with open(os.dup(write), "wb", buffering=0) as ended:
            # A job that dies before it sleeps ends the wait, too.
            job.add_done_callback(lambda _: ended.closed or ended.write(b"ended!"))
            assert os.read(read, 6) == b"asleep", job.result(WAIT_SECONDS)
    finally:
        os.close(read)
        os.close(write)
    return job


def works(zygote: Zygote) -> bool:
    outcome = zygote.run("hostile_resources:echo", b"works", limits=LIMITS)
    return (outcome.status, outcome.data) == ("ok", b"works")


@pytest.mark.parametrize("whose", ("parent", "first process", "server"))
@pytest.mark.parametrize("world", ("full", "container"))
def test_killing_any_of_the_three_leaves_no_orphan(
    servers: dict[str, Zygote], whose: str, world: str
) -> None:
    parent = subprocess.Popen(
        [sys.executable, str(HOSTILE / "hostile_orphan.py"), *WORLDS[world]],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert parent.stdout is not None
    try:
        with parent.stdout:
            words = parent.stdout.readline().split()
        assert words, "the parent ended before its job slept"
        first, scratch = int(words[0]), os.fsdecode(words[1])
        below = descendants(parent.pid)
        assert len(below) == 3
        (server,) = (pid for pid in below if parent_of(pid) == first)
        watched = Processes(below)
        os.kill(
            {"parent": parent.pid, "first process": first, "server": server}[whose], signal.SIGKILL
        )
        assert watched.all_end()
        assert parent.wait(WAIT_SECONDS) == (-signal.SIGKILL if whose == "parent" else 0)
    finally:
        parent.kill()
        parent.wait()
    assert (scratch == "None") == (scratch_of(servers[world]) is None)
    assert not os.path.exists(scratch)


@pytest.mark.parametrize("which", ("first process", "server"))
def test_a_killed_server_is_replaced_and_its_job_told_apart(
    own: Zygote, pool: ThreadPoolExecutor, which: str
) -> None:
    job = start_sleeping(own, pool)
    before = own.pid
    (server,) = (pid for pid in descendants(before) if parent_of(pid) == before)
    watched = Processes({before, *descendants(before)})
    os.kill(before if which == "first process" else server, signal.SIGKILL)
    outcome = job.result(WAIT_SECONDS)
    assert (outcome.status, outcome.killed_outside) == ("crash", True), outcome
    assert watched.all_end()
    assert works(own)
    assert own.pid != before


def test_a_server_killed_while_idle_is_replaced_unnoticed(own: Zygote) -> None:
    assert works(own)
    for _ in range(3):
        watched = Processes({own.pid})
        os.kill(own.pid, signal.SIGKILL)
        assert watched.all_end()
        assert works(own)


def test_a_server_killed_while_starting_is_replaced(own: Zygote) -> None:
    with make() as starting:
        os.kill(starting._server.process.pid, signal.SIGKILL)  # type: ignore[union-attr]
        assert works(starting)


def test_a_job_killed_from_outside_is_told_apart(own: Zygote, pool: ThreadPoolExecutor) -> None:
    assert works(own)
    server = descendants(own.pid)
    job = start_sleeping(own, pool)
    (process,) = descendants(own.pid) - server
    os.kill(process, signal.SIGKILL)
    outcome = job.result(WAIT_SECONDS)
    assert (outcome.status, outcome.killed_outside) == ("crash", True), outcome
    assert "SIGKILL" in outcome.detail
    assert works(own)


@pytest.fixture
def interrupts() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, also where the tests were started in the background, which
    ignores it.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
def test_an_interrupted_run_kills_its_job(own: Zygote) -> None:
    assert works(own)
    server = descendants(own.pid)
    read, write = os.pipe()
    watched: list[Processes] = []

    def interrupt() -> None:
        if os.read(read, 6) != b"asleep":
            return
        watched.append(Processes(descendants(own.pid) - server))
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            own.run("hostile_resources:sleep", b"", limits=LONG, fds=[write])
    finally:
        # A job that dies before it sleeps ends the wait, too.
        os.write(write, b"ended!")
        thread.join()
        os.close(read)
        os.close(write)
    assert watched[0].all_end()
    assert works(own)
    assert Processes(descendants(own.pid) - server).all_end()


def test_close_ends_running_jobs_and_every_process(pool: ThreadPoolExecutor) -> None:
    zygote = make()
    job = start_sleeping(zygote, pool)
    watched = Processes({zygote.pid, *descendants(zygote.pid)})
    zygote.close()
    assert watched.all_end()
    assert job.result(WAIT_SECONDS).status == "crash"
    zygote.close()
    with pytest.raises(ZygoteError, match="closed"):
        works(zygote)
    with pytest.raises(ZygoteError, match="closed"):
        _ = zygote.protections


def test_close_before_the_server_is_ready() -> None:
    zygote = Zygote()
    assert zygote._server is not None
    watched = Processes({zygote._server.process.pid})
    zygote.close()
    assert watched.all_end()


ENDLESS = """
import time
with open({begun!r}, "wb") as file:
    file.write(b"!")
time.sleep(3600)
"""


def test_close_waits_for_no_server_that_is_still_importing(
    pool: ThreadPoolExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = tmp_path / "begun"
    os.mkfifo(begun)
    (tmp_path / "endless_import.py").write_text(ENDLESS.format(begun=str(begun)))
    monkeypatch.syspath_prepend(str(tmp_path))
    with (
        open(os.open(begun, os.O_RDONLY | os.O_NONBLOCK), "rb") as reading,
        Zygote(preload=("endless_import",)) as zygote,
    ):
        waiting = pool.submit(works, zygote)
        assert select.select([reading], [], [], WAIT_SECONDS)[0], "the import did not begin"
        assert zygote._server is not None
        first = zygote._server.process.pid
        watched = Processes({first, *descendants(first)})
        while not zygote._lock.locked():
            assert not waiting.done(), waiting.result()
        zygote.close()
        # Only a server that says nothing for minutes is given up otherwise.
        with pytest.raises(ZygoteError, match="closed"):
            waiting.result(WAIT_SECONDS)
        assert watched.all_end()


def test_no_job_collects_garbage_of_the_server(tmp_path: Path) -> None:
    text = "import gc, json\nKEPT = json.loads(json.dumps([[n] for n in range(50_000)]))\n"
    text += "def seen(payload, scratch, fds):\n    return str(len(gc.get_objects())).encode()\n"
    (tmp_path / "many_objects.py").write_text(text, encoding="utf-8")
    with Zygote(preload=(), extra_path=(str(tmp_path),)) as zygote:
        outcome = zygote.run("many_objects:seen", b"", limits=LIMITS)
    assert outcome.status == "ok" and int(outcome.data) < 10_000, outcome


def test_many_jobs_at_once(zygote: Zygote, pool: ThreadPoolExecutor) -> None:
    payloads = [str(number).encode() * 1000 for number in range(100)]
    jobs = [
        pool.submit(zygote.run, "hostile_resources:echo", payload, limits=LIMITS)
        for payload in payloads
    ]
    assert [job.result(WAIT_SECONDS).data for job in jobs] == payloads


def test_a_deadline_holds_while_other_jobs_run(zygote: Zygote, pool: ThreadPoolExecutor) -> None:
    spinning = [
        pool.submit(
            zygote.run,
            "hostile_resources:spin",
            b"1",
            limits=dataclasses.replace(LIMITS, seconds=0.5),
        )
        for _ in range(4)
    ]
    assert works(zygote)
    assert {job.result(WAIT_SECONDS).status for job in spinning} == {"timeout"}


def test_whoever_asked_for_a_job_can_stop_it(zygote: Zygote, pool: ThreadPoolExecutor) -> None:
    servers = descendants(zygote.pid)
    with CancelToken() as cancel, CancelToken() as other_cancel:
        sleeping = [start_sleeping(zygote, pool, cancel) for _ in range(2)]
        other = start_sleeping(zygote, pool, other_cancel)
        watched = Processes(descendants(zygote.pid) - servers)
        cancel.cancel()
        outcomes = [job.result(WAIT_SECONDS) for job in sleeping]
        assert [(o.status, o.detail, o.killed_outside) for o in outcomes] == [
            ("timeout", "stopped", False)
        ] * 2
        assert not other.done()
        other_cancel.cancel()
        assert other.result(WAIT_SECONDS).detail == "stopped"
        assert watched.all_end()
        # A job that is cancelled before it starts.
        outcome = zygote.run("hostile_resources:sleep", b"", limits=LONG, cancel=cancel)
        assert outcome.detail == "stopped"
        assert works(zygote)


def test_large_payloads_and_results(zygote: Zygote) -> None:
    payload = os.urandom(8 << 20)
    outcome = zygote.run(
        "hostile_resources:echo", payload, limits=dataclasses.replace(LIMITS, output_bytes=8 << 20)
    )
    assert outcome.data == payload


def test_given_descriptors_arrive_and_stay_ours(zygote: Zygote) -> None:
    read, write = os.pipe()
    outcome = zygote.run(
        "hostile_resources:write_to_given", b"hello", limits=LIMITS, fds=[write, read]
    )
    assert outcome.data == b"2"
    os.close(write)
    with open(read, "rb") as pipe:
        assert pipe.read() == b"hello"


def test_too_many_descriptors_are_refused(zygote: Zygote) -> None:
    with pytest.raises(ValueError, match="at most 32"):
        zygote.run("hostile_resources:echo", b"", limits=LIMITS, fds=[0] * 33)
    assert (
        zygote.run("hostile_resources:write_to_given", b"", limits=LIMITS, fds=[2] * 32).data
        == b"32"
    )


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def comes_down_to(count: int, pid: int) -> bool:
    """Whether a process gets rid of all but so many descriptors: the server closes a job's a moment
    after it told of its end.
    """
    deadline = time.monotonic() + WAIT_SECONDS
    while descriptors(pid) > count:
        if time.monotonic() > deadline:
            return False
        os.sched_yield()
    return True


def test_no_descriptor_leaks(zygote: Zygote) -> None:
    assert works(zygote)
    (server,) = (pid for pid in descendants(zygote.pid) if parent_of(pid) == zygote.pid)
    # Of a server that allows nobody to look into it, only root sees the descriptors.
    visible = os.access(f"/proc/{server}/fd", os.R_OK)
    before, before_server = descriptors(os.getpid()), descriptors(server) if visible else 0
    for entry in ("echo", "raise_error", "exit_quietly", "fault"):
        for _ in range(3):
            zygote.run(f"hostile_resources:{entry}", b"", limits=LIMITS)
    for _ in range(3):
        with pytest.raises(OSError):
            zygote.run("hostile_resources:echo", b"", limits=LIMITS, fds=[1 << 20])
    assert works(zygote)
    assert descriptors(os.getpid()) <= before
    assert not visible or comes_down_to(before_server, server)


def test_a_server_that_cannot_import_says_why() -> None:
    with (
        Zygote(preload=("no_such_module_at_all",)) as zygote,
        pytest.raises(ZygoteError, match="No module named 'no_such_module_at_all'"),
    ):
        zygote.run("hostile_resources:echo", b"", limits=LIMITS)


def test_nothing_is_left_in_the_temporary_directory() -> None:
    with make(WORLDS["container"]) as zygote:
        assert works(zygote)
        scratch = scratch_of(zygote)
        assert scratch is not None and os.path.isdir(scratch)
    assert not os.path.exists(scratch)


def test_a_killed_servers_scratch_is_removed_by_the_parent() -> None:
    with make(WORLDS["container"]) as zygote:
        assert works(zygote)
        scratch = scratch_of(zygote)
        assert scratch is not None and os.path.isdir(scratch)
        watched = Processes({zygote.pid, *descendants(zygote.pid)})
        os.kill(zygote.pid, signal.SIGKILL)
        assert watched.all_end()
        assert works(zygote)
        assert not os.path.exists(scratch)


def test_limits_are_per_job(zygote: Zygote) -> None:
    tight = Limits(seconds=LIMITS.seconds, memory_bytes=32 << 20, output_bytes=10)
    assert zygote.run("hostile_resources:allocate", b"", limits=tight).status == "memory"
    assert zygote.run("hostile_resources:oversized_result", b"11", limits=tight).status == "flood"
    assert zygote.run("hostile_resources:oversized_result", b"11", limits=LIMITS).status == "ok"

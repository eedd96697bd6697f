"""No other process can be read, signalled or changed, and nothing outlives its job."""

from __future__ import annotations

import dataclasses
import json
import os

import pytest

from referee.sandbox.zygote import Outcome, Zygote
from tests.referee.sandbox.support import LIMITS, WORLDS, Attack, descendants, make

ON_OTHERS = (
    "read_environment",
    "read_command_line",
    "read_memory",
    "write_memory",
    "list_descriptors",
    "enter_root",
    "attach",
    "seize",
    "copy_memory",
    "kill",
    "stop_group",
    "kill_by_descriptor",
    "kill_thread",
    "queue_signal",
    "take_parent_priority",
    "limit_parent",
)
MAKING_PROCESSES = (
    "fork",
    "fork_and_detach",
    "start_program",
    "spawn_program",
    "replace_self",
    "execute_memory_file",
    "use_multiprocessing",
    "clone_into_new_user",
)
FILTERED_WORLDS = ("full", "container")
# Of one that is short of memory Python may wait for a thread that never began.
ROOM_FOR_THREADS = dataclasses.replace(LIMITS, memory_bytes=8 << 30)


def others(zygote: Zygote) -> str:
    return json.dumps([os.getpid(), zygote.pid, *descendants(zygote.pid)])


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("way", ON_OTHERS)
def test_parent_and_server_are_out_of_reach(
    attack: Attack, servers: dict[str, Zygote], way: str, world: str
) -> None:
    outcome = attack(f"processes:{way}", others(servers[world]), world=world)
    assert outcome.data.startswith(b"refused "), outcome
    assert outcome.data != b"refused EFAULT", "the process was reached, only the address was wrong"


@pytest.mark.parametrize("world", FILTERED_WORLDS)
def test_signals_cannot_be_sent_by_owning_a_descriptor(
    attack: Attack, servers: dict[str, Zygote], world: str
) -> None:
    outcome = attack("processes:signal_by_owned_descriptor", others(servers[world]), world=world)
    assert outcome.data.startswith(b"refused "), outcome


@pytest.mark.parametrize("world", FILTERED_WORLDS)
@pytest.mark.parametrize("way", MAKING_PROCESSES)
def test_no_process_can_be_made(attack: Attack, way: str, world: str) -> None:
    outcome = attack(f"processes:{way}", world=world)
    assert outcome.data.startswith(b"refused "), outcome


@pytest.mark.parametrize("way", ("fork", "fork_and_detach"))
def test_processes_made_without_the_filter_end_with_the_job(attack: Attack, way: str) -> None:
    outcome = attack(f"processes:{way}", world="namespaces only")
    assert outcome.data.startswith(b"succeeded "), outcome


@pytest.mark.parametrize("world", FILTERED_WORLDS)
@pytest.mark.parametrize("way", ("forget_parent", "become_dumpable", "become_session_leader"))
def test_a_job_cannot_loosen_its_bonds(attack: Attack, way: str, world: str) -> None:
    outcome = attack(f"processes:{way}", world=world)
    assert outcome.data.startswith(b"refused "), outcome


def _limited(outcome: Outcome) -> bool:
    """Whether a bomb of two thousand threads was held to few."""
    assert outcome.data.startswith((b"refused after ", b"succeeded 2000")), outcome
    return int(outcome.data.split()[-1]) <= (os.cpu_count() or 1) + 256


@pytest.mark.parametrize("world", ("full", "namespaces only"))
def test_threads_are_limited_where_the_sandbox_says_so(attack: Attack, world: str) -> None:
    outcome = attack("processes:thread_bomb", world=world, limits=ROOM_FOR_THREADS)
    assert _limited(outcome) == attack.protects(world, "thread limit")


def test_threads_of_root_are_told_to_be_unlimited() -> None:
    with make(("unprivileged user",)) as zygote:
        outcome = zygote.run("hostile_processes:thread_bomb", b"", limits=ROOM_FOR_THREADS)
        layer = next(
            protection for protection in zygote.protections if protection.name == "thread limit"
        )
    assert _limited(outcome) == layer.active
    assert layer.active or "root" in layer.detail or "other processes" in layer.detail


@pytest.mark.parametrize("world", WORLDS)
def test_a_thread_that_never_ends_does_not_hold_the_job(attack: Attack, world: str) -> None:
    outcome = attack("processes:linger_in_thread", world=world)
    assert (outcome.status, outcome.data) == ("ok", b"returned")


def test_nothing_registered_for_exit_runs(attack: Attack) -> None:
    read, write = os.pipe()
    try:
        assert attack("processes:linger_at_exit", fds=[write]).data == b"returned"
    finally:
        os.close(write)
    with open(read, "rb") as pipe:
        assert pipe.read() == b""


@pytest.mark.parametrize("world", WORLDS)
def test_a_job_deaf_to_signals_ends_at_its_deadline(attack: Attack, world: str) -> None:
    for seconds in (0.5, 5.0, 50.0):
        read, write = os.pipe()
        try:
            outcome = attack(
                "processes:ignore_signals",
                world=world,
                fds=[write],
                limits=dataclasses.replace(LIMITS, seconds=seconds),
            )
        finally:
            os.close(write)
        assert outcome.status == "timeout"
        with open(read, "rb") as pipe:
            said = pipe.read()
        # On a slow machine a short deadline comes before the job is deaf.
        if said:
            break
    assert said == b"deaf"


def test_jobs_share_no_memory(attack: Attack) -> None:
    assert attack("processes:share_with_next").data == b"nothing"
    assert attack("processes:share_with_next").data == b"nothing"

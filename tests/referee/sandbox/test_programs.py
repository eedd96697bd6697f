"""A job that may execute one program executes that one, and nothing of it outlives the job."""

from __future__ import annotations

import dataclasses
import os
import shutil

import pytest

from tests.referee.sandbox.support import LIMITS, Attack

SLEEP = os.path.realpath(shutil.which("sleep") or "/bin/sleep")
MAY_SLEEP = dataclasses.replace(LIMITS, allow_exec=(SLEEP,))
WORLDS = ("full", "container")


@pytest.mark.parametrize("world", WORLDS)
def test_the_allowed_program_runs(attack: Attack, world: str) -> None:
    assert attack("programs:run", SLEEP, world=world, limits=MAY_SLEEP).data == b"succeeded 0"


@pytest.mark.parametrize("world", WORLDS)
def test_it_does_not_run_without_the_right(attack: Attack, world: str) -> None:
    assert attack("programs:run", SLEEP, world=world).data == b"refused EPERM"


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("way", ("run_shell", "run_python", "run_copy", "run_through_link"))
def test_no_other_program_runs(attack: Attack, way: str, world: str) -> None:
    assert attack(f"programs:{way}", SLEEP, world=world, limits=MAY_SLEEP).data == b"refused EACCES"


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("way", ("leave_running", "leave_detached"))
def test_a_program_left_running_ends_with_the_job(attack: Attack, way: str, world: str) -> None:
    outcome = attack(f"programs:{way}", SLEEP, world=world, limits=MAY_SLEEP)
    assert outcome.data == b"returned", outcome


def test_a_fork_bomb_stays_small_and_ends(attack: Attack) -> None:
    outcome = attack("programs:fork_bomb", limits=dataclasses.replace(MAY_SLEEP, seconds=1.0))
    assert outcome.status == "timeout"

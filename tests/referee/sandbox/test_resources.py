"""A job can use up its own allowance and nothing else, and every way of ending is told apart."""

from __future__ import annotations

import dataclasses
import os
import resource

import pytest

from referee.sandbox.zygote import Zygote
from tests.referee.sandbox.support import LIMITS, WORLDS, Attack, scratch_of

QUICK = dataclasses.replace(LIMITS, seconds=0.5)


@pytest.mark.parametrize("world", ("full", "namespaces only"))
@pytest.mark.parametrize("way", ("fill_disk", "fill_directory", "one_huge_file"))
def test_the_disk_cannot_be_filled(attack: Attack, way: str, world: str) -> None:
    outcome = attack(f"resources:{way}", world=world)
    assert outcome.data.startswith((b"refused ENOSPC", b"refused EFBIG")), outcome


def test_without_a_quota_a_single_file_is_limited_and_removed(
    attack: Attack, servers: dict[str, Zygote]
) -> None:
    outcome = attack("resources:one_huge_file", world="container")
    assert outcome.data.startswith(b"refused EFBIG"), outcome
    scratch = scratch_of(servers["container"])
    assert scratch is not None and os.listdir(scratch) == []


@pytest.mark.parametrize("world", WORLDS)
def test_descriptors_are_limited(attack: Attack, world: str) -> None:
    assert attack("resources:many_descriptors", world=world).data == b"refused EMFILE"


@pytest.mark.parametrize("world", WORLDS)
def test_limits_cannot_be_raised(attack: Attack, world: str) -> None:
    # Python reports the kernel's EPERM as a ValueError.
    outcome = attack("resources:raise_limits", world=world)
    assert outcome.status == "crash"
    assert "not allowed to raise maximum limit" in outcome.detail


@pytest.mark.parametrize("world", WORLDS)
def test_a_deep_tree_in_scratch_does_no_harm(
    attack: Attack, servers: dict[str, Zygote], world: str
) -> None:
    assert attack("resources:deep_tree", world=world).data == b"made"


@pytest.mark.parametrize("world", WORLDS)
def test_memory_is_limited(attack: Attack, world: str) -> None:
    assert attack("resources:allocate", world=world).status == "memory"
    native = attack("resources:allocate_natively", world=world)
    assert native.status == "ok"
    assert 0 < int(native.data.split()[-1]) <= LIMITS.memory_bytes


@pytest.mark.parametrize("world", WORLDS)
def test_too_large_a_result_is_a_flood(attack: Attack, world: str) -> None:
    assert (
        attack("resources:oversized_result", str(LIMITS.output_bytes), world=world).status == "ok"
    )
    outcome = attack("resources:oversized_result", str(LIMITS.output_bytes + 1), world=world)
    assert (outcome.status, outcome.data) == ("flood", b"")
    assert attack("resources:flood_results", world=world).status == "flood"


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("stream", ("1", "2"))
def test_printing_forever_is_a_flood(attack: Attack, stream: str, world: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome = attack("resources:print_forever", stream, world=world)
    assert outcome.status == "flood"
    assert outcome.detail.startswith("printed more than")
    assert len(outcome.detail) < 10_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


def test_printing_much_is_no_reason_to_fail(attack: Attack) -> None:
    outcome = attack("resources:print_much_and_return")
    assert (outcome.status, outcome.data) == ("ok", b"returned")


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize(
    ("way", "payload"), (("spin", "1"), ("spin", "8"), ("sleep", ""), ("stop_self", ""))
)
def test_the_deadline_ends_everything(attack: Attack, way: str, payload: str, world: str) -> None:
    outcome = attack(f"resources:{way}", payload, world=world, limits=QUICK)
    # Only a job that wants a processor can be kept from it by the machine's other work.
    assert outcome.status in ("timeout", "starved" if way == "spin" else "timeout")
    assert not outcome.killed_outside
    assert outcome.seconds >= 0.5


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize(
    ("way", "status", "detail"),
    (
        ("exit_quietly", "exited", "exit code 0 without a result"),
        ("exit_by_exception", "exited", "without a result"),
        ("half_a_frame", "exited", "exit code 0 without a result"),
        ("interrupt", "crash", "KeyboardInterrupt"),
        ("fault", "crash", "SIGSEGV"),
        ("abort", "crash", "killed by SIG"),
        ("raise_error", "crash", "ValueError: the entry failed"),
        ("return_wrong_type", "crash", "TypeError"),
        ("no_such_function", "crash", "AttributeError"),
    ),
)
def test_every_unpleasant_end_is_told(
    attack: Attack, way: str, status: str, detail: str, world: str
) -> None:
    outcome = attack(f"resources:{way}", world=world)
    assert (outcome.status, outcome.data) == (status, b"")
    assert detail in outcome.detail
    assert not outcome.killed_outside


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("way", ("spin", "spin_deaf"))
def test_a_job_that_used_up_its_processor_time_took_too_long(
    attack: Attack, way: str, world: str
) -> None:
    outcome = attack(
        f"resources:{way}", world=world, limits=dataclasses.replace(LIMITS, processor_seconds=0.5)
    )
    assert (outcome.status, outcome.detail) == ("timeout", "used up its processor time"), outcome
    assert not outcome.killed_outside


def test_an_exhausted_stack_is_a_crash(attack: Attack) -> None:
    assert attack("resources:recurse").status in ("crash", "memory")


def test_what_was_printed_before_a_failure_is_shown(attack: Attack) -> None:
    assert "printed before" in attack("resources:raise_error").detail


def test_a_forged_result_is_only_data(attack: Attack) -> None:
    # The parent cannot tell it from a true one, and need not: whoever asked parses it as untrusted
    # data.
    outcome = attack("resources:forge_result")
    assert (outcome.status, outcome.data) == ("ok", b"forged")


def test_our_own_package_is_importable_and_holds_no_secret(attack: Attack) -> None:
    # Reference formulas are public. What decides is in the judge: the inputs' seed, their values
    # and the comparison.
    outcome = attack("resources:reach_reference")
    assert outcome.data.startswith(b"referee.verdict in a process with")

"""The system-call filter, run by an interpreter for both machines."""

from __future__ import annotations

import errno
import re
from pathlib import Path

import pytest

from referee.sandbox import seccomp, syscalls
from tests.referee.sandbox.bpf import ALLOW, FAIL, KILL, decide

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
PID = 7
EPERM, ENOSYS, ENOTTY = (FAIL | number for number in (errno.EPERM, errno.ENOSYS, errno.ENOTTY))
HEADERS = {
    "x86_64": (
        Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
        Path("/usr/include/asm/unistd_64.h"),
    ),
    "aarch64": (Path("/usr/include/asm-generic/unistd.h"),),
}
# Names in the generic header that aarch64's own table spells otherwise.
GENERIC_NAMES = {
    "newfstatat": "3264_fstatat",
    "fstat": "3264_fstat",
    "lseek": "3264_lseek",
    "fcntl": "3264_fcntl",
    "mmap": "3264_mmap",
}
GENERIC_NAMES |= {
    "statfs": "3264_statfs",
    "fstatfs": "3264_fstatfs",
    "ftruncate": "3264_ftruncate",
    "sendfile": "3264_sendfile",
}
GENERIC_NAMES |= {"fadvise64": "3264_fadvise64"}


TABLES = (
    syscalls.always,
    syscalls.by_argument,
    syscalls.to_execute,
    syscalls.for_devices,
    syscalls.for_devices_by_argument,
    syscalls.unreadable,
)


class Filter:
    """One filter on one machine, asked by name."""

    def __init__(self, machine: str, execute: bool, devices: bool = False) -> None:
        self._machine = machine
        self._program = seccomp.build(machine, PID, execute=execute, devices=devices)
        self.numbers = {name: number for table in TABLES for name, number in table(machine).items()}

    def __call__(self, name: str, *arguments: int) -> int:
        return decide(self._program, ARCHITECTURES[self._machine], self.numbers[name], arguments)

    def number(self, number: int) -> int:
        return decide(self._program, ARCHITECTURES[self._machine], number)

    def foreign(self, architecture: int) -> int:
        return decide(self._program, architecture, 1)


@pytest.fixture(params=syscalls.MACHINES)
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def plain(machine: str) -> Filter:
    return Filter(machine, execute=False)


@pytest.fixture
def executing(machine: str) -> Filter:
    return Filter(machine, execute=True)


def test_numbers_agree_with_the_kernels_headers(machine: str) -> None:
    header = next((path for path in HEADERS[machine] if path.exists()), None)
    if header is None:
        pytest.skip("no kernel headers here")
    found = dict(re.findall(r"#define __NR(?:_|)(\w+)\s+(\d+)", header.read_text()))
    found = {name.removeprefix("_"): number for name, number in found.items()}
    newest = max(int(number) for number in found.values())
    for table in TABLES:
        for name, number in table(machine).items():
            spelled = GENERIC_NAMES.get(name, name) if machine == "aarch64" else name
            # A header may be older than the youngest calls.
            assert found.get(spelled) == str(number) or number > newest, name


def test_every_number_is_used_once(machine: str) -> None:
    numbers = [number for table in TABLES for number in table(machine).values()]
    assert len(numbers) == len(set(numbers))
    assert max(numbers) <= syscalls.NEWEST


def test_exactly_the_named_calls_pass(machine: str) -> None:
    plain = Filter(machine, execute=False)
    allowed = set(syscalls.always(machine).values())
    by_argument = set(syscalls.by_argument(machine).values())
    unreadable = set(syscalls.unreadable(machine).values())
    for number in range(1000):
        if number in by_argument:
            continue
        expected = (
            ALLOW
            if number in allowed
            else ENOSYS
            if number in unreadable or number > syscalls.NEWEST
            else EPERM
        )
        assert plain.number(number) == expected, number


def test_executing_adds_only_what_it_must(machine: str) -> None:
    plain, executing = Filter(machine, execute=False), Filter(machine, execute=True)
    by_argument = set(syscalls.by_argument(machine).values())
    differing = {
        number
        for number in range(1000)
        if number not in by_argument and plain.number(number) != executing.number(number)
    }
    assert differing == set(syscalls.to_execute(machine).values())


def test_devices_add_only_what_a_driver_needs(machine: str) -> None:
    plain, driving = Filter(machine, execute=False), Filter(machine, execute=False, devices=True)
    chosen = {
        *syscalls.by_argument(machine).values(),
        *syscalls.for_devices_by_argument(machine).values(),
    }
    differing = {
        number
        for number in range(1000)
        if number not in chosen and plain.number(number) != driving.number(number)
    }
    assert differing == set(syscalls.for_devices(machine).values())
    assert all(
        plain.number(number) == EPERM
        for number in syscalls.for_devices_by_argument(machine).values()
    )


def test_a_drivers_sockets_reach_nobody(machine: str) -> None:
    driving = Filter(machine, execute=False, devices=True)
    for name in ("socket", "socketpair"):
        for kind in (1, 5, 1 | 0x80000, 5 | 0x800):
            assert driving(name, 1, kind) == ALLOW
        for kind in (2, 3, 4, 2 | 0x80000):
            assert driving(name, 1, kind) == EPERM
        for family in (0, 2, 10, 16, 17, 40):
            assert driving(name, family, 1) == FAIL | errno.EAFNOSUPPORT
    assert driving("connect", 3, 0x1000, 110) == FAIL | errno.ECONNREFUSED
    assert driving("sendto", 3, 0x1000, 5, 0, 0, 0) == ALLOW
    for address in (0x1000, 0x7F0000000000):
        assert driving("sendto", 3, 0x1000, 5, 0, address, 16) == EPERM


def test_a_driver_commands_devices_and_no_terminal(machine: str) -> None:
    driving = Filter(machine, execute=False, devices=True)
    for command in (0xC020462A, 0x30000001, 0x5401):
        assert driving("ioctl", 3, command) == ALLOW
    for command in (0x5412, 0x541C):
        assert driving("ioctl", 3, command) == EPERM
    for command, answer in ((0, ALLOW), (6, ALLOW), (1033, ALLOW), (8, EPERM), (1024, EPERM)):
        assert driving("fcntl", 3, command) == answer


def test_foreign_architectures_are_killed(plain: Filter, machine: str) -> None:
    for architecture in (
        0x40000003,
        0x40000028,
        *(other for name, other in ARCHITECTURES.items() if name != machine),
    ):
        assert plain.foreign(architecture) == KILL


def test_the_x32_numbers_are_refused() -> None:
    plain = Filter("x86_64", execute=False)
    for number in range(600):
        assert plain.number(0x40000000 | number) == ENOSYS


def test_clone_makes_threads_only(plain: Filter) -> None:
    thread = 0x3D0F00
    assert plain("clone", thread) == ALLOW
    assert plain("clone", 17) == EPERM
    assert plain("clone", 0x4111) == EPERM
    for flag in (
        0x20000,
        0x02000000,
        0x04000000,
        0x08000000,
        0x10000000,
        0x20000000,
        0x40000000,
        0x8000,
    ):
        assert plain("clone", thread | flag) == EPERM


def test_clone_makes_processes_but_no_namespaces_when_executing(executing: Filter) -> None:
    assert executing("clone", 17) == ALLOW
    assert executing("clone", 0x4111) == ALLOW
    for flag in (0x20000, 0x10000000, 0x40000000, 0x8000):
        assert executing("clone", 17 | flag) == EPERM


def test_signals_go_to_oneself_only(plain: Filter, executing: Filter) -> None:
    for asked in (plain, executing):
        for name in ("kill", "tgkill"):
            assert asked(name, PID, 9) == ALLOW
            for pid in (0, 1, PID + 1, 2**32 - 1, 2**64 - 1):
                assert asked(name, pid, 9) == EPERM


def test_opening_does_not_truncate_what_is_only_read(plain: Filter) -> None:
    places = {"openat": 2, "open": 1}
    for name, place in places.items():
        if name in plain.numbers:
            for flags, expected in (
                (0, ALLOW),
                (0x241, ALLOW),
                (0x202, ALLOW),
                (0x200, EPERM),
                (0x203, EPERM),
                (0x80200, EPERM),
            ):
                assert plain(name, *[0] * place, flags) == expected


def test_limits_can_be_read_not_set(plain: Filter) -> None:
    assert plain("prlimit64", 0, 7, 0, 0x7F00) == ALLOW
    assert plain("prlimit64", 0, 7, 0x7F0000000000, 0) == EPERM
    assert plain("prlimit64", 0, 7, 0x1000, 0) == EPERM


@pytest.mark.parametrize(
    ("name", "place", "allowed", "refused", "answer"),
    (
        ("fcntl", 1, (0, 1, 2, 3, 4, 1030), (5, 6, 8, 10, 15, 1024, 1031, 1033), EPERM),
        ("ioctl", 1, (0x5401, 0x5450, 0x5451), (0x5412, 0x541C, 0x40086602, 0xAE01), ENOTTY),
        ("prctl", 0, (15, 16), (1, 4, 8, 22, 24, 28, 36, 38, 0x59616D61), EPERM),
    ),
)
def test_commands_are_chosen(
    plain: Filter,
    name: str,
    place: int,
    allowed: tuple[int, ...],
    refused: tuple[int, ...],
    answer: int,
) -> None:
    for command in allowed:
        assert plain(name, *[0] * place, command) == ALLOW
    for command in refused:
        assert plain(name, *[0] * place, command) == answer


def test_the_program_is_within_the_kernels_limit(machine: str) -> None:
    program = seccomp.build(machine, PID, execute=True, devices=True)
    assert len(program) < 4096
    assert all(
        0 <= jump < 256 for _, if_true, if_false, _ in program for jump in (if_true, if_false)
    )

"""System calls that a job may make, with their numbers on x86_64 and aarch64 (Linux's unistd
tables).

This is an allow-list. It leaves out sockets, ptrace, other processes' memory, mounts, namespaces,
modes, owners, extended attributes, keys, io_uring, bpf, perf, userfaultfd, shared memory, memfd and
handles.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

MACHINES = ("x86_64", "aarch64")

# Newer calls than this get ENOSYS, so that libc falls back to an older one.
NEWEST = 451

# fmt: off
_ALWAYS: tuple[tuple[str, int | None, int | None], ...] = (
    # Read, write, seek
    ("read", 0, 63), ("write", 1, 64), ("readv", 19, 65), ("writev", 20, 66), ("pread64", 17, 67),
    ("pwrite64", 18, 68),
    ("preadv", 295, 69), ("pwritev", 296, 70), ("preadv2", 327, 286), ("pwritev2", 328, 287),
    ("lseek", 8, 62), ("sendfile", 40, 71),
    ("copy_file_range", 326, 285), ("fsync", 74, 82), ("fdatasync", 75, 83), ("ftruncate", 77, 46),
    ("fallocate", 285, 47),
    ("fadvise64", 221, 223),
    # Descriptors
    ("close", 3, 57), ("close_range", 436, 436), ("dup", 32, 23), ("dup2", 33, None),
    ("dup3", 292, 24), ("pipe", 22, None),
    ("pipe2", 293, 59), ("poll", 7, None), ("ppoll", 271, 73), ("select", 23, None),
    ("pselect6", 270, 72), ("epoll_create", 213, None),
    ("epoll_create1", 291, 20), ("epoll_ctl", 233, 21), ("epoll_wait", 232, None),
    ("epoll_pwait", 281, 22), ("epoll_pwait2", 441, 441),
    ("eventfd", 284, None), ("eventfd2", 290, 19),
    # Files by name: Landlock and the view of the file system decide which
    ("creat", 85, None), ("access", 21, None), ("faccessat", 269, 48), ("faccessat2", 439, 439),
    ("stat", 4, None), ("lstat", 6, None),
    ("fstat", 5, 80), ("newfstatat", 262, 79), ("statx", 332, 291), ("statfs", 137, 43),
    ("fstatfs", 138, 44), ("readlink", 89, None),
    ("readlinkat", 267, 78), ("getdents", 78, None), ("getdents64", 217, 61), ("getcwd", 79, 17),
    ("chdir", 80, 49), ("fchdir", 81, 50),
    ("mkdir", 83, None), ("mkdirat", 258, 34), ("rmdir", 84, None), ("unlink", 87, None),
    ("unlinkat", 263, 35), ("rename", 82, None),
    ("renameat", 264, 38), ("renameat2", 316, 276), ("link", 86, None), ("linkat", 265, 37),
    ("symlink", 88, None),
    ("symlinkat", 266, 36), ("umask", 95, 166),
    # Memory
    ("mmap", 9, 222), ("munmap", 11, 215), ("mremap", 25, 216), ("mprotect", 10, 226),
    ("madvise", 28, 233), ("brk", 12, 214),
    ("msync", 26, 227), ("membarrier", 324, 283), ("get_mempolicy", 239, 236),
    ("pkey_alloc", 330, 289), ("pkey_free", 331, 290),
    ("pkey_mprotect", 329, 288),
    # Threads and waiting
    ("futex", 202, 98), ("futex_waitv", 449, 449), ("set_robust_list", 273, 99),
    ("set_tid_address", 218, 96), ("rseq", 334, 293),
    ("arch_prctl", 158, None), ("sched_yield", 24, 124), ("sched_getaffinity", 204, 123),
    ("sched_getparam", 143, 121),
    ("sched_getscheduler", 145, 120), ("sched_get_priority_max", 146, 125),
    ("sched_get_priority_min", 147, 126),
    ("getpriority", 140, 141), ("getcpu", 309, 168), ("gettid", 186, 178), ("exit", 60, 93),
    ("exit_group", 231, 94), ("wait4", 61, 260),
    ("waitid", 247, 95), ("nanosleep", 35, 101), ("clock_nanosleep", 230, 115),
    ("restart_syscall", 219, 128),
    # Its own signals
    ("rt_sigaction", 13, 134), ("rt_sigprocmask", 14, 135), ("rt_sigreturn", 15, 139),
    ("rt_sigsuspend", 130, 133),
    ("rt_sigtimedwait", 128, 137), ("rt_sigpending", 127, 136), ("sigaltstack", 131, 132),
    ("pause", 34, None), ("alarm", 37, None),
    ("setitimer", 38, 103), ("getitimer", 36, 102),
    # Clocks and identity
    ("time", 201, None), ("gettimeofday", 96, 169), ("clock_gettime", 228, 113),
    ("clock_getres", 229, 114), ("times", 100, 153),
    ("getrusage", 98, 165), ("sysinfo", 99, 179), ("uname", 63, 160), ("getpid", 39, 172),
    ("getppid", 110, 173), ("getpgrp", 111, None),
    ("getpgid", 121, 155), ("getsid", 124, 156), ("getuid", 102, 174), ("geteuid", 107, 175),
    ("getgid", 104, 176), ("getegid", 108, 177),
    ("getgroups", 115, 158), ("getresuid", 118, 148), ("getresgid", 120, 150), ("capget", 125, 90),
    ("getrlimit", 97, 163),
    ("getrandom", 318, 278),
)

_BY_ARGUMENT: tuple[tuple[str, int | None, int | None], ...] = (
    ("open", 2, None), ("openat", 257, 56), ("fcntl", 72, 25), ("ioctl", 16, 29),
    ("prctl", 157, 167), ("prlimit64", 302, 261),
    ("clone", 56, 220), ("kill", 62, 129), ("tgkill", 234, 131),
)

_TO_EXECUTE: tuple[tuple[str, int | None, int | None], ...] = (
    ("execve", 59, 221), ("execveat", 322, 281), ("fork", 57, None), ("vfork", 58, None),
)

# Further calls of a GPU's driver library: processors, pinned memory, timers, and a Unix socket.
_FOR_DEVICES: tuple[tuple[str, int | None, int | None], ...] = (
    ("sched_setaffinity", 203, 122), ("sched_setparam", 142, 118), ("sched_setscheduler", 144, 119),
    ("setpriority", 141, 140),
    ("set_mempolicy", 238, 237), ("mbind", 237, 235), ("mlock", 149, 228), ("mlock2", 325, 284),
    ("munlock", 150, 229),
    ("mincore", 27, 232), ("memfd_create", 319, 279), ("flock", 73, 32),
    ("timerfd_create", 283, 85),
    ("timerfd_settime", 286, 86), ("timerfd_gettime", 287, 87), ("get_robust_list", 274, 100),
    ("bind", 49, 200),
    ("listen", 50, 201), ("accept", 43, 202), ("accept4", 288, 242), ("getsockname", 51, 204),
    ("getpeername", 52, 205),
    ("setsockopt", 54, 208), ("getsockopt", 55, 209), ("shutdown", 48, 210), ("recvfrom", 45, 207),
    ("recvmsg", 47, 212),
    ("sendmsg", 46, 211),
)

_FOR_DEVICES_BY_ARGUMENT: tuple[tuple[str, int | None, int | None], ...] = (
    ("socket", 41, 198), ("socketpair", 53, 199), ("connect", 42, 203), ("sendto", 44, 206),
)

# Their arguments lie behind a pointer that a filter cannot read; libc falls back to clone and
# openat.
_UNREADABLE: tuple[tuple[str, int | None, int | None], ...] = (
    ("clone3", 435, 435), ("openat2", 437, 437),
)
# fmt: on


def _numbers(
    table: tuple[tuple[str, int | None, int | None], ...], machine: str
) -> Mapping[str, int]:
    column = 1 + MACHINES.index(machine)
    return MappingProxyType(
        {str(row[0]): number for row in table if isinstance(number := row[column], int)}
    )


def always(machine: str) -> Mapping[str, int]:
    """Calls that are allowed with any arguments. `machine` is one of MACHINES, here and below."""
    return _numbers(_ALWAYS, machine)


def by_argument(machine: str) -> Mapping[str, int]:
    """Calls that are allowed with certain arguments only."""
    return _numbers(_BY_ARGUMENT, machine)


def to_execute(machine: str) -> Mapping[str, int]:
    """Calls that are allowed only for a job that may execute programs."""
    return _numbers(_TO_EXECUTE, machine)


def for_devices(machine: str) -> Mapping[str, int]:
    """Calls that are allowed only for a process that may use device files."""
    return _numbers(_FOR_DEVICES, machine)


def for_devices_by_argument(machine: str) -> Mapping[str, int]:
    """Calls allowed with certain arguments, for a process that may use device files."""
    return _numbers(_FOR_DEVICES_BY_ARGUMENT, machine)


def unreadable(machine: str) -> Mapping[str, int]:
    """Calls that get ENOSYS."""
    return _numbers(_UNREADABLE, machine)

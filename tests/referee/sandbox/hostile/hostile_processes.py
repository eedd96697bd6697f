"""Attempts on other processes, and to outlive the job. The argument holds process ids of the
parent's side.
"""

import ctypes
import fcntl
import json
import mmap
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

# In the sandbox this folder is on the import path; for the type checker it is a package.
if TYPE_CHECKING:
    from tests.referee.sandbox.hostile.attempt import attempt
else:
    from attempt import attempt

_LIBC = ctypes.CDLL(None, use_errno=True)
_PTRACE_TRACEME, _PTRACE_ATTACH, _PTRACE_SEIZE = 0, 16, 0x4206


def _checked(result: int) -> int:
    if result == -1:
        raise OSError(ctypes.get_errno(), "refused")
    return result


def _each(argument: str, attack: object) -> str:
    """Apply the attack to every process id, the parent's first. Raises the last refusal if all are
    refused.
    """
    refusal: OSError | None = None
    for pid in json.loads(argument):
        try:
            return f"{pid}: {attack(pid)}"  # type: ignore[operator]
        except OSError as error:
            refusal = error
    assert refusal is not None
    raise refusal


@attempt
def read_environment(argument: str, scratch: str) -> object:
    return _each(argument, lambda pid: open(f"/proc/{pid}/environ", "rb").read())


@attempt
def read_command_line(argument: str, scratch: str) -> object:
    return _each(argument, lambda pid: open(f"/proc/{pid}/cmdline", "rb").read())


@attempt
def read_memory(argument: str, scratch: str) -> object:
    return _each(argument, lambda pid: open(f"/proc/{pid}/mem", "rb"))


@attempt
def write_memory(argument: str, scratch: str) -> object:
    return _each(argument, lambda pid: open(f"/proc/{pid}/mem", "r+b"))


@attempt
def list_descriptors(argument: str, scratch: str) -> object:
    return _each(argument, lambda pid: os.listdir(f"/proc/{pid}/fd"))


@attempt
def enter_root(argument: str, scratch: str) -> object:
    return _each(argument, lambda pid: os.listdir(f"/proc/{pid}/root"))


@attempt
def attach(argument: str, scratch: str) -> object:
    return _each(argument, lambda pid: _checked(_LIBC.ptrace(_PTRACE_ATTACH, pid, None, None)))


@attempt
def seize(argument: str, scratch: str) -> object:
    return _each(argument, lambda pid: _checked(_LIBC.ptrace(_PTRACE_SEIZE, pid, None, None)))


@attempt
def copy_memory(argument: str, scratch: str) -> object:
    buffer = ctypes.create_string_buffer(16)
    local = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 16)
    return _each(argument, lambda pid: _checked(_LIBC.process_vm_readv(pid, local, 1, local, 1, 0)))


@attempt
def kill(argument: str, scratch: str) -> object:
    return _each(argument, lambda pid: os.kill(pid, signal.SIGKILL))


@attempt
def stop_group(argument: str, scratch: str) -> object:
    return _each(argument, lambda pid: os.killpg(pid, signal.SIGSTOP))


@attempt
def kill_everything(argument: str, scratch: str) -> None:
    os.kill(-1, signal.SIGKILL)


@attempt
def kill_by_descriptor(argument: str, scratch: str) -> object:
    return _each(argument, lambda pid: signal.pidfd_send_signal(os.pidfd_open(pid), signal.SIGKILL))


@attempt
def kill_thread(argument: str, scratch: str) -> object:
    number = {"x86_64": 234, "aarch64": 131}[os.uname().machine]
    return _each(
        argument, lambda pid: _checked(_LIBC.syscall(number, pid, pid, int(signal.SIGKILL)))
    )


@attempt
def queue_signal(argument: str, scratch: str) -> object:
    return _each(argument, lambda pid: _checked(_LIBC.sigqueue(pid, int(signal.SIGKILL), None)))


@attempt
def signal_by_owned_descriptor(argument: str, scratch: str) -> object:
    read, _ = os.pipe()
    return _each(argument, lambda pid: fcntl.fcntl(read, 8, pid))


@attempt
def take_parent_priority(argument: str, scratch: str) -> object:
    return _each(argument, lambda pid: os.setpriority(os.PRIO_PROCESS, pid, 19))


@attempt
def limit_parent(argument: str, scratch: str) -> object:
    import resource

    return _each(argument, lambda pid: resource.prlimit(pid, resource.RLIMIT_AS, (1, 1)))


@attempt
def fork(argument: str, scratch: str) -> object:
    if os.fork() == 0:
        time.sleep(3600)
    return "forked"


@attempt
def fork_and_detach(argument: str, scratch: str) -> object:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(3600)
        os._exit(0)
    return "detached"


@attempt
def become_session_leader(argument: str, scratch: str) -> None:
    os.setsid()


@attempt
def start_program(argument: str, scratch: str) -> object:
    return subprocess.run(["/bin/sleep", "3600"])


@attempt
def spawn_program(argument: str, scratch: str) -> object:
    return os.posix_spawn("/bin/true", ["true"], {})


@attempt
def replace_self(argument: str, scratch: str) -> object:
    return os.execv(sys.executable, [sys.executable, "-c", "print(1)"])


@attempt
def execute_memory_file(argument: str, scratch: str) -> object:
    return os.memfd_create("program")


@attempt
def use_multiprocessing(argument: str, scratch: str) -> object:
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(3600,))
    process.start()
    return "started"


@attempt
def forget_parent(argument: str, scratch: str) -> object:
    return _checked(_LIBC.prctl(1, 0, 0, 0, 0))


@attempt
def become_dumpable(argument: str, scratch: str) -> object:
    return _checked(_LIBC.prctl(4, 1, 0, 0, 0))


@attempt
def clone_into_new_user(argument: str, scratch: str) -> object:
    number = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
    return _checked(
        _LIBC.syscall(number, ctypes.c_long(0x10000000 | int(signal.SIGCHLD)), 0, 0, 0, 0)
    )


def thread_bomb(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """Start threads until refused, or two thousand, and leave them."""
    threading.stack_size(64 << 10)
    started = 0
    try:
        while started < 2_000:
            threading.Thread(target=time.sleep, args=(3600,)).start()
            started += 1
    except RuntimeError:
        return f"refused after {started}".encode()
    return f"succeeded {started}".encode()


def linger_in_thread(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """Hold a pipe open from a thread that never ends; its end shows when the process is gone."""
    threading.Thread(target=time.sleep, args=(3600,)).start()
    return b"returned"


def linger_at_exit(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """Register what Python runs at exit: it writes to the descriptor it was given, if it ever runs."""
    import atexit

    atexit.register(os.write, fds[0], b"ran at exit")
    return b"returned"


def ignore_signals(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """Refuse to end when asked."""
    for number in range(1, 32):
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_IGN)
    os.write(fds[0], b"deaf")
    while True:
        time.sleep(3600)


def share_with_next(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """Leave a mark in this process's Python: no later job may see it."""
    seen = getattr(sys, "mark", "nothing")
    sys.mark = "left"  # type: ignore[attr-defined]
    mmap.mmap(-1, 4096)[:4] = b"left"
    return str(seen).encode()

"""Attempts to use up what the host has, and to end in every unpleasant way."""

import ctypes
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

# In the sandbox this folder is on the import path; for the type checker it is a package.
if TYPE_CHECKING:
    from tests.referee.sandbox.hostile.attempt import attempt
else:
    from attempt import attempt


def echo(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """A well-behaved job; it finds an empty scratch."""
    if os.listdir(scratch):
        raise ValueError("the scratch directory is not empty")
    with open(os.path.join(scratch, "file"), "wb") as file:
        file.write(payload)
    with open(os.path.join(scratch, "file"), "rb") as file:
        return file.read()


@attempt
def fill_disk(argument: str, scratch: str) -> object:
    written = 0
    chunk = bytes(1 << 20)
    for number in range(64):
        with open(os.path.join(scratch, str(number)), "wb", buffering=0) as file:
            for _ in range(64):
                written += file.write(chunk)
    return written


@attempt
def fill_directory(argument: str, scratch: str) -> object:
    for number in range(200_000):
        os.close(os.open(os.path.join(scratch, str(number)), os.O_CREAT | os.O_WRONLY))
    return "200000 files"


@attempt
def one_huge_file(argument: str, scratch: str) -> object:
    with open(os.path.join(scratch, "huge"), "wb") as file:
        os.posix_fallocate(file.fileno(), 0, 8 << 30)
    return "8 GiB"


@attempt
def many_descriptors(argument: str, scratch: str) -> object:
    return [os.open("/dev/null", os.O_RDONLY) for _ in range(10_000)][-1]


@attempt
def raise_limits(argument: str, scratch: str) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def deep_tree(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """A tree too deep for a path name; cleaning up must cope."""
    for _ in range(1100):
        os.mkdir("d" * 50)
        os.chdir("d" * 50)
    return b"made"


def allocate(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """Python objects without end."""
    kept = []
    while True:
        kept.append(bytearray(16 << 20))


def allocate_natively(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """Anonymous mappings without end, each touched."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    size, mapped = 64 << 20, 0
    while True:
        address = libc.mmap(None, ctypes.c_size_t(size), 3, 0x22, -1, ctypes.c_long(0))
        if address == ctypes.c_void_p(-1).value:
            return f"refused after {mapped}".encode()
        ctypes.memset(address, 1, size)
        mapped += size


def oversized_result(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """More than the limit."""
    return bytes(int(payload))


def flood_results(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """Bytes without end into every descriptor that takes them."""
    while True:
        for fd in range(3, 64):
            try:
                os.write(fd, bytes(1 << 16))
            except OSError:
                continue


def forge_result(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """A well-formed frame of one's own. Allowed, and useless: results are data that the parent
    judges.
    """
    from referee.sandbox.job_frame import build

    for fd in range(3, 64):
        try:
            os.write(fd, build("ok", b"forged"))
        except OSError:
            continue
    time.sleep(3600)
    return b""


def half_a_frame(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """The start of a result whose rest never comes."""
    from referee.sandbox.job_frame import build

    for fd in range(3, 64):
        try:
            os.write(fd, build("ok", bytes(100))[:50])
        except OSError:
            continue
    os._exit(0)


def print_forever(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """On the stream whose descriptor the payload names."""
    while True:
        os.write(int(payload), b"x" * 4096)


def print_much_and_return(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """Less than the limit, more than a pipe holds."""
    sys.stdout.write("line\n" * 100_000)
    sys.stdout.flush()
    return b"returned"


def spin(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """Never return, in as many threads as the payload says."""

    def forever() -> None:
        while True:
            pass

    for _ in range(int(payload or b"1") - 1):
        threading.Thread(target=forever, daemon=True).start()
    forever()
    return b""


def spin_deaf(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """Never return, also when the kernel says that the processor time is up."""
    signal.signal(signal.SIGXCPU, signal.SIG_IGN)
    return spin(payload, scratch, fds)


def sleep(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """Wait without end, having said so on the first descriptor given."""
    if fds:
        os.write(fds[0], b"asleep")
    while True:
        time.sleep(3600)


def wait_for(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """Return what the first descriptor says."""
    return os.read(fds[0], 16)


def told_too_early(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """Go on when the kernel says too early that the processor time is up."""
    os.kill(os.getpid(), signal.SIGXCPU)
    return b"went on"


def exit_quietly(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """End at once, with success."""
    os._exit(0)


def exit_by_exception(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """End as a script would."""
    raise SystemExit(0)


def interrupt(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """An exception that is not an Exception."""
    raise KeyboardInterrupt


def fault(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """Read address zero."""
    return ctypes.string_at(0)


def abort(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """As C's abort."""
    os.abort()


def recurse(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """Exhaust the native stack."""
    sys.setrecursionlimit(1 << 30)
    nested: list[object] = []
    for _ in range(300_000):
        nested = [nested]
    return repr(nested).encode()


def stop_self(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """Stop, so that only the deadline ends it."""
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(3600)
    return b""


def print_escape(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """Terminal control sequences, then an end without a result."""
    sys.stdout.write("\x1b[31mred\x07\x00")
    sys.stdout.flush()
    os._exit(3)


def raise_error(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """A plain failure, with something printed first."""
    print("printed before")
    raise ValueError("the entry failed")


def return_wrong_type(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """Not bytes."""
    return 7  # type: ignore[return-value]


def reach_reference(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """Import our own package. Allowed: it holds no secret, and no input's value is in this process."""
    import referee.verdict

    return f"{referee.verdict.__name__} in a process with {sorted(os.environ)}".encode()


def write_to_given(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """Use a descriptor the job was given."""
    os.write(fds[0], payload)
    return str(len(fds)).encode()

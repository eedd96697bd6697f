"""Attempts on the kernel's wider interface, each a bare system call or two."""

import ctypes
import os
import socket
import sys
import tempfile
from typing import TYPE_CHECKING

# In the sandbox this folder is on the import path; for the type checker it is a package.
if TYPE_CHECKING:
    from tests.referee.sandbox.hostile.attempt import attempt
else:
    from attempt import attempt

_LIBC = ctypes.CDLL(None, use_errno=True)
_COLUMN = {"x86_64": 0, "aarch64": 1}
_NUMBERS = {
    "io_uring_setup": (425, 425),
    "userfaultfd": (323, 282),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "fsopen": (430, 430),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "mount_setattr": (442, 442),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "clone3": (435, 435),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "init_module": (175, 105),
    "kexec_load": (246, 104),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "sethostname": (170, 161),
    "settimeofday": (164, 170),
    "personality": (135, 92),
    "seccomp": (317, 277),
    "ptrace": (101, 117),
    "kcmp": (312, 272),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "process_madvise": (440, 440),
    "setuid": (105, 146),
    "setgid": (106, 144),
    "setgroups": (116, 159),
    "capset": (126, 91),
    "setpgid": (109, 154),
    "inotify_init1": (294, 26),
    "fanotify_init": (300, 262),
    "quotactl": (179, 60),
    "syslog": (103, 116),
    "acct": (163, 89),
    "vmsplice": (278, 75),
    "mlockall": (151, 230),
    "io_setup": (206, 0),
    "sched_setaffinity": (203, 122),
    "ioprio_set": (251, 30),
    "landlock_restrict_self": (446, 446),
    "openat2": (437, 437),
}


def names(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """Those of the calls in `payload` (one a line) that got past the filter: answered neither EPERM
    nor ENOSYS.
    """
    passed = []
    for name in payload.decode().split():
        ctypes.set_errno(0)
        arguments = [ctypes.c_long(argument) for argument in (-1, 0, 0, 0, 0, 0)]
        result = _LIBC.syscall(
            ctypes.c_long(_NUMBERS[name][_COLUMN[os.uname().machine]]), *arguments
        )
        number = ctypes.get_errno()
        if result != -1 or number not in (1, 38):
            passed.append(f"{name}: {result} errno {number}")
    return "\n".join(passed).encode()


def known(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """The names of all the calls above."""
    return "\n".join(_NUMBERS).encode()


@attempt
def connect_tcp(argument: str, scratch: str) -> object:
    return socket.create_connection(("127.0.0.1", int(argument)), timeout=5)


@attempt
def listen_tcp(argument: str, scratch: str) -> object:
    return socket.create_server(("127.0.0.1", 0))


@attempt
def send_udp(argument: str, scratch: str) -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        return sender.sendto(b"x", ("127.0.0.1", int(argument)))


@attempt
def resolve_name(argument: str, scratch: str) -> object:
    return socket.getaddrinfo("example.org", 80)


@attempt
def connect_unix_path(argument: str, scratch: str) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(argument)


@attempt
def connect_unix_abstract(argument: str, scratch: str) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("\0" + argument)


@attempt
def listen_unix(argument: str, scratch: str) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.join(scratch, "socket"))


@attempt
def pair_of_sockets(argument: str, scratch: str) -> object:
    return socket.socketpair()


@attempt
def netlink(argument: str, scratch: str) -> object:
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)


@attempt
def map_program(argument: str, scratch: str) -> object:
    """Run native code from scratch: nothing is gained by it, but files there need not be executable
    either.
    """
    with tempfile.NamedTemporaryFile(dir=scratch) as file:
        import mmap

        file.write(b"\xc3" * 4096)
        file.flush()
        return mmap.mmap(
            file.fileno(), 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC, flags=mmap.MAP_PRIVATE
        )


def self_view(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """Everything a job can learn from its own environment, arguments and descriptors."""
    import json

    descriptors = {}
    for fd in range(1024):
        try:
            descriptors[fd] = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue
    try:
        with open("/proc/self/environ", "rb") as file:
            block = file.read().decode()
    except OSError:
        block = ""
    answer = {
        "environment": dict(os.environ),
        "block": block,
        "arguments": sys.orig_argv,
        "descriptors": descriptors,
        "open": _open_fds(),
    }
    return json.dumps(answer).encode()


def _open_fds() -> list[int]:
    found = []
    for fd in range(1024):
        try:
            os.fstat(fd)
        except OSError:
            continue
        found.append(fd)
    return found

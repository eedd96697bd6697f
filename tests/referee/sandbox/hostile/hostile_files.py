"""Attempts on files outside the scratch directory. The argument is the path of the file under
attack.
"""

import ctypes
import mmap
import os
import tempfile
from typing import TYPE_CHECKING

# In the sandbox this folder is on the import path; for the type checker it is a package.
if TYPE_CHECKING:
    from tests.referee.sandbox.hostile.attempt import attempt
else:
    from attempt import attempt

_LIBC = ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> int:
    if result == -1:
        raise OSError(ctypes.get_errno(), "refused")
    return result


@attempt
def read(path: str, scratch: str) -> object:
    with open(path, "rb") as file:
        return file.read()


@attempt
def list_directory(path: str, scratch: str) -> object:
    return os.listdir(os.path.dirname(path))


@attempt
def walk_up(path: str, scratch: str) -> object:
    os.chdir("/")
    with open(os.path.join("proc/self/cwd", path.lstrip("/")), "rb") as file:
        return file.read()


@attempt
def read_through_symbolic_link(path: str, scratch: str) -> object:
    os.symlink(path, os.path.join(scratch, "link"))
    with open(os.path.join(scratch, "link"), "rb") as file:
        return file.read()


@attempt
def read_through_hard_link(path: str, scratch: str) -> object:
    os.link(path, os.path.join(scratch, "link"))
    with open(os.path.join(scratch, "link"), "rb") as file:
        return file.read()


@attempt
def read_by_mapping(path: str, scratch: str) -> object:
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        return bytes(mapped)


@attempt
def append(path: str, scratch: str) -> object:
    with open(path, "ab") as file:
        return file.write(b"x")


@attempt
def overwrite(path: str, scratch: str) -> object:
    return os.open(path, os.O_WRONLY | os.O_TRUNC)


@attempt
def create_beside(path: str, scratch: str) -> object:
    return os.open(path + ".new", os.O_WRONLY | os.O_CREAT, 0o600)


@attempt
def make_directory_beside(path: str, scratch: str) -> None:
    os.mkdir(path + ".directory")


@attempt
def link_beside(path: str, scratch: str) -> None:
    os.symlink("/etc", path + ".link")


@attempt
def truncate_by_name(path: str, scratch: str) -> None:
    os.truncate(path, 0)


@attempt
def truncate_while_reading(path: str, scratch: str) -> object:
    return os.open(path, os.O_RDONLY | os.O_TRUNC)


@attempt
def delete(path: str, scratch: str) -> None:
    os.unlink(path)


@attempt
def move_into_scratch(path: str, scratch: str) -> None:
    os.rename(path, os.path.join(scratch, "moved"))


@attempt
def replace_from_scratch(path: str, scratch: str) -> None:
    source = os.path.join(scratch, "source")
    with open(source, "wb") as file:
        file.write(b"forged")
    os.replace(source, path)


@attempt
def change_mode(path: str, scratch: str) -> None:
    os.chmod(path, 0o777)


@attempt
def change_owner(path: str, scratch: str) -> None:
    os.chown(path, os.getuid(), os.getgid())


@attempt
def change_times(path: str, scratch: str) -> None:
    os.utime(path, (0, 0))


@attempt
def set_attribute(path: str, scratch: str) -> None:
    os.setxattr(path, "user.mark", b"x")


@attempt
def open_by_handle(path: str, scratch: str) -> object:
    handle = (ctypes.c_uint32 * 34)(128)
    mount = ctypes.c_int()
    _checked(_LIBC.name_to_handle_at(-100, os.fsencode(path), handle, ctypes.byref(mount), 0))
    return _checked(_LIBC.open_by_handle_at(-100, handle, os.O_RDONLY))


@attempt
def make_device(path: str, scratch: str) -> object:
    os.mknod(os.path.join(scratch, "disk"), 0o60600, os.makedev(254, 0))
    return os.open(os.path.join(scratch, "disk"), os.O_RDONLY)


@attempt
def run_from_scratch(path: str, scratch: str) -> object:
    script = os.path.join(scratch, "script")
    with open(script, "wb", opener=lambda name, flags: os.open(name, flags, 0o777)) as file:
        file.write(b"#!/bin/sh\n")
    return os.execv(script, [script])


@attempt
def write_shared_memory_directory(path: str, scratch: str) -> object:
    return os.open("/dev/shm/left-behind", os.O_WRONLY | os.O_CREAT, 0o600)


@attempt
def write_kernel_setting(path: str, scratch: str) -> object:
    return os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY)


@attempt
def write_to_tmp(path: str, scratch: str) -> object:
    return os.open("/tmp/left-behind", os.O_WRONLY | os.O_CREAT, 0o600)


def make_temporary_file(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """Allowed: without being told where, a library makes its temporary files in the scratch
    directory.
    """
    with tempfile.NamedTemporaryFile() as file:
        return b"in scratch" if os.path.dirname(file.name) == scratch else file.name.encode()


def shadow_module(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """Allowed, and useless: the module lies in a directory that no other job sees."""
    with open(os.path.join(scratch, "json.py"), "w") as file:
        file.write("raise SystemExit('shadowed')")
    return b"written"

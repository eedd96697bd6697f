"""The address of a session: a Unix socket in a folder of this user only, with a lock file.

The lock shows whether a session runs, also after a kill, when the socket's file remains. This
module opens no connection to another machine.
"""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kmint_tui import paths
from kmint_tui.errors import EnvironmentUnfit, UsageError, storage_error

Connection = socket.socket

NAME, LOCK = "session.sock", "session.lock"
SEND_SECONDS = 20
"""A client that reads nothing for so long is let go."""


def socket_file() -> Path:
    """The socket of this user's session."""
    return paths.runtime_dir() / NAME


@contextmanager
def listening() -> Iterator[socket.socket]:
    """A socket that only this user can connect to; its file is removed at the end.

    Raises UsageError if a session already runs, EnvironmentUnfit if others could use the folder.
    """
    folder = paths.private_dir(paths.runtime_dir())
    with _opened(folder) as place:
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                fix = "`kmint serve --status` shows it, `kmint serve --stop` ends it"
                raise UsageError(
                    f"a session runs already at {folder / NAME}",
                    title="one session a user",
                    fix=fix,
                ) from None
            with suppress(FileNotFoundError):
                os.unlink(NAME, dir_fd=place)
            with _bound(place, folder) as listener:
                yield listener
        finally:
            os.close(lock)


@contextmanager
def _bound(place: int, folder: Path) -> Iterator[socket.socket]:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # No other user may connect between the making of the file and a change of its mode.
        before = os.umask(0o177)
        try:
            listener.bind(_short(place))
            listener.listen(64)
        except OSError as error:
            raise storage_error(folder / NAME, error) from error
        finally:
            os.umask(before)
        yield listener
    finally:
        listener.close()
        with suppress(OSError):
            os.unlink(NAME, dir_fd=place)


def connected() -> socket.socket | None:
    """A connection to this user's session; None if none runs. Raises EnvironmentUnfit."""
    folder = paths.runtime_dir()
    if not folder.is_dir():
        return None
    with _opened(folder) as place:
        found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            found.connect(_short(place))
        except OSError:
            found.close()
            return None
    if not is_own(found):
        found.close()
        fix = "end it, and start your own with `kmint serve`"
        raise EnvironmentUnfit(f"the session at {folder / NAME} belongs to another user", fix=fix)
    return found


def is_own(connection: socket.socket) -> bool:
    """True if the process at the other end belongs to this user."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, user, _ = struct.unpack("3i", found)
    return bool(user == os.getuid())


def limit_sending(connection: socket.socket) -> None:
    """Make a blocked send raise OSError after a time limit."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_SECONDS, 0))


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """The folder, which must belong to this user only. Raises EnvironmentUnfit."""
    try:
        place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise storage_error(folder, error) from error
    try:
        found = os.fstat(place)
        if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
            fix = f"`chmod 700 {folder}`, or set XDG_RUNTIME_DIR or KMINT_HOME to a folder of yours"
            raise EnvironmentUnfit(
                f"other users can reach {folder}, where the session's socket belongs", fix=fix
            )
        yield place
    finally:
        os.close(place)


def _short(place: int) -> str:
    """The socket's path through the open folder: the address of a Unix socket has at most 107
    bytes.
    """
    return f"/proc/self/fd/{place}/{NAME}"

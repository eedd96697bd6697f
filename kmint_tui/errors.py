"""The refusals of kmint as exceptions, each with a title, a message and, if known, a fix.

    KmintError
    ├── UsageError          wrong request: unknown operation, unreadable file, bad option;
    │   └── ConfigError     wrong settings file;
    ├── EnvironmentUnfit    this machine or installation cannot do it;
    ├── ModelError          a model is missing, corrupt or of a kind that kmint cannot run;
    │   └── OfflineRefusal  the request needs the network, and kmint must stay offline;
    ├── TimedOut            a part did not answer within its limit;
    └── StorageError        no space, or no permission to write.

The caller decides how to show them and which exit code to use (`cli/streams.py`).
"""

from __future__ import annotations

import errno
from pathlib import Path

_NO_SPACE = {
    errno.ENOSPC: "no space left on the device",
    errno.EDQUOT: "disk quota exceeded",
    errno.EFBIG: "file size limit reached",
}
_NO_ACCESS = {
    errno.EACCES: "permission denied",
    errno.EPERM: "operation not permitted",
    errno.EROFS: "the file system is read-only",
}


class KmintError(Exception):
    """Base of all refusals.

    `message` states the problem, `fix` the remedy; an unknown remedy is empty.
    """

    title = "kmint cannot go on"

    def __init__(self, message: str, *, fix: str = "", title: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix
        if title is not None:
            self.title = title


class UsageError(KmintError):
    """The request itself is wrong; asking differently helps."""

    title = "wrong request"


class ConfigError(UsageError):
    """A settings file cannot be read, or holds an unknown key or a wrong value."""

    title = "wrong configuration"


class EnvironmentUnfit(KmintError):
    """This machine or installation lacks something the request needs."""

    title = "environment unfit"


class ModelError(KmintError):
    """A model is missing, corrupt, or of a kind that kmint cannot run."""

    title = "model not usable"


class OfflineRefusal(ModelError):
    """The request needs the network, and kmint must stay offline."""

    title = "offline"


class TimedOut(KmintError):
    """A part of kmint did not answer within its limit."""

    title = "timed out"


class StorageError(KmintError):
    """Something could not be written: no space, or no permission."""

    title = "cannot write"


def storage_error(path: Path, error: OSError) -> StorageError:
    """`error`, met while writing `path`, as a StorageError that names the place and the way out."""
    code = error.errno or 0
    if code in _NO_SPACE:
        return StorageError(
            f"{path}: {_NO_SPACE[code]}",
            fix="free some space, or choose a place with room (KMINT_HOME moves kmint's own)",
        )
    if code in _NO_ACCESS:
        return StorageError(
            f"{path}: {_NO_ACCESS[code]}",
            fix="choose a place you may write to (KMINT_HOME moves kmint's own)",
        )
    return StorageError(
        f"{path}: {error.strerror or error}",
        fix="check the path and the disk (KMINT_HOME moves kmint's own files)",
    )


def is_full(error: OSError) -> bool:
    """True if `error` means that no space is left."""
    return error.errno in _NO_SPACE

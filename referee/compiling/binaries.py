"""Compiled kernels: the input of a launch except the plan, a strict parser of worker reports, and a
cache of files. Only the judge writes entries of the cache, after it has checked them.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import fcntl
import json
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

MAX_IMAGE_BYTES = 16 << 20
MAX_SHARED_BYTES = 1 << 20
MAX_PARAMETERS = 256
MAX_LINES = 1 << 16
KIND = re.compile(r"(\*k?)?(fp8\w{1,8}|fp16|fp32|fp64|bf16|[iu](1|8|16|32|64))")
# The answer of a compile worker when a tool of the compiler was killed from outside: the kernels'
# state is unknown.
TOOL_LOST = b'"tool lost"'
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")


class BinaryError(ValueError):
    """A compile worker's report is malformed."""


@dataclass(frozen=True, kw_only=True)
class Binary:
    """One kernel compiled for one specialisation.

    `parameters` are Triton's types ("*fp16", "i32", "fp32") of the passed arguments in order,
    without those that became constants. `paths` gives each one's position in the launch's
    arguments, followed by positions within tuples. Two null pointers follow them in every launch
    (scratch that no accepted kernel uses). `shared` is dynamic shared memory in bytes. `registers`
    and `spills` (bytes) are per thread, or None if ptxas did not report them. `unread` are lines of
    the module with atomics whose results are unused (`ttgir`).
    """

    kernel: str
    key: str
    image: bytes
    name: str
    shared: int
    num_warps: int
    registers: int | None
    spills: int | None
    parameters: tuple[str, ...]
    paths: tuple[tuple[int, ...], ...]
    unread: tuple[int, ...] = ()


@dataclass(frozen=True)
class Binaries:
    """A plan's compiled kernels by (step, configuration), and the reasons for missing ones."""

    found: Mapping[tuple[int, int], Binary]
    dropped: Mapping[tuple[int, int], str]


_FIELDS = tuple(one.name for one in fields(Binary) if one.name not in ("kernel", "key"))


def unread_lines(binaries: Iterable[Binary]) -> frozenset[int]:
    """Lines with an atomic whose result is unused in at least one of these kernels."""
    return frozenset(line for binary in binaries for line in binary.unread)


def dump_binary(binary: Binary) -> dict[str, Any]:
    """The JSON form of a compiled kernel, without its kernel name and key."""
    found = {name: vars(binary)[name] for name in _FIELDS}
    return found | {"image": base64.b64encode(binary.image).decode()}


def parse_binary(data: object, kernel: str, key: str) -> Binary:
    """The inverse of `dump_binary`. Raises BinaryError for anything else."""
    if not isinstance(data, dict) or data.keys() != set(_FIELDS):
        raise BinaryError("a compiled kernel does not have the expected fields")
    name, unread = data["name"], data["unread"]
    parameters, paths = data["parameters"], data["paths"]
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise BinaryError("a compiled kernel has no proper name")
    lists = isinstance(parameters, list) and isinstance(paths, list)
    if not lists or len(parameters) != len(paths) or len(parameters) > MAX_PARAMETERS:
        raise BinaryError("a compiled kernel's parameters are not listed")
    if not all(isinstance(kind, str) and KIND.fullmatch(kind) for kind in parameters):
        raise BinaryError("a compiled kernel has a parameter of a kind that no plan can pass")
    if not isinstance(unread, list) or len(unread) > MAX_LINES:
        raise BinaryError("a compiled kernel's atomics are not listed")
    return Binary(
        kernel=kernel,
        key=key,
        image=_image(data["image"]),
        name=name,
        shared=_number(data["shared"], MAX_SHARED_BYTES),
        num_warps=_number(data["num_warps"], 64),
        registers=None if data["registers"] is None else _number(data["registers"], 1024),
        spills=None if data["spills"] is None else _number(data["spills"], 1 << 30),
        parameters=tuple(parameters),
        paths=tuple(_path(path) for path in paths),
        unread=tuple(_number(line, MAX_LINES) for line in unread),
    )


def _image(data: object) -> bytes:
    if not isinstance(data, str) or len(data) > MAX_IMAGE_BYTES:
        raise BinaryError("a compiled kernel's image is missing or too large")
    try:
        image = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise BinaryError("a compiled kernel's image is unreadable") from None
    if not image.startswith(b"\x7fELF"):
        raise BinaryError("a compiled kernel's image is not a cubin")
    return image


def _number(data: object, limit: int) -> int:
    if isinstance(data, bool) or not isinstance(data, int) or not 0 <= data <= limit:
        raise BinaryError("a compiled kernel reports a number that is out of range")
    return data


def _path(data: object) -> tuple[int, ...]:
    if not isinstance(data, list) or not 1 <= len(data) <= 8:
        raise BinaryError("a compiled kernel's parameter has no place among the arguments")
    return tuple(_number(position, MAX_PARAMETERS) for position in data)


MAX_ENTRIES = 4096
UNFINISHED = "unfinished"


class CompileCache:
    """A directory with one file per compiled kernel. A full one loses its oldest quarter."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def load(self, key: str, kernel: str) -> Binary | None:
        """The kernel with this key, or None; an unreadable entry counts as missing."""
        try:
            text = (self._directory / f"{key}.json").read_bytes()
            return parse_binary(json.loads(text), kernel, key)
        except (OSError, ValueError, RecursionError, BinaryError):
            return None

    def store(self, binary: Binary) -> None:
        """Keeps a kernel. In an unwritable directory, the next judgement compiles again."""
        try:
            unfinished = self._directory / UNFINISHED
            unfinished.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=unfinished)
            with os.fdopen(handle, "w") as file:
                # Another process's `prune` removes a part whose lock is free, because its writer
                # was killed.
                fcntl.flock(handle, fcntl.LOCK_EX)
                json.dump(dump_binary(binary), file)
                file.flush()
                os.replace(name, self._directory / f"{binary.key}.json")
        except OSError:
            return

    def prune(self) -> None:
        """Drops the oldest quarter of too many entries, and files of killed writers."""
        try:
            files = [entry for entry in os.scandir(self._directory) if entry.is_file()]
            entries = sorted((entry.stat().st_mtime, entry.path) for entry in files)
            for _, path in entries[: len(entries) // 4] if len(entries) > MAX_ENTRIES else []:
                os.unlink(path)
            for part in os.scandir(self._directory / UNFINISHED):
                _drop_abandoned(part.path)
        except OSError:
            return


def _drop_abandoned(path: str) -> None:
    with contextlib.suppress(OSError), open(path, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)

"""Compiled kernels as data: what a launch needs besides a plan, and the strict parser of what a compile worker reports."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

MAX_IMAGE_BYTES = 16 << 20
MAX_SHARED_BYTES = 1 << 20
MAX_PARAMETERS = 256
MAX_LINES = 1 << 16
KIND = re.compile(r"(\*k?)?(fp8\w{1,8}|fp16|fp32|fp64|bf16|[iu](1|8|16|32|64))")
# What a compile worker answers when a program that the compiler ran was ended from outside: nothing is known of the kernels.
TOOL_LOST = b'"tool lost"'
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")


class BinaryError(ValueError):
    """A compile worker's report is not one."""


@dataclass(frozen=True)
class Binary:
    """One kernel compiled for one specialisation.

    `parameters` are Triton's types ("*fp16", "i32", "fp32") of the arguments that are passed, in order; those that became
    constants are not among them. `paths` tells where each is found: the position in the launch's arguments, followed by
    positions within tuples. Two null pointers follow them in every launch (scratch that no accepted kernel uses).
    `shared` is dynamic shared memory in bytes; `registers` and `spills` (bytes) are per thread, None if ptxas did not say.
    `unread` are lines of the module with atomics whose results nothing reads (`ttgir`).
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
    """A plan's compiled kernels by (step number, configuration number), and why configurations are missing."""

    found: Mapping[tuple[int, int], Binary]
    dropped: Mapping[tuple[int, int], str]


def unread_lines(binaries: Iterable[Binary]) -> frozenset[int]:
    """Where an atomic's result is read in none, or not in all, of these kernels."""
    return frozenset(line for binary in binaries for line in binary.unread)


def dump_binary(binary: Binary) -> dict[str, Any]:
    """The JSON form of a compiled kernel without its kernel name and key, which the reader knows."""
    return {
        "image": base64.b64encode(binary.image).decode(),
        "name": binary.name,
        "shared": binary.shared,
        "num_warps": binary.num_warps,
        "registers": binary.registers,
        "spills": binary.spills,
        "parameters": list(binary.parameters),
        "paths": [list(path) for path in binary.paths],
        "unread": list(binary.unread),
    }


def parse_binary(data: object, kernel: str, key: str) -> Binary:
    """The inverse of `dump_binary`. Raises BinaryError for anything else."""
    fields = ("image", "name", "shared", "num_warps", "registers", "spills", "parameters", "paths", "unread")
    if not isinstance(data, dict) or len(data) != len(fields) or any(field not in data for field in fields):
        raise BinaryError("a compiled kernel does not have the expected fields")
    name, parameters, paths, unread = data["name"], data["parameters"], data["paths"], data["unread"]
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise BinaryError("a compiled kernel has no proper name")
    if not isinstance(parameters, list) or not isinstance(paths, list) or len(parameters) != len(paths) or len(parameters) > MAX_PARAMETERS:
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

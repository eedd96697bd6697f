"""A reader as `fuzz_readers.py` knows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.fuzz_inputs import Mutate

Read = Callable[[bytes], object]


@dataclass(frozen=True)
class Reader:
    """`opened` makes the reader in an empty folder, which is also KMINT_HOME, and returns it with
    its valid inputs."""

    name: str
    mutate: Mutate
    opened: Callable[[Path], tuple[Read, list[bytes]]]
    errors: tuple[str, ...] = ("KmintError",)


def through(file: Path, read: Callable[[], object]) -> Read:
    """A reader of bytes that come as this file."""

    def reading(data: bytes) -> None:
        file.write_bytes(data)
        read()

    return reading

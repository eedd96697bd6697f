"""Jobs for the tests of `referee.sandbox.zygote`, run in the sandbox."""

import os


def begin_then_wait(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """Writes a byte to the first descriptor, then waits for one from the second."""
    os.write(fds[0], b"!")
    return os.read(fds[1], 1)

"""How the hostile entries report: what they managed, or how it was refused."""

import errno
import functools
from collections.abc import Callable

Entry = Callable[[bytes, str, tuple[int, ...]], bytes]
Attack = Callable[[str, str], object]


def attempt(attack: Attack) -> Entry:
    """Make an entry of `attack(argument, scratch)`; an OSError is a refusal, anything else is told
    as it is.
    """

    @functools.wraps(attack)
    def entry(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
        try:
            return f"succeeded {attack(payload.decode(), scratch)!r}".encode()
        except OSError as error:
            return f"refused {errno.errorcode.get(error.errno or 0, error.errno)}".encode()

    return entry

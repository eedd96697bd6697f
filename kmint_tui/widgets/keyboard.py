"""Input from the terminal: a byte that is no UTF-8 becomes a replacement character and ends
nothing.

Textual decodes strictly. A pasted binary file or a terminal set to Latin-1 would end the
application, and with it the session under way.
"""

from __future__ import annotations

import codecs
import sys

from textual.driver import Driver


def read_anything(driver: type[Driver]) -> type[Driver]:
    """`driver`, whose module from now on decodes leniently. A driver whose module does not decode
    stays as it is.
    """
    module = sys.modules[driver.__module__]
    if getattr(module, "getincrementaldecoder", None) is codecs.getincrementaldecoder:
        setattr(module, "getincrementaldecoder", _lenient)  # noqa: B010 - a module has no such attribute for the type checker
    return driver


def _lenient(encoding: str) -> codecs._IncrementalDecoder:
    made = codecs.getincrementaldecoder(encoding)

    def decoder(errors: str = "replace") -> codecs.IncrementalDecoder:
        return made(errors)

    return decoder

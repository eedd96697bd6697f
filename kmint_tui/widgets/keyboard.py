"""What comes in from the terminal: bytes that are no UTF-8 are shown as a replacement character and end nothing.

Textual decodes strictly, so that a pasted binary file or a terminal set to Latin-1 would end the application and the session
that is being minted in it.
"""

from __future__ import annotations

import codecs
import sys

from textual.driver import Driver


def read_anything(driver: type[Driver]) -> type[Driver]:
    """`driver`, whose module from now on decodes leniently. One that does not decode is returned as it is."""
    module = sys.modules[driver.__module__]
    if getattr(module, "getincrementaldecoder", None) is codecs.getincrementaldecoder:
        setattr(module, "getincrementaldecoder", _lenient)  # noqa: B010 - a module has no such attribute for the type checker
    return driver


def _lenient(encoding: str) -> codecs._IncrementalDecoder:
    made = codecs.getincrementaldecoder(encoding)

    def decoder(errors: str = "replace") -> codecs.IncrementalDecoder:
        return made(errors)

    return decoder

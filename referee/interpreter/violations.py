"""Exceptions that end a launch for a memory access.

`kind` is the word that the worker reports to the judge. Runs in the interpreter worker.
"""

from __future__ import annotations

from referee.interpreter.race_detector import Race


class OutOfBounds(Exception):
    """A lane reached outside every buffer; the message names program, argument and side."""

    kind = "out_of_bounds"


class Misaligned(Exception):
    """A lane reached an address that is no multiple of its item size; a GPU fails there."""

    kind = "misaligned"


class InputChanged(Exception):
    """A lane gave an element of an input another value; the message names program and argument."""

    kind = "input_changed"


class UninitializedRead(Exception):
    """A lane read memory that nothing has written; the message names program and argument."""

    kind = "unwritten"


Violation = OutOfBounds | Misaligned | Race | InputChanged | UninitializedRead

"""Exceptions for references and inputs that cannot be used, each with a one-line reason."""

from __future__ import annotations


class UnusableReference(ValueError):
    """The file, the function or its inputs cannot be a reference; the message gives the reason."""


class InputError(UnusableReference):
    """The text of `--input`, `--fix` or a recorded call is wrong; the message quotes it."""


class TooLarge(UnusableReference):
    """This machine cannot judge the sizes; the message names the memory that they need."""


def one_line(error: BaseException) -> str:
    """A failure of the user's code in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())

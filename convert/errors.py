"""The errors of a conversion, as a small tree.

ConvertError
├── SourceError        a base or adapter folder is missing, incomplete or malformed;
├── AdapterError       an adapter needs a change that cannot be merged exactly;
├── ArchitectureError  the model's shape or a setting is unknown to kmint;
├── VocabError         the tokenizer cannot be carried over faithfully;
├── SpaceError         the disk is full, or the target cannot be written;
└── VerifyError        the written file differs from the source.
"""

from __future__ import annotations


class ConvertError(Exception):
    """A conversion cannot continue: `reason` is the cause, `fix` is advice."""

    def __init__(self, reason: str, fix: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.fix = fix


class SourceError(ConvertError):
    """A base or adapter folder is missing, incomplete or malformed."""


class AdapterError(ConvertError):
    """An adapter needs a change that cannot be merged exactly."""


class ArchitectureError(ConvertError):
    """The model's shape or a setting is unknown to kmint."""


class VocabError(ConvertError):
    """The tokenizer cannot be carried over faithfully."""


class SpaceError(ConvertError):
    """The disk is full, or the target cannot be written."""


class VerifyError(ConvertError):
    """The written file differs from the source."""

"""Everything that can go wrong in a conversion, as a small tree.

ConvertError
├── SourceError        a base or adapter folder is missing, incomplete or malformed
├── AdapterError       an adapter asks for something that cannot be merged exactly
├── ArchitectureError  a model shape or setting that kmint does not know
├── VocabError         a tokenizer that cannot be carried over faithfully
├── SpaceError         not enough disk, or the target cannot be written
└── VerifyError        the written file does not say what the source says
"""

from __future__ import annotations


class ConvertError(Exception):
    """A conversion cannot go on: `reason` says what and why, `fix` what to do about it."""

    def __init__(self, reason: str, fix: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.fix = fix


class SourceError(ConvertError):
    """A base or adapter folder is missing, incomplete or malformed."""


class AdapterError(ConvertError):
    """An adapter asks for something that cannot be merged exactly."""


class ArchitectureError(ConvertError):
    """A model shape or setting that kmint does not know."""


class VocabError(ConvertError):
    """A tokenizer that cannot be carried over faithfully."""


class SpaceError(ConvertError):
    """Not enough disk, or the target cannot be written."""


class VerifyError(ConvertError):
    """The written file does not say what the source says."""

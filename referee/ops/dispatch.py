"""Base class of modes that watch torch's operations while a function runs."""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode


class Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that does not import torch's compiler."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # If dynamo is skipped, torch imports its compiler (two seconds) at the first operation.
        return False

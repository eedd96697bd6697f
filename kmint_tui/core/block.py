"""The name of an operation from the parts of a block: norm, residual, one or two activations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from referee.ops import Op, get

NORMS: tuple[tuple[str, str], ...] = (("RMSNorm", "rmsnorm"), ("LayerNorm", "layernorm"))


@dataclass(frozen=True)
class Block:
    """The parts of a block. `second` needs a `first`; with neither the block is the normalisation
    alone.
    """

    norm: Literal["rmsnorm", "layernorm"] = "rmsnorm"
    residual: bool = False
    first: str | None = None
    second: str | None = None

    @property
    def name(self) -> str:
        """The operation's public name, such as `add_rmsnorm_silu`."""
        acts = [act for act in (self.first, self.second) if act]
        return "_".join([*(["add"] if self.residual else []), self.norm, *acts])

    @property
    def op(self) -> Op:
        """The operation; every block of these parts is one."""
        return get(self.name)

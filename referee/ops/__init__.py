"""The op catalogue: names, signatures, formulas, cells and prompt texts. Importing it does not import torch.

The trusted references are in `referee.ops.reference`, inputs in `referee.ops.values`, both together in `referee.ops.task`.
"""

from referee.ops.catalogue import UnknownOp, catalogue, get
from referee.ops.cells import cells
from referee.ops.prompt_text import PromptText, card_text, trained_text
from referee.ops.signatures import signature
from referee.ops.spec import Cell, Op, TensorSpec

__all__ = [
    "Cell",
    "Op",
    "PromptText",
    "TensorSpec",
    "UnknownOp",
    "card_text",
    "catalogue",
    "cells",
    "get",
    "signature",
    "trained_text",
]

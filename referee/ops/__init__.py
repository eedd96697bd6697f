"""The operation catalogue: names, signatures, formulas, cells and prompt texts. Torch-free.

The trusted references are in `referee.ops.reference`, the inputs in `referee.ops.values`, and both
together in `referee.ops.task`.
"""

from referee.ops.catalogue import UnknownOp, catalogue, functions, get, listed
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
    "functions",
    "get",
    "listed",
    "signature",
    "trained_text",
]

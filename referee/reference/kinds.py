"""The kind of an operand's values: a recipe and its scale, from the text of `--input` or an
example.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from referee.ops.operand_recipes import HALVES, PAIRS
from referee.ops.torch_compat import computable
from referee.reference.inputs import TensorInput, Values
from referee.reference.unusable import InputError

MOST_LISTED, MOST_FLOATS, SPARSE = 64, 8, 4
MOST_SEEN = 1 << 24
OWN = "own"
"""The recipe of an operand that keeps the example's values."""
FEW = "range:0:1"
"""The recipe of masks, and of integers without a range until trials show their meaning."""
USUAL_INTEGERS = {"int8": "range:-128:127", "uint8": "range:0:255"}
OTHER_INTEGERS, SIGNED_INTEGERS = "range:0:99", "range:-99:99"
WIDE_INTEGERS = {
    dtype: f"range:{-(1 << bits)}:{1 << bits}"
    for dtype, bits in (("int16", 12), ("int32", 26), ("int64", 40))
}
"""Integers that fewer bits or float32 do not hold, as a kernel that converts them shows."""


@dataclass(frozen=True)
class Kind:
    """A recipe, the scale of its values, and whether the text leaves the values open.

    `tie` says which elements of a row are equal (`operand_recipes.TIES`).
    """

    recipe: str
    scale: float = 1.0
    open: bool = False
    tie: str = ""

    def tied(self, recipe: str) -> str:
        """Another recipe for this operand, with the same elements equal."""
        return recipe if recipe == OWN else recipe + self.tie

    @property
    def scaled(self) -> bool:
        """Whether the values have a scale."""
        return self.recipe in ("normal", "uniform")


def kind_of_text(tensor: TensorInput) -> Kind:
    """The kind that `--input` gives a tensor whose sizes are numbers. Raises InputError."""
    values = tensor.values
    if tensor.dtype == "bool":
        return Kind(FEW)
    whole = "int" in tensor.dtype
    if values.kind == "among":
        return Kind(f"choice:{joined(values.among)}")
    if values.kind == "distinct":
        count = tensor.dims[-1].plus if tensor.dims else 1
        return Kind(f"distinct:{count}:{count}")
    if values.kind == "range":
        return _of_range(tensor, values, whole)
    return Kind(FEW, open=True) if whole else Kind(values.kind or "normal")


def _of_range(tensor: TensorInput, values: Values, whole: bool) -> Kind:
    low, high = values.low, values.high
    assert isinstance(low, (int, float)) and isinstance(high, (int, float))
    if not low < high:
        raise InputError(f"--input {tensor}: a range goes from a smaller number to a larger one")
    if not whole:
        if values.among:
            raise InputError(f"--input {tensor}: further values go with a range of integers only")
        return Kind(f"between:{float(low)!r}:{float(high)!r}")
    if low == 0:
        return Kind(":".join(["index", str(high), *map(str, values.among)]))
    if values.among:
        raise InputError(f"--input {tensor}: further values go with a range that begins at 0 only")
    return Kind(f"range:{low}:{int(high) - 1}")


def kind_of_example(tensor: Tensor) -> Kind:
    """The kind of an example's values; for a very large one, of its first elements."""
    if tensor.numel() > MOST_SEEN:
        tensor = tensor.flatten()[:MOST_SEEN]
    if tensor.dtype == torch.bool:
        return Kind(FEW)
    if tensor.numel() == 0:
        return Kind("normal" if tensor.is_floating_point() else FEW)
    tensor = computable(tensor)
    if not tensor.is_floating_point():
        low, high = int(tensor.min()), int(tensor.max())
        different = _different(tensor, MOST_LISTED)
        sparse = different and SPARSE * len(different) < high - low + 1
        return Kind(f"choice:{joined(different)}" if sparse else f"range:{low}:{high}")
    if not bool(tensor.isfinite().all()):
        return Kind(OWN)
    different = _different(tensor, MOST_FLOATS)
    if 1 < len(different) < tensor.numel():
        return Kind(f"choice:{joined(different)}")
    values = tensor.detach().double()
    tie = _tie(tensor)
    if bool((values >= 0).all()):
        return Kind("uniform", float(values.max()) or 1.0, tie=tie)
    return Kind("normal", float(values.square().mean().sqrt()), tie=tie)


def _tie(tensor: Tensor) -> str:
    """The elements that are equal in every row, as in tables of rotary embeddings."""
    width = tensor.shape[-1] if tensor.dim() else 0
    if width % 2 or not width:
        return ""
    for tie, (one, other) in {
        HALVES: (tensor[..., : width // 2], tensor[..., width // 2 :]),
        PAIRS: (tensor[..., 0::2], tensor[..., 1::2]),
    }.items():
        # A constant has equal elements by chance.
        if torch.equal(one, other) and not _different(one, MOST_FLOATS):
            return tie
    return ""


def _different(tensor: Tensor, most: int) -> list[float]:
    """The different values in order, or [] if there are more than `most`."""
    # Sorting millions takes seconds, and most tensors have too many values in any piece.
    for piece in (tensor.detach().flatten()[: 1 << 12], tensor.detach().flatten()):
        found: list[float] = sorted(set(piece.tolist())) if piece.numel() <= 1 << 20 else []
        if len(found) > most:
            return []
    return found


def joined(values: Sequence[float]) -> str:
    """The numbers as a recipe lists them."""
    return ":".join(map(repr, values))

"""One test case before it is bound to an op's signature, and the magnitudes that cases use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from referee.ops.spec import Dtype, Role

# A padded view has a gap after every row; some have an offset too. A lone row is contiguous
# whatever its stride. Halves are the parts of rows by `chunk(2, -1)`.
Layout = Literal["contiguous", "aligned", "offset", "padded-offset", "lone", "halves"]
SMALL = 2.0**-10
LOW = 2.0**-6
# Magnitudes at which an epsilon is the larger term below the root, for a row's sum or mean of
# squares.
FAINT, FAINT_HALF, FAINT_BF16 = 2.0**-16, 2.0**-12, 2.0**-14
# The epsilon is the only term that counts, and the answer is not yet zero.
FAINTER = 2.0**-24
# With float16's smallest step, this scale gives values of a few steps.
FAINTEST_HALF = 2.0**-20
# Beyond the reach of shifts, clamps and thresholds for usual data; cubes still fit into fp32.
HUGE = 2.0**16
# The sum of a row's squares still fits into fp32, for any row length.
HUGEST = 2.0**52
# Far below usual thresholds for zero; squares are still normal numbers. In float16, a few steps.
TINIEST, TINIEST_HALF = 2.0**-60, 2.0**-18
# Shifts beyond usual stand-ins for minus infinity: in fp32 just beyond 1e9, in float16 the largest
# that fits times 256. For probabilities the tolerance allows no more. Further away, FMA contraction
# with the subtracted maximum leaves a remainder whose exponential is infinite.
FAR_HALF, FAR, FAR_LOGITS = 56.0, 2.0**22, 2.0**13
# Factors of logits: one that no usual clamp passes, on rows of close values, and a very small one.
STEEP, SLIGHT = 1024.0, 2.0**-10
# The product with a closed gate is small; the product with the gate itself exceeds float16.
UP = 2.0**12
TIMED_ROWS = 8192
LARGE_ROWS = 524_417  # Times 4096 columns: more than 2^31 elements.


@dataclass(frozen=True)
class CellSpec:
    """One cell before it has an operation. `scaled` names the operands with `scale`, or is ()."""

    rows: int
    columns: int
    dtype: Dtype
    values: str
    scale: float = 1.0
    role: Role = "required"
    layout: Layout = "contiguous"
    scaled: tuple[str, ...] = ()
    label: str = ""


F16: Dtype = "float16"
BF16: Dtype = "bfloat16"
F32: Dtype = "float32"
DATA = ("x", "residual", "gate", "up", "y", "q", "tgt")

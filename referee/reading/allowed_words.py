"""The words of host code that a verdict vouches for, and that a saved kernel may use: shape
arithmetic, allocation, views, launches.

A saved file runs in the user's project without a sandbox, so the list is short.
"""

from __future__ import annotations

BUILTINS = frozenset(
    "abs bool float int isinstance len list max min range round sum tuple True False None".split()
)

ERRORS = frozenset("AssertionError NotImplementedError RuntimeError TypeError ValueError".split())

TORCH = frozenset(
    """
    torch.Tensor torch.empty torch.empty_like torch.empty_strided torch.zeros torch.zeros_like torch.ones torch.ones_like
    torch.full torch.full_like
    torch.float16 torch.bfloat16 torch.float32 torch.float64 torch.int8 torch.int16 torch.int32 torch.int64 torch.bool torch.uint8
    torch.float8_e4m3fn torch.float8_e5m2
    torch.float torch.half torch.int torch.long torch.dtype torch.device torch.cuda.device torch.contiguous_format
    """.split()
)

TRITON = frozenset({"triton.cdiv", "triton.next_power_of_2"})

MATH = frozenset("math.ceil math.floor math.log2 math.sqrt math.inf math.pi".split())

PROPERTIES = frozenset("T device dtype is_cuda itemsize mT ndim shape".split())
"""Attributes of tensors, dtypes and devices that are read, not called."""

WRITING = frozenset("copy_ fill_ zero_".split())
"""Methods of tensors that change them."""

METHODS = WRITING | frozenset(
    """
    bfloat16 chunk clone contiguous dim element_size expand expand_as flatten float half
    is_contiguous movedim narrow new_empty new_full new_ones new_zeros numel permute reshape select
    size split squeeze stride t to transpose unbind unflatten unsqueeze view view_as
    """.split()
)
"""Methods of tensors that make views, copies and new tensors, or give their sizes."""

TENSOR = PROPERTIES | METHODS

NO_GRAD = frozenset({"torch.no_grad", "torch.inference_mode"})
"""Decorators that may stand on host code and are dropped: a custom op records no gradients anyway.
"""

RESERVED = frozenset(
    {
        "F",
        "Tensor",
        "_next_power_of_2",
        "libdevice",
        "math",
        "tl",
        "torch",
        "triton",
        "triton_op",
        "wrap_triton",
    }
)
"""Names that a saved file binds, and that its host code relies on."""

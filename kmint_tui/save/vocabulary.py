"""The words that the host code of a saved kernel may use. Everything else is refused by name.

A saved file runs unsandboxed in somebody's project, so this is narrower than what may be judged: shape arithmetic,
allocation, views and Triton launches.
"""

from __future__ import annotations

BUILTINS = frozenset("abs bool float int isinstance len list max min range round sum tuple True False None".split())

ERRORS = frozenset("AssertionError NotImplementedError RuntimeError TypeError ValueError".split())

TORCH = frozenset(
    """
    torch.Tensor torch.empty torch.empty_like torch.empty_strided torch.zeros torch.zeros_like torch.ones torch.ones_like
    torch.full torch.full_like
    torch.float16 torch.bfloat16 torch.float32 torch.float64 torch.int8 torch.int16 torch.int32 torch.int64 torch.bool
    torch.float torch.half torch.int torch.long torch.dtype torch.device torch.cuda.device torch.contiguous_format
    """.split()
)

TRITON = frozenset({"triton.cdiv", "triton.next_power_of_2"})

MATH = frozenset("math.ceil math.floor math.log2 math.sqrt math.inf math.pi".split())

TENSOR = frozenset(
    """
    T bfloat16 chunk clone contiguous copy_ device dim dtype element_size expand expand_as fill_ flatten float half index is_contiguous
    is_cuda itemsize mT movedim narrow ndim new_empty new_full new_ones new_zeros numel permute reshape select shape size split squeeze
    storage_offset stride t to transpose unbind unflatten unsqueeze view view_as zero_
    """.split()
)

NO_GRAD = frozenset({"torch.no_grad", "torch.inference_mode"})
"""Decorators that may stand on host code and are dropped: a custom op records no gradients anyway."""

RESERVED = frozenset({"F", "Tensor", "_next_power_of_2", "libdevice", "math", "tl", "torch", "triton", "triton_op", "wrap_triton"})
"""Names that a saved file binds itself and host code relies on."""

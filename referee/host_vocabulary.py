"""The words host code may use: builtins, torch's allocation and views, Triton's helpers; and what to say of the others."""

from __future__ import annotations

BUILTINS = frozenset(
    """
    abs all any bool dict divmod enumerate float frozenset int isinstance len list map max min pow range reversed round set slice
    sorted str sum tuple type zip AssertionError IndexError KeyError NotImplementedError RuntimeError TypeError ValueError
    """.split()
)

TORCH = frozenset(
    """
    Size Tensor device dtype finfo iinfo is_floating_point is_tensor numel
    float float16 float32 float64 bfloat16 half double int int8 int16 int32 int64 long short uint8 uint16 uint32 uint64 bool
    float8_e4m3fn float8_e5m2 contiguous_format preserve_format channels_last strided
    empty empty_like empty_strided zeros zeros_like ones ones_like full full_like
    as_strided broadcast_shapes broadcast_to chunk clone flatten movedim narrow permute promote_types ravel reshape result_type
    select split squeeze swapaxes t transpose unbind unsqueeze view_copy
    no_grad inference_mode
    cuda cuda.current_device cuda.current_stream cuda.default_stream cuda.device cuda.device_count cuda.device_of
    cuda.get_device_capability cuda.get_device_name cuda.get_device_properties cuda.is_available cuda.set_device cuda.synchronize
    """.split()
)

# Parts of torch that are not computation and have no place in a candidate.
TORCH_REFUSED = frozenset(
    """
    _C _dynamo _inductor accelerator autograd backends classes compiler cuda distributed export fx hub jit library load manual_seed
    monitor mps multiprocessing ops overrides package profiler random save seed serialization set_default_device
    set_default_dtype set_float32_matmul_precision set_grad_enabled storage testing utils version xpu
    """.split()
)

TRITON = frozenset(
    {"Config", "autotune", "cdiv", "heuristics", "jit", "next_power_of_2", "runtime", "runtime.driver", "runtime.driver.active"}
)
TRITON_QUERIES = "triton.runtime.driver.active."

TENSOR_COMPUTE = frozenset(
    """
    add add_ addcmul addmm argmax argmin baddbmm bmm ceil ceil_ clamp clamp_ cos cumprod cumsum div div_ dot einsum erf exp exp_
    expm1 fill_diagonal_ floor floor_ gather index_add index_select log log1p log_ log_softmax logsumexp masked_fill masked_fill_
    matmul max maximum mean min minimum mm mul mul_ mv neg norm normal_ pow pow_ prod reciprocal relu relu_ repeat
    repeat_interleave roll rsqrt rsqrt_ scatter scatter_ scatter_add_ sigmoid sigmoid_ sign sin softmax sort sqrt sqrt_ square std
    sub sub_ tanh tanh_ topk tril triu uniform_ var where
    """.split()
)

VALUE_READERS = frozenset("allclose cpu data_ptr equal is_nonzero item nonzero numpy tolist unique".split())

MUTATORS = frozenset("add append clear extend insert pop popitem remove setdefault update".split())

CONTEXTS = frozenset({"torch.cuda.device", "torch.cuda.device_of", "torch.no_grad", "torch.inference_mode"})
DECORATORS = frozenset({"torch.no_grad", "torch.inference_mode"})

REFUSED_NAMES = {
    "print": "remove printing",
    "getattr": "write the attribute out",
    "setattr": "set no attributes",
    "hasattr": "write the attribute out",
    "eval": "write the expression out",
    "exec": "write the statements out",
    "compile": "write the code out",
    "open": "host code may not touch files",
    "__import__": "import at the top of the file",
    "globals": "use parameters",
    "locals": "use parameters",
    "vars": "use parameters",
}

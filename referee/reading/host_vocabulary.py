"""The words host code may use: builtins, torch's allocation and views, Triton's helpers; and what to say of the others."""

from __future__ import annotations

BUILTINS = frozenset(
    """
    __name__ abs all any bool bytes callable classmethod complex dict divmod enumerate filter float format frozenset hasattr getattr int
    isinstance issubclass iter len list map max min next object pow property range repr reversed round set slice sorted staticmethod str
    sum super tuple type zip
    ArithmeticError AssertionError AttributeError Exception ImportError IndexError KeyError ModuleNotFoundError NotImplemented
    NotImplementedError OverflowError RuntimeError TypeError ValueError
    DeprecationWarning FutureWarning PendingDeprecationWarning RuntimeWarning UserWarning
    """.split()
)

TORCH = frozenset(
    """
    Size Tensor device dtype finfo iinfo is_floating_point is_tensor numel
    float float16 float32 float64 bfloat16 half double int int8 int16 int32 int64 long short uint8 uint16 uint32 uint64 bool
    float8_e4m3fn float8_e5m2 contiguous_format preserve_format channels_last strided
    empty empty_like empty_strided zeros zeros_like ones ones_like full full_like
    as_strided broadcast_shapes broadcast_to can_cast chunk clone flatten movedim narrow permute promote_types ravel reshape result_type
    select split squeeze swapaxes t transpose unbind unsqueeze view_copy
    __version__ atleast_1d atleast_2d broadcast_tensors empty_permuted is_complex version.cuda version.hip
    no_grad inference_mode enable_grad set_grad_enabled is_grad_enabled is_autocast_enabled get_autocast_dtype
    autograd.Function autograd.function.FunctionCtx autograd.function.once_differentiable nn.Module
    amp.custom_bwd amp.custom_fwd cuda.amp.custom_bwd cuda.amp.custom_fwd compiler.is_compiling jit.is_scripting jit.is_tracing
    cuda cuda.current_device cuda.current_stream cuda.default_stream cuda.device cuda.device_of
    cuda.get_device_capability cuda.get_device_name cuda.get_device_properties cuda.is_available cuda.is_bf16_supported cuda.set_device
    cuda.synchronize
    """.split()
)

# Parts of torch that are not computation and have no place in a candidate.
TORCH_REFUSED = frozenset(
    """
    _C _dynamo _inductor accelerator autograd backends classes compiler cuda distributed export fx hub jit library load manual_seed
    monitor mps multiprocessing ops overrides package profiler random save seed serialization set_default_device
    set_default_dtype set_float32_matmul_precision storage testing utils version xpu
    """.split()
)

TRITON = frozenset(
    """
    Config JITFunction __version__ autotune cdiv heuristics jit next_power_of_2 runtime runtime.driver runtime.driver.active
    testing.Benchmark testing.perf_report
    """.split()
)
TRITON_QUERIES = "triton.runtime.driver.active."
# What they have tells which Triton it is.
TRITON_MODULES = frozenset({"triton", "tl"})

# Functions of torch, and of Triton's driver, for which a trace has others that answer the same.
QUERIES = frozenset(
    """
    current_device current_stream default_stream get_active_torch_device get_autocast_dtype get_current_device get_current_stream
    get_current_target get_device_capability get_device_name get_device_properties is_autocast_enabled is_available is_bf16_supported
    is_compiling is_grad_enabled is_scripting is_tracing set_device synchronize
    """.split()
)

TENSOR_COMPUTE = frozenset(
    """
    abs abs_ acos add add_ addcmul addmm addmv all amax amin aminmax any argmax argmin argsort asin atan baddbmm bernoulli bernoulli_
    bmm ceil ceil_ clamp clamp_ clip clip_ conj conj_physical cos cosh count_nonzero cross cummax cummin cumprod cumsum diff dist div
    div_ dot einsum eq erf exp exp_ expm1 fill_diagonal_ flip fliplr flipud floor floor_ fmod gather ge gt heaviside hypot index_add
    index_copy_ index_fill_ index_put_ index_select isfinite isinf isnan kthvalue le lerp log log1p log_ log_softmax logical_and
    logical_not logical_or logit logsumexp lt masked_fill masked_fill_ masked_scatter_ matmul matrix_power max maximum mean median min
    minimum mm mode mul mul_ multiply mv nan_to_num nansum ne neg negative norm normal_ outer positive pow pow_ prod put_ quantile
    random_ reciprocal relu relu_ remainder renorm repeat repeat_interleave roll rot90 rsqrt rsqrt_ scatter scatter_ scatter_add_
    scatter_reduce_ sigmoid sigmoid_ sign sin sinc sinh softmax softplus sort sqrt sqrt_ square std sub sub_ subtract sum sum_to_size
    take tan tanh tanh_ topk trace tril tril_ triu triu_ true_divide trunc uniform_ var vdot where xlogy
    """.split()
)

VALUE_READERS = frozenset("allclose cpu data_ptr equal is_nonzero item nonzero numpy tolist unique".split())

MUTATORS = frozenset(
    "add append appendleft clear discard extend insert move_to_end pop popitem popleft remove reverse setdefault update".split()
)

TYPING = (
    "Annotated Any Callable ClassVar Dict Final Generic Iterable Iterator List Literal Mapping NamedTuple NewType Optional ParamSpec"
    " Protocol Sequence Set TYPE_CHECKING Tuple Type TypeAlias TypeVar TypedDict Union cast overload"
)

# Of the standard library, and numpy: what may run. A module's other names include the modules that it uses itself, such as `sys`.
# Not the operators that `operator_guard.py` looks after where they are written out.
# Not what makes classes when it is called, such as ABCMeta and Enum: as bases they may stand. Not `fields` of data classes, nor `field`
# where its value can be had (`host_module.py`): a field hands out its annotation, in which no word is looked at.
STANDARD_WORDS = {
    "abc": "ABC abstractmethod",
    "collections": "ChainMap Counter OrderedDict abc defaultdict deque namedtuple",
    "collections.abc": "Callable Collection Container Hashable Iterable Iterator Mapping MutableMapping Sequence Set Sized",
    "contextlib": "ExitStack nullcontext",
    "copy": "copy deepcopy",
    "dataclasses": "KW_ONLY MISSING asdict astuple dataclass is_dataclass replace",
    "enum": "auto unique",
    "functools": "cache lru_cache partial reduce",
    "itertools": "accumulate chain combinations combinations_with_replacement count cycle dropwhile filterfalse groupby islice pairwise"
    " permutations product repeat starmap takewhile tee zip_longest",
    "logging": "DEBUG ERROR INFO Logger WARNING debug error getLogger info warning",
    "numbers": "Complex Integral Number Rational Real",
    "numpy": "ceil floor inf int32 int64 float32 log2 pi prod sqrt",
    "operator": "add eq floordiv ge gt index le lt mul ne neg not_ pos truediv",
    "sys": "maxsize version_info",
    "typing": TYPING,
    "typing_extensions": TYPING,
    "warnings": "filterwarnings simplefilter warn",
}

# Python may be a later one for some users, and what only that one has stops the import, or the call, for the others.
OLDEST_PYTHON = (3, 11)
MATH = frozenset(
    """
    acos acosh asin asinh atan atan2 atanh cbrt ceil comb copysign cos cosh degrees dist e erf erfc exp exp2 expm1 fabs factorial floor
    fmod frexp fsum gamma gcd hypot inf isclose isfinite isinf isnan isqrt lcm ldexp lgamma log log10 log1p log2 modf nan nextafter perm
    pi pow prod radians remainder sin sinh sqrt tan tanh tau trunc ulp
    """.split()
)

_MODES = {"torch.no_grad", "torch.inference_mode", "torch.enable_grad", "torch.set_grad_enabled"}
CONTEXTS = frozenset({"torch.cuda.device", "torch.cuda.device_of", "torch.device", "contextlib.nullcontext", *_MODES})
CACHES = frozenset({"functools.cache", "functools.lru_cache"})
DECORATORS = frozenset(
    {
        *_MODES,
        *CACHES,
        *("contextlib.contextmanager", "functools.wraps", "abc.abstractmethod", "torch.autograd.function.once_differentiable"),
        *("torch.amp.custom_fwd", "torch.amp.custom_bwd", "torch.cuda.amp.custom_fwd", "torch.cuda.amp.custom_bwd"),
        # On tests and benchmarks, which stand in the file and are not called.
        *("triton.testing.perf_report", "dataclasses.dataclass"),
    }
)
CLASS_DECORATORS = frozenset({"dataclasses.dataclass", "enum.unique"})
METHOD_DECORATORS = frozenset({"classmethod", "property", "staticmethod"})
ENUMS = frozenset({"enum.Enum", "enum.IntEnum"})
BASES = frozenset(
    {
        *("torch.autograd.Function", "torch.nn.Module", "abc.ABC", "typing.NamedTuple", "typing.TypedDict", "typing.Protocol"),
        *ENUMS,
    }
)
PLAIN_BASES = frozenset({"object", "str", "int"})
# Of these an empty class may be made, to be raised.
ERROR_BASES = frozenset({"ArithmeticError", "AssertionError", "NotImplementedError", "RuntimeError", "TypeError", "ValueError"})

# What makes a tensor: not for helpers whose results are kept.
ALLOCATIONS = frozenset(
    """
    clone contiguous empty empty_like empty_permuted empty_strided full full_like new_empty new_empty_strided new_full new_ones new_zeros
    ones ones_like to zeros zeros_like
    """.split()
)

REFUSED_NAMES = {
    "print": "remove printing",
    "setattr": "set no attributes",
    "eval": "write the expression out",
    "exec": "write the statements out",
    "compile": "write the code out",
    "open": "host code may not touch files",
    "__import__": "import at the top of the file",
    "globals": "use parameters",
    "locals": "use parameters",
    "vars": "use parameters",
}

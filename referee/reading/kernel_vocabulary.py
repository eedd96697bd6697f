"""The words and the syntax that a kernel may use: Triton language functions, value attributes,
libdevice and math functions.

Every other word is refused. The lists hold the words of Triton since 3.6 that do not leave the
kernel. They exclude inline assembly, printing, clocks, device-side descriptors and dependent
launches. A word that Triton has and the lists do not is a limit of the referee, not a fault of the
kernel.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Container
from importlib.util import find_spec
from pathlib import Path

from referee.versions import facts, triton_version

TL_DTYPES = frozenset(
    """
    int1 int8 int16 int32 int64 uint8 uint16 uint32 uint64
    float16 bfloat16 float32 float64 float8e4nv float8e5
    """.split()
)

TL_FUNCTIONS = frozenset(
    """
    abs add advance arange argmax argmin associative_scan assume
    atomic_add atomic_and atomic_cas atomic_max atomic_min atomic_or atomic_xchg atomic_xor
    bitonic_merge broadcast broadcast_to cast cat cdiv ceil clamp constexpr cos cumprod cumsum debug_barrier div_rn dot
    erf exp exp2 expand_dims fdiv flip floor fma full gather histogram interleave join load log log2 make_block_ptr
    max max_constancy max_contiguous maximum min minimum mul multiple_of num_programs
    pair_uniform_to_normal permute philox philox_impl program_id rand rand4x randint randint4x randn randn4x
    range ravel reduce reduce_or reshape rsqrt sigmoid sin softmax sort split sqrt sqrt_rn squeeze static_assert static_range store sub sum
    swizzle2d topk trans uint_to_uniform_float umulhi unsqueeze where xor_sum zeros zeros_like
    """.split()
)

TL_MATH = frozenset(
    "abs ceil cos div_rn erf exp exp2 fdiv floor fma log log2 rsqrt sin sqrt sqrt_rn umulhi".split()
)

TL_REFUSED = {
    "inline_asm_elementwise": "inline assembly is not judged; use tl or libdevice functions",
    "device_print": "remove printing from the kernel",
    "make_tensor_descriptor": "tensor descriptors need scratch memory that a plan does not carry; use tl.load and tl.store",
    "load_tensor_descriptor": "tensor descriptors are not supported; use tl.load",
    "store_tensor_descriptor": "tensor descriptors are not supported; use tl.store",
    "dot_scaled": "scaled matrix products are not judged",
    "pointer_type": "pointers come in as arguments only",
    "view": "it may put the elements in another order; use tl.reshape",
    "map_elementwise": "write the expression out elementwise",
    "extra": "only libdevice functions of triton.language.extra are allowed",
}

# Words with the option `can_reorder`, and the position of this option among the arguments: for a
# function, for a method.
REORDERING = {"cat": (2, 1), "ravel": (1, 0), "reshape": (None, None)}

# Words that have an effect only in Triton's debug mode, or only while compiling.
DEBUGGING = frozenset({"tl.device_assert", "tl.static_print"})

INSTEAD_OF = {
    "tl.math.tanh": "libdevice.tanh or 2 * tl.sigmoid(2 * x) - 1",
    "tl.tanh": "libdevice.tanh or 2 * tl.sigmoid(2 * x) - 1",
    "tl.math.sigmoid": "tl.sigmoid",
    "tl.math.max": "tl.maximum",
    "tl.math.min": "tl.minimum",
    "tl.math.pow": "libdevice.pow or tl.exp2(y * tl.log2(x))",
    "tl.pow": "libdevice.pow or tl.exp2(y * tl.log2(x))",
    "tl.math.log1p": "libdevice.log1p",
    "tl.log1p": "libdevice.log1p",
    "tl.math.expm1": "libdevice.expm1",
    "tl.expm1": "libdevice.expm1",
    "tl.any": "tl.max(mask.to(tl.int32), axis=0)",
    "tl.all": "tl.min(mask.to(tl.int32), axis=0)",
    "tl.mean": "tl.sum(x, axis=0) / n",
    "tl.relu": "tl.maximum(x, 0.0)",
    "tl.silu": "x * tl.sigmoid(x)",
    "tl.square": "x * x",
    "tl.math.round": "libdevice.rint",
    "tl.libdevice": "`from triton.language.extra import libdevice`",
    "tl.next_power_of_2": "triton.next_power_of_2 in `run`, passed as a tl.constexpr",
}

# For words and arguments that some versions of Triton lack (`referee.versions`).
_INSTEAD_OF_LACKING = {
    "make_block_ptr": "block pointers are gone; use tl.load and tl.store with offsets and a mask",
    "advance": "block pointers are gone; use tl.load and tl.store with offsets and a mask",
    "squeeze": "use tl.reshape",
    "unsqueeze": "use tl.expand_dims",
    "boundary_check": "block pointers are gone; use `mask`",
    "padding_option": "block pointers are gone; use `mask` and `other`",
}

VALUE_ATTRIBUTES = frozenset(
    """
    T abs advance argmax argmin associative_scan atomic_add atomic_and atomic_cas atomic_max atomic_min atomic_or atomic_xchg
    atomic_xor broadcast_to cast cdiv ceil cos cumprod cumsum dtype element_ty erf exp exp2 expand_dims flip floor gather histogram
    int_bitwidth is_bf16 is_block is_bool is_floating is_fp16 is_fp32 is_fp64 is_fp8 is_int is_int1 is_int16 is_int32 is_int64 is_int8
    is_int_signed is_int_unsigned is_ptr is_standard_floating is_uint16 is_uint32 is_uint64 is_uint8 itemsize log log2 logical_and
    logical_or max min name nbytes numel permute primitive_bitwidth ravel reduce reduce_or reshape rsqrt scalar shape sigmoid sin
    softmax sort split sqrt sqrt_rn store sum to trans type value xor_sum
    """.split()
)

MATH = frozenset(
    """
    acos asin atan ceil cos e erf exp exp2 expm1 fabs floor inf log log10 log1p log2 nan pi pow sin sqrt tan tanh tau
    """.split()
)

TRITON_HELPERS = frozenset({"cdiv", "next_power_of_2"})

# Builtins of Python that Triton's compiler itself resolves; `abs` is not among them.
BUILTINS = frozenset({"min", "max", "len", "range", "float", "int"})

LIBDEVICE = frozenset(
    """
    abs acos acosh add_rn asin asinh atan atan2 atanh brev cbrt ceil clz copysign cos cosh cospi
    cyl_bessel_i0 cyl_bessel_i1 div_rn double2float_rd double2float_rn double2float_ru double2float_rz
    double2hiint double2int_rd double2int_rn double2int_ru double2int_rz double2ll_rd double2ll_rn double2ll_ru double2ll_rz
    double2loint double2uint_rd double2uint_rn double2uint_ru double2uint_rz double2ull_rd double2ull_rn double2ull_ru double2ull_rz
    double_as_longlong erf erfc erfcinv erfcx erfinv exp exp10 exp2 expm1 fast_cosf fast_dividef fast_exp10f fast_expf fast_log10f
    fast_log2f fast_logf fast_powf fast_sinf fast_tanf fast_tanhf fdim ffs finitef float2int_rd float2int_rn float2int_ru float2int_rz
    float2ll_rd float2ll_rn float2ll_ru float2ll_rz float2uint_rd float2uint_rn float2uint_ru float2uint_rz float2ull_rd float2ull_rn
    float2ull_ru float2ull_rz float_as_int float_as_uint floor fma fma_rn fmod hadd half2float hiloint2double
    hypot ilogb int2double_rn int2float_rd int2float_rn int2float_ru int2float_rz int_as_float isfinited isinf isnan j0 j1 ldexp
    lgamma ll2double_rd ll2double_rn ll2double_ru ll2double_rz ll2float_rd ll2float_rn ll2float_ru ll2float_rz llrint llround log
    log10 log1p log2 logb longlong_as_double mul24 mul_rn mulhi nearbyint nextafter norm3d norm4d normcdf
    normcdfinv popc pow rcbrt rcp_rn remainder rhadd rhypot rint rnorm3d rnorm4d round rsqrt rsqrt_rn sad
    saturatef scalbn signbit sin sinh sinpi sqrt sqrt_rn sub_rn tan tanh tgamma trunc
    uint2double_rn uint2float_rd uint2float_rn uint2float_ru uint2float_rz uint_as_float ull2double_rd ull2double_rn ull2double_ru
    ull2double_rz ull2float_rd ull2float_rn ull2float_ru ull2float_rz y0 y1
    """.split()
)

SYNTAX: tuple[type[ast.AST], ...] = (
    ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Assert, ast.For, ast.While, ast.If, ast.Expr, ast.Pass, ast.Return,
    ast.Name, ast.Attribute, ast.Constant, ast.Call, ast.keyword, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare,
    ast.IfExp, ast.Subscript, ast.Slice, ast.Tuple, ast.List,
    ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
)  # fmt: skip
IN_MESSAGES: tuple[type[ast.AST], ...] = (ast.JoinedStr, ast.FormattedValue)
"""Further syntax that assertions, messages and prints may use."""

ADVICE = {
    "Break": "Triton has no `break`; use a mask or a loop bound",
    "Continue": "Triton has no `continue`; use a mask or `if`",
    "Lambda": "write a @triton.jit helper function",
    "FunctionDef": "move nested functions to the top level as @triton.jit helpers",
    "ListComp": "write the loop out",
    "JoinedStr": "f-strings have no place in a kernel",
    "Try": "Triton has no exceptions",
    "Raise": "Triton has no exceptions",
    "Import": "imports belong at the top of the file",
    "ImportFrom": "imports belong at the top of the file",
}

WORDS_OF: dict[str, Container[str]] = {
    "tl": TL_FUNCTIONS | TL_DTYPES,
    "tl.math": TL_MATH,
    "tl.PropagateNan": frozenset({"ALL", "NONE"}),
    "libdevice": LIBDEVICE,
    "math": MATH,
    "triton": TRITON_HELPERS,
}
"""The words of each module."""

# Words that access memory, order it or tell the compiler something, next to atomics.
EFFECTS = frozenset(
    """
    advance assume debug_barrier load max_constancy max_contiguous multiple_of static_assert store
    """.split()
)
# Names and types that messages and assertions may use as well.
OF_MESSAGES = frozenset({"abs", "bool", "isinstance", "str", "type"})
TYPES = frozenset({"tl.block_type", "tl.dtype", "tl.pointer_type", "tl.tensor"})


NOT_JUDGED = "not_judged"
"""The guard of a word that Triton has and the referee does not judge."""


def guard_of(full: str) -> str:
    """The guard that refuses a word outside the vocabulary, such as "tl.view"."""
    module, word = full.split(".")[:2]
    if (module, word) == ("tl", "math"):
        module, word = "tl.math", full.split(".")[2]
    known = module == "tl" and word in TL_REFUSED
    return NOT_JUDGED if known or word in _installed_words(module) else "kernel_vocabulary"


@functools.cache
def _installed_words(module: str) -> frozenset[str]:
    """The words of `tl`, `tl.math` or `libdevice` in the installed Triton, which is not imported."""
    spec = find_spec("triton")
    if spec is None or spec.origin is None or module not in _WORD_FILES:
        return frozenset()
    file, pattern = _WORD_FILES[module]
    text = (Path(spec.origin).parent / "language" / file).read_text(encoding="utf-8")
    return frozenset(re.findall(pattern, text, re.MULTILINE))


_WORD_FILES = {
    "tl": ("__init__.py", r'^    "(\w+)",$'),
    "tl.math": ("math.py", r"^def (\w+)\("),
    "libdevice": ("extra/libdevice.py", r"^def (\w+)\("),
}
"""Where Triton names its words, and how one of them looks there."""


def lacking_word(full: str, word: str) -> str:
    """The reason why the installed Triton cannot compile this word, with its version, or ""."""
    version = triton_version()
    if version is None or word not in facts(version).lacks:
        return ""
    return f"triton {version} has no `{full}`: {_instead(word)}"


def lacking_argument(word: str, call: ast.Call, full: str | None) -> str:
    """As `lacking_word`, for the arguments of a call; `full` is None for the method of a value."""
    version = triton_version()
    if version is None:
        return ""
    given = {keyword.arg for keyword in call.keywords}
    for argument in sorted(facts(version).lacks_arguments, key=lambda one: one.place):
        if argument.function == word and (
            argument.name in given or len(call.args) > argument.place - (full is None)
        ):
            called = f"`{full or word}` has no argument `{argument.name}`"
            return f"in triton {version}, {called}: {_instead(argument.name)}"
    return ""


def _instead(word: str) -> str:
    return _INSTEAD_OF_LACKING.get(word, "write it with the words that this version has")

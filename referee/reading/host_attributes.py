"""What host code may ask of a value: the attributes that tensors, dtypes, devices, texts and containers have, and those of the file's own.

Every other name is refused, because some lead from a plain value to the process that a candidate runs in: a generator knows its frame,
a frame its caller. A launch depends on shapes, dtypes and the device only, for which none of them is needed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

_TENSORS = """
    T mT H mH adjoint alias as_strided bfloat16 bool broadcast_to byte char chunk clone contiguous copy_ cuda data detach device dim
    dim_order dsplit double dtype element_size expand expand_as fill_ flatten float get_device half hsplit imag int is_complex
    is_contiguous is_cpu is_cuda is_floating_point is_meta is_signed itemsize layout long mT matrix_H moveaxis movedim names
    narrow nbytes ndim ndimension nelement new_empty new_empty_strided new_full new_ones new_tensor new_zeros numel permute ravel real
    requires_grad requires_grad_ reshape reshape_as select shape short size split split_with_sizes squeeze squeeze_ stride
    swapaxes swapdims t tensor_split to transpose type type_as unbind unflatten unfold unsqueeze unsqueeze_ view view_as vsplit zero_
    is_sparse is_quantized is_nested is_mkldnn
"""
_DTYPES_AND_DEVICES = """
    bits dtype eps index is_complex is_floating_point is_signed itemsize max min resolution smallest_normal tiny to_complex to_real type
"""
_PROPERTIES = """
    L2_cache_size arch backend clock_rate gcnArchName get_current_device get_current_stream get_current_target get_device_capability
    get_device_properties major max_num_regs max_shared_mem max_threads_per_block max_threads_per_multi_processor mem_bus_width
    mem_clock_rate memory_bus_width memory_clock_rate minor multi_processor_count multiprocessor_count name regs_per_multiprocessor
    shared_memory_per_block shared_memory_per_block_optin shared_memory_per_multiprocessor sm_clock_rate total_memory utils warpSize
    warp_size get_active_torch_device current_device current_stream default_stream
    get_device_capability get_device_name is_available synchronize cuda_stream set_device
"""
_TEXTS_AND_CONTAINERS = """
    add append capitalize clear copy count difference discard endswith extend find get index insert intersection isalnum isalpha
    isdecimal isdigit isdisjoint isnumeric issubset issuperset items join keys ljust lower lstrip most_common move_to_end partition pop
    popitem popleft appendleft remove removeprefix removesuffix replace reverse rfind rjust rpartition rsplit rstrip setdefault
    split splitlines start startswith step stop strip symmetric_difference title union update upper values zfill elements total
"""
_NUMBERS = "as_integer_ratio bit_count bit_length conjugate denominator imag indices is_integer numerator real"
_AUTOGRAD = """
    apply backward forward mark_dirty mark_non_differentiable needs_input_grad save_for_backward saved_tensors saved_tensors_
    set_materialize_grads setup_context
"""
_CONFIGURATIONS = "all_kwargs kwargs maxnreg num_ctas num_stages num_warps"
_WORDS = "critical debug deleter error exception getter info log name run setLevel setter value warn warning"

KNOWN = frozenset(
    " ".join(
        (_TENSORS, _DTYPES_AND_DEVICES, _PROPERTIES, _TEXTS_AND_CONTAINERS, _NUMBERS, _AUTOGRAD, _CONFIGURATIONS, _WORDS),
    ).split()
)

# Not even where the file gives something of its own such a name.
NEVER = frozenset(
    """
    ag_await ag_code ag_frame co_consts co_filename co_names cr_await cr_code cr_frame cr_origin f_back f_builtins f_code f_globals
    f_lasti f_lineno f_locals f_trace gi_code gi_frame gi_suspended gi_yieldfrom mro tb_frame tb_lasti tb_lineno tb_next with_traceback
    func modules builtins importlib import_module environ argv is_inference uuid pci_bus_id pci_device_id pci_domain_id
    """.split()
)

# What named tuples have, whose names Python starts with a line for no other reason than not to take one from the fields.
NAMED_TUPLES = frozenset({"_asdict", "_replace"})


def own(tree: ast.AST) -> frozenset[str]:
    """The attributes that a file gives to something itself: of its classes, of objects by keyword, of named tuples."""
    return frozenset(_own(tree)) - NEVER


def _own(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            if any(_named(base) == "NamedTuple" for base in node.bases):
                yield from NAMED_TUPLES
            for part in node.body:
                if isinstance(part, ast.FunctionDef):
                    yield part.name
                elif isinstance(part, (ast.Assign, ast.AnnAssign)):
                    targets = part.targets if isinstance(part, ast.Assign) else [part.target]
                    yield from (name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.Call) and _named(node.func) == "namedtuple":
            yield from NAMED_TUPLES
            texts = (part.value for argument in node.args for part in ast.walk(argument) if isinstance(part, ast.Constant))
            yield from (word for text in texts if isinstance(text, str) for word in text.replace(",", " ").split())


def _named(called: ast.expr) -> str:
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""

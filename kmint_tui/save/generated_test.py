"""The test that is saved beside a kernel. It needs torch, triton and pytest, not kmint; without a GPU its GPU half skips."""

from __future__ import annotations

from kmint_tui.save.own_reference import Judged
from kmint_tui.save.single_file import verify_command
from kmint_tui.save.support import Support
from referee.ops import Op
from referee.ops.signatures import KINDS, Parameter, Symbol

_HEAD = '''"""Checks {stem}.py: `python -m pytest test_{stem}.py`. {what}

Whether the file is still the one that was judged, and whether the referee still passes it, says `{verify}`.
"""

import importlib.util
from pathlib import Path

import pytest
import torch

_spec = importlib.util.spec_from_file_location("{stem}", Path(__file__).with_name("{stem}.py"))
kernel = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(kernel)
'''

_CATALOGUE = '''
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

SIZES = {sizes}
DTYPES = kernel.DTYPES
# Every size and every dtype, but not every pair: on a GPU each pair is a kernel of its own to compile.
CASES = [(*size, DTYPES[number % len(DTYPES)]) for number, size in enumerate(SIZES)]
CASES += [(*SIZES[0], dtype) for dtype in DTYPES[1:]]
# Relative and absolute; the referee's own budget is tighter and knows every element's conditioning.
TOLERANCES = {{torch.float32: (1e-4, 1e-4), torch.float16: (4e-3, 4e-3), torch.bfloat16: (3e-2, 3e-2)}}


def arguments(rows, columns, dtype, device):
    """Fresh inputs; `rows` may be several leading dimensions."""
    rows = rows if isinstance(rows, tuple) else (rows,)
    torch.manual_seed(0)
    return (
{arguments}
    )


def padded(tensors):
    """The same values with a gap of three elements after every row of every matrix."""

    def with_gap(tensor):
        wide = torch.zeros(tensor.shape[0], tensor.shape[1] + 3, dtype=tensor.dtype, device=tensor.device)
        wide[:, : tensor.shape[1]] = tensor
        return wide[:, : tensor.shape[1]]

    return tuple(with_gap(tensor) if tensor.dim() == 2 and tensor.shape[1] > 1 else tensor for tensor in tensors)


def shifted(tensors):
    """The same values at an odd offset into their storage."""
    return tuple(torch.cat((tensor.new_zeros(3), tensor.flatten()))[3:].view(tensor.shape) for tensor in tensors)


def check(tensors, function=kernel.{stem}):
    with torch.no_grad():
        found, wanted = function(*tensors), kernel.reference(*tensors)
    assert (found.shape, found.dtype, found.device) == (wanted.shape, wanted.dtype, wanted.device)
    rtol, atol = TOLERANCES[found.dtype]
    torch.testing.assert_close(found.float(), wanted.float(), rtol=rtol, atol=atol)


def devices():
    return ["cpu", pytest.param("cuda", marks=needs_gpu)]


@pytest.mark.parametrize("device", devices())
@pytest.mark.parametrize("rows, columns, dtype", CASES)
def test_agrees_with_the_reference(rows, columns, dtype, device):
    check(arguments(rows, columns, dtype, device))


@pytest.mark.parametrize("device", devices())
def test_leading_dimensions(device):
    check(arguments((2, 3), {columns}, DTYPES[0], device))
    check(arguments((), {columns}, DTYPES[0], device))


@pytest.mark.parametrize("device", devices())
def test_no_rows(device):
    check(arguments(0, {columns}, DTYPES[0], device))


@pytest.mark.parametrize("device", devices())
def test_views(device):
    tensors = arguments(5, {columns}, DTYPES[0], device)
    check(shifted(tensors))
{padded}
    transposed = tensors[0].t().contiguous().t()
    with pytest.raises(ValueError, match="{lead}"):
        kernel.{stem}(transposed, *tensors[1:])


@pytest.mark.parametrize("device", devices())
@pytest.mark.parametrize("position, name", list(enumerate({names})))
def test_wrong_arguments_are_named(position, name, device):
    tensors = list(arguments(5, {columns}, DTYPES[0], device))
    good = tensors[position]
    wrong = [None, 1.0, good.to(torch.complex64), good.to("meta")]
    for value in wrong if position == 0 else [*wrong, good[None, None], good[..., None]]:
        tensors[position] = value
        with pytest.raises((TypeError, ValueError), match=r"\\b({alternatives})\\b" if position == 0 else rf"\\b{{name}}\\b"):
            kernel.{stem}(*tensors)


def test_too_many_columns_are_refused():
    with pytest.raises(ValueError, match="last dimension"):
        kernel.{stem}(*arguments(1, {too_many}, DTYPES[0], "cpu"))


@pytest.mark.parametrize("device", devices())
def test_opcheck(device):
    torch.library.opcheck(kernel._op, arguments(5, {columns}, DTYPES[0], device))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiles_without_a_graph_break(backend):
    torch._dynamo.reset()
    compiled = torch.compile(kernel.{stem}, fullgraph=True, backend=backend)
    for rows in (3, 5, 8):
        check(arguments(rows, {columns}, DTYPES[0], "cpu"), compiled)


@needs_gpu
def test_compiles_without_a_graph_break_on_the_gpu():
    torch._dynamo.reset()
    compiled = torch.compile(kernel.{stem}, fullgraph=True)
    for rows, columns in ((3, {columns}), (5, {columns}), (8, {other_columns})):
        check(arguments(rows, columns, DTYPES[0], "cuda"), compiled)


@pytest.mark.parametrize("device", devices())
def test_backward_says_what_to_do(device):
    tensors = list(arguments(3, {columns}, DTYPES[0], device))
    position = next(i for i, tensor in enumerate(tensors) if tensor.is_floating_point())
    tensors[position].requires_grad_()
    with pytest.raises(NotImplementedError, match="reference"):
        kernel.{stem}(*tensors).sum().backward()
'''

_COMPARED = "On a GPU the kernel is compared with its reference."
_NOT_COMPARED = """Only what it refuses is checked: the kernel is not run,
for the reference it was judged by is the user's own and is not in this file."""

_USER = """

def judged(number):
    # On the meta device, where a tensor has no values and takes no memory.
    return [torch.empty(shape, dtype=dtype, device="meta") for shape, dtype in kernel.JUDGED[number]]


NUMBERS = range(len(kernel.JUDGED))
POSITIONS = range(len(kernel.ARGUMENTS))


@pytest.mark.parametrize("number", NUMBERS)
def test_what_was_judged_is_taken_on_a_gpu_only(number):
    with pytest.raises(ValueError, match="GPU"):
        kernel.{stem}(*judged(number))


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("position", POSITIONS)
def test_wrong_arguments_are_named(number, position):
    good = judged(number)[position]
    for wrong, error in ((None, TypeError), (good.to(torch.complex64), TypeError), (good[None, None, None], ValueError)):
        tensors = judged(number)
        tensors[position] = wrong
        with pytest.raises(error, match=rf"\\b{kernel.ARGUMENTS[position]}\\b"):
            kernel.{stem}(*tensors)
"""

_PADDED = "    check(padded(tensors))"
_NOT_PADDED = """    with pytest.raises(ValueError, match="contiguous"):
        kernel.{stem}(*padded(tensors))"""


def render_test(op: Op, stem: str, support: Support | Judged) -> str:
    """The text of `test_<stem>.py`; a user's own reference is not saved with the kernel, which is then not compared with it."""
    verify = verify_command(stem, support)
    if isinstance(support, Judged):
        return _HEAD.format(stem=stem, what=_NOT_COMPARED, verify=verify) + _USER.replace("{stem}", stem)
    parameters = KINDS[op.kind].parameters
    names = tuple(parameter.name for parameter in parameters)
    sizes = _sizes(support)
    fields = {
        "stem": stem,
        "sizes": repr(sizes),
        "arguments": "\n".join(f"        {_draw(parameter)}," for parameter in parameters),
        "padded": _PADDED if support.padded else _NOT_PADDED.format(stem=stem),
        "lead": names[0],
        "names": names,
        "alternatives": "|".join(names),
        "columns": sizes[0][1],
        "other_columns": sizes[-1][1],
        "too_many": 2 * (support.heads[-1] if support.heads else support.max_columns),
    }
    return _HEAD.format(stem=stem, what=_COMPARED, verify=verify) + "\n" + _CATALOGUE.format(**fields)


def _sizes(support: Support) -> tuple[tuple[int, int], ...]:
    """Rows and columns: primes, powers of two, one of each, the largest."""
    if support.heads:
        return tuple((rows, columns) for rows, columns in zip((37, 1, 3, 8), support.heads, strict=False))
    wanted = ((37, 257), (1, 128), (3, 1), (5, 1000), (8, 1024), (2, 4097))
    return tuple((rows, columns) for rows, columns in wanted if columns <= support.max_columns)


def _draw(parameter: Parameter) -> str:
    shape = ", ".join(_SIZES[symbol] for symbol in parameter.shape)
    if parameter.dtype == "int8":
        return f"torch.randint(-128, 128, ({shape},), dtype=torch.int8, device=device)"
    if parameter.dtype == "int64":
        return f"torch.randint(0, columns, ({shape},), device=device)"
    return f"torch.randn(({shape},), dtype=dtype, device=device)"


_SIZES: dict[Symbol, str] = {"M": "*rows", "N": "columns", "H": "columns // 2", "1": "1"}

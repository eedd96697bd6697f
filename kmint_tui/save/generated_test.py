"""The test that is saved with a kernel. It needs torch, triton and pytest, not kmint.

It fails for a wrong kernel with a GPU and without. Without one, Triton's interpreter runs the
kernel in a second process, because Triton reads the switch when it is imported.
"""

from __future__ import annotations

from kmint_tui.save.choosing import Choice
from kmint_tui.save.reference_code import ACTIVATIONS, GATES
from kmint_tui.save.single_file import verify_command
from kmint_tui.save.support import Domain, Support
from kmint_tui.save.wrapper import WITH_DIM
from referee.ops import Op
from referee.ops.catalogue import base_name
from referee.ops.signatures import KINDS, Parameter, Symbol

_MASKABLE = frozenset(
    "softmax log_softmax softmax_scale softcap_softmax cross_entropy entropy kl_div".split()
)
_DATA = frozenset("x y residual gate up".split())

_ONE = """@pytest.mark.parametrize("rows, columns, values, dtype", CASES)
def test_kernel(rows: int, columns: int, values: str, dtype: torch.dtype) -> None:
    tensors = arguments(rows, columns, values, dtype)
    # On the CPU only _run() launches the kernel.
    launch: Callable[..., Tensor] = {stem} if GPU else _run
    check(launch(*tensors), tensors)"""
_SEVERAL = """@pytest.mark.parametrize("launch", [{entries}])
@pytest.mark.parametrize("rows, columns, values, dtype", CASES)
def test_kernel(
    rows: int,
    columns: int,
    values: str,
    dtype: torch.dtype,
    launch: Callable[..., Tensor],
) -> None:
    tensors = arguments(rows, columns, values, dtype)
    # Each kernel is launched as it is, whichever of them a call of this size takes.
    check(launch(*tensors), tensors)


@pytest.mark.skipif(not GPU, reason="the interpreter is too slow for these shapes")
@pytest.mark.parametrize("shape", SHAPES, ids=lambda one: f"{{one.rows}}x{{one.columns}}")
def test_measured_shapes(shape: Any) -> None:
    rows = min(shape.rows, MOST_ELEMENTS // shape.columns)
    tensors = arguments(rows, shape.columns, "normal", shape.dtype)
    check({stem}(*tensors), tensors)


@pytest.mark.parametrize("rows, columns", [(1, 1), (7, 131), (4999, 3001), (99991, 20011)])
def test_a_call_takes_the_nearest_row(rows: int, columns: int) -> None:
    def distance(shape: Any) -> tuple[float, float]:
        return abs(math.log(columns / shape.columns)), abs(math.log(rows / shape.rows))

    for own in SHAPES:
        assert _kernel_for(own.rows, own.columns, own.dtype) is own.kernel
        nearest = min((one for one in SHAPES if one.dtype == own.dtype), key=distance)
        assert _kernel_for(rows, columns, own.dtype) is nearest.kernel


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_has_a_kernel(dtype: torch.dtype) -> None:
    found = _kernel_for(5, 257, dtype)
    known = [one.kernel for one in SHAPES if dtype == one.dtype]
    assert found in (known or {others})"""
_MEASURED = """# What a GPU with little memory can check.
MOST_ELEMENTS = 1 << 27
"""

_TEST = '''"""Checks the kernel {stem} against its reference().

With a GPU the kernel runs there. Without one Triton's interpreter runs it on the CPU, in a process
of its own and at small sizes: that shows wrong numbers, but no fault of the compiled code.
TOLERANCE is from the receipt. `{verify}` judges the kernel again.
"""
{mypy}
{math}import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from {module} import {imported}

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
runs_kernel = pytest.mark.skipif(not (GPU or INTERPRETED), reason="see test_kernel_interpreted")

SIZES = {small}
if GPU:
    SIZES += {large}
VALUES = {values}
CASES = [(*SIZES[0], values, dtype) for values in VALUES for dtype in DTYPES]
CASES += [(*size, "normal", DTYPES[at % len(DTYPES)]) for at, size in enumerate(SIZES)]
# What sums and functions may be wrong by, as a share of {share}.
TOLERANCE = {tolerance!r}
{measured}

def data(values: str, shape: tuple[int, ...]) -> Tensor:
    x = torch.randn(shape)
    match values:
        case "large":
            return 30 * x
        case "small":
            return x / 1000
        case "shifted":
            return x + 100
        case "constant":
            return torch.full(shape, 0.25)
{masked}    return x


def arguments(
    rows: int | tuple[int, ...],
    columns: int,
    values: str = "normal",
    dtype: torch.dtype = DTYPES[0],
    device: str = DEVICE,
) -> tuple[Tensor, ...]:
    """Inputs of their own for each case; `rows` may be several leading dimensions."""
    rows = rows if isinstance(rows, tuple) else (rows,)
    torch.manual_seed(len(values) + sum(rows))
    return (
{arguments}
    )


def check(found: Tensor, tensors: tuple[Tensor, ...]) -> None:
    """At most one and a half steps of the dtype, and TOLERANCE, away from float32."""
    wanted = reference(*(one.float() if one.is_floating_point() else one for one in tensors))
    assert (found.shape, found.dtype) == (wanted.shape, {typed_by}.dtype)
    info = torch.finfo(found.dtype)
    largest = {largest}
    allowed = 1.5 * info.eps * (wanted.abs() + info.tiny) + TOLERANCE * largest
    wrong = ~((found.float() - wanted).abs() <= allowed)
    places = wrong.nonzero()[:3].tolist()
    assert not wrong.any(), f"at {{places}}: {{found[wrong][:3]}}, not {{wanted[wrong][:3]}}"


# NumPy, by which the interpreter computes, warns of what no GPU warns of.
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@runs_kernel
{kernel}


@pytest.mark.skipif(GPU or INTERPRETED, reason="test_kernel ran in this process")
def test_kernel_interpreted() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "test_kernel"]
    environment = {{**os.environ, "TRITON_INTERPRET": "1"}}
    done = subprocess.run(
        [*command, __file__], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("rows", [(2, 3), (), (1, 1, 4)])
def test_leading_dimensions(rows: tuple[int, ...]) -> None:
    tensors = arguments(rows, {columns})
    check({stem}(*tensors), tensors)


@pytest.mark.parametrize("rows", [0, (2, 0), (0, 3)])
def test_no_rows(rows: int | tuple[int, ...]) -> None:
    tensors = arguments(rows, {columns})
    assert {stem}(*tensors).shape == reference(*tensors).shape


def test_views_with_an_offset() -> None:
    tensors = arguments(5, {columns})
    offset = tuple(
        torch.cat((one.new_zeros(3), one.flatten()))[3:].view(one.shape) for one in tensors
    )
    check({stem}(*offset), tensors)


{layouts}


@pytest.mark.parametrize("position, name", list(enumerate({names})))
def test_wrong_arguments_are_named(position: int, name: str) -> None:
    tensors: list[Any] = list(arguments(5, {columns}))
    good = tensors[position]
    wrong = [None, 1.0, good.to(torch.complex64), good.to("meta")]
    # More dimensions are wrong but for the first, which may have several in front.
    for value in wrong if position == 0 else [*wrong, good[..., None, None]]:
        tensors[position] = value
        with pytest.raises((TypeError, ValueError), match={named}):
            {stem}(*tensors)


def test_too_many_columns_are_refused() -> None:
    with pytest.raises(ValueError, match="last dimension"):
        {stem}(*arguments(1, {too_many}, device="cpu"))


def test_opcheck() -> None:
    torch.library.opcheck(_op, arguments(5, {columns}))


@pytest.mark.parametrize("backend", ["inductor"] if GPU else ["eager", "aot_eager"])
def test_compiles_without_a_graph_break(backend: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile({stem}, fullgraph=True, backend=backend)
    for rows, columns in ((3, {columns}), (5, {columns}), (8, {other_columns})):
        tensors = arguments(rows, columns)
        check(compiled(*tensors), tensors)


{backward}
'''

_MASKED = """        case "masked":
            return x.masked_fill(torch.rand(shape) < 0.5, -1e4)
        case "below zero":
            return x - 200
"""

_ANY_LENGTH = """
# The arguments are a tuple of any length, which for mypy could go on with `dim`.
# mypy: disable-error-code="arg-type"
"""
_PADDED = """def test_rows_with_a_gap() -> None:
    tensors = arguments((2, 3), {columns})
    padded = tuple(
        torch.cat((one, one.new_zeros(2, 3, 4)), -1)[..., :-4] if one.dim() == 3 else one
        for one in tensors
    )
    check({stem}(*padded), tensors)"""
_NOT_PADDED = """def test_rows_with_a_gap_are_refused() -> None:
    first, *others = arguments(5, {columns})
    with pytest.raises(ValueError, match="{lead} must be contiguous"):
        {stem}(torch.cat((first, first), -1)[:, : first.shape[1]], *others)"""
_COPIED = """

def test_any_layout_with_a_copy() -> None:
    tensors = arguments(5, {columns})
    turned = tuple(one.t().contiguous().t() if one.dim() == 2 else one for one in tensors)
    with pytest.raises(ValueError, match="pass copy=True"):
        {stem}(*turned)
    check({stem}(*turned, copy=True), tensors)"""

_BACKWARD = """def test_gradients_are_those_of_the_reference() -> None:
    tensors = arguments(3, {columns}, dtype=DTYPES[-1])
    inputs = [one.requires_grad_() for one in tensors if one.is_floating_point()]
    found, wanted = _op(*tensors), reference(*tensors)
    given = torch.randn_like(wanted)
    gradients, others = (torch.autograd.grad(one, inputs, given) for one in (found, wanted))
    torch.testing.assert_close(gradients, others)
    torch.library.opcheck(_op, tensors)"""


def render_test(
    op: Op,
    stem: str,
    support: Support,
    *,
    module: str,
    tolerance: float,
    limits: Domain | None = None,
    choice: Choice | None = None,
) -> str:
    """The text of `test_<stem>.py`, which imports the kernel from `module`.

    With `limits` every size of the test is one that the launcher takes. With a `choice` each of its
    kernels runs at every size, and the choice itself is tested.
    """
    verify = verify_command(stem, support)
    parameters = KINDS[op.kind].parameters
    names = tuple(parameter.name for parameter in parameters)
    small, large = _sizes(support, limits)
    values = ["normal", "large", "small", "shifted", "constant"]
    maskable = base_name(op) in _MASKABLE
    named = rf'r"\b({"|".join(names)})\b" if position == 0 else rf"\b{{name}}\b"'
    share, largest = _largest(op)
    typed_by = next(at for at, one in enumerate(parameters) if one.dtype == "x")
    fields = {
        "stem": stem,
        "mypy": _ANY_LENGTH if op.name in WITH_DIM else "",
        "module": module,
        "verify": verify,
        "imported": ", ".join((*_private(choice), *sorted(("reference", stem)))),
        "math": "import math\n" if choice else "",
        "measured": _MEASURED if choice else "",
        "small": repr(small),
        "large": repr(large),
        "values": repr([*values, "masked", "below zero"] if maskable else values).replace("'", '"'),
        "masked": _MASKED if maskable else "",
        "share": share,
        "tolerance": tolerance,
        "arguments": "\n".join(f"        {_draw(parameter)}," for parameter in parameters),
        "typed_by": f"tensors[{typed_by}]",
        "largest": largest,
        "names": repr(names).replace("'", '"'),
        "named": named,
        "columns": small[0][1],
        "other_columns": small[-1][1],
        "too_many": 2 * (support.heads[-1] if support.heads else support.max_columns),
    }
    shared = {"stem": stem, "columns": small[0][1], "lead": names[0]}
    if choice:
        all_of_them = "[one.kernel for one in SHAPES]"
        shared["entries"] = ", ".join(choice.entries)
        shared["others"] = all_of_them if choice.outside == "nearest" else "[reference]"
    fields["kernel"] = (_SEVERAL if choice else _ONE).format(**shared)
    fields["layouts"] = ((_PADDED if support.padded else _NOT_PADDED) + _COPIED).format(**shared)
    fields["backward"] = _BACKWARD.format(**shared)
    return _TEST.format(**fields)


def _private(choice: Choice | None) -> tuple[str, ...]:
    """The private names that the test takes."""
    if choice is None:
        return ("DTYPES", "_op", "_run")
    return ("DTYPES", "SHAPES", "_kernel_for", "_op", *choice.entries)


def _sizes(
    support: Support, limits: Domain | None
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Rows and columns: few for the interpreter; for a GPU more, up to a vocabulary's columns."""
    if support.heads:
        heads = [one for one in support.heads if limits is None or limits.columns(one) == one]
        small = list(zip((5, 3, 1, 2), heads or support.heads, strict=False))
        return small, [(4099, columns) for columns in heads or support.heads]
    wide = min(support.max_columns, 40000)
    wanted = ((5, 257), (1, wide), (3, 128), (2, 1), (1, 1000))
    large = ((37, 4097), (1024, 1024), (8, wide))
    small, many = (
        [
            (rows, limits.columns(columns) if limits else columns)
            for rows, columns in some
            if columns <= support.max_columns
        ]
        for some in (wanted, large)
    )
    return small or [(5, support.max_columns)], many


def _largest(op: Op) -> tuple[str, str]:
    """The scale of an error: the largest output of the row, or one where functions cancel."""
    if KINDS[op.kind].output == ("M",):
        largest = "max(1.0, float(wanted.abs().max()), float(tensors[0].abs().max()))"
        return "the largest number, or of one", largest
    row = "wanted.abs().amax(-1, keepdim=True)"
    if op.acts or base_name(op) in {*GATES, *ACTIVATIONS, "bias_gelu"}:
        return "the row's largest output, or of one", f"{row}.clamp(min=1)"
    return "the row's largest output", row


def _draw(parameter: Parameter) -> str:
    sizes = [_SIZES[symbol] for symbol in parameter.shape]
    shape = f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"
    if parameter.dtype == "int8":
        return f"torch.randint(-128, 128, {shape}, dtype=torch.int8).to(device)"
    if parameter.dtype == "int64":
        return f"torch.randint(0, columns, {shape}).to(device)"
    if parameter.name in _DATA:
        return f"data(values, {shape}).to(device, dtype)"
    if parameter.name in ("cos", "sin"):
        return f"(6 * torch.rand({shape})).{parameter.name}().to(device, dtype)"
    if parameter.name == "scale":
        return f"(0.5 + torch.rand({shape})).to(device, dtype)"
    return f"(1 + torch.randn({shape}) / 2).to(device, dtype)"


_SIZES: dict[Symbol, str] = {"M": "*rows", "N": "columns", "H": "columns // 2", "1": "1"}

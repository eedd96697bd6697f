"""What a file may ask of torch and of its inputs: every answer that a user's process could give is tried, or the question is refused."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from referee.target import Target
from referee.tracing import cuda_version
from referee.tracing.tracer import trace_source
from tests.referee.trace.bad import ALLOCATE, COPY, LAUNCH, body
from tests.referee.trace.good import rows, tensor

ONE = rows("x", shape=(3, 100))
TWO = rows("x", shape=(3, 100), extra=(tensor("w", (3, 100)),))
LAUNCH_ONE = LAUNCH.replace("triton.cdiv(x.numel(), 128)", "1")


def told(host: str, tmp_path: Path, cell: Any = ONE) -> dict[str, Any]:
    return trace_source(f"{COPY}\n{host}\n", str(tmp_path / "candidate.py"), Target(), [(cell.inputs, len(cell.outputs))])


def refused(host: str, tmp_path: Path, cell: Any = ONE) -> tuple[str, str]:
    answer = told(host, tmp_path, cell)
    assert "rejection" in answer, answer
    return answer["rejection"]["guard"], answer["rejection"]["reason"]


def either(condition: str, parameters: str = "x") -> str:
    """A `run` that launches less where the condition holds."""
    lines = (ALLOCATE, f"if {condition}:", f"    {LAUNCH_ONE}", "else:", f"    {LAUNCH}", "return y")
    return body(*lines).replace("run(x)", f"run({parameters})")


@pytest.mark.parametrize(
    "condition",
    [
        "torch.is_autocast_enabled() and not torch.is_autocast_enabled('cpu')",
        "torch.is_autocast_enabled('cpu') and not torch.is_autocast_enabled()",
        "torch.is_autocast_enabled(device_type='cuda:0') and not torch.is_grad_enabled()",
        "torch.is_autocast_enabled('cuda') and torch.get_autocast_dtype('cuda') == torch.bfloat16 and not torch.is_autocast_enabled('cpu')",
        "torch.get_autocast_dtype('cuda') == torch.float32",
        "torch.get_autocast_dtype('cpu') == torch.float16",
        "torch.get_autocast_dtype('cuda') == torch.bfloat16 and torch.get_autocast_dtype('cpu') == torch.float32",
        "torch.cuda.current_stream().cuda_stream == 2",
        "torch.cuda.current_stream().cuda_stream not in (0, 1, 2)",
        "triton.runtime.driver.active.get_current_stream(0) == 1",
    ],
)
def test_every_answer_is_tried(condition: str, tmp_path: Path) -> None:
    guard, reason = refused(either(condition), tmp_path)
    assert (guard, "second call" in reason) == ("state", True), reason


WITHIN = f"""
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, training):
        {ALLOCATE}
        if training and not torch.is_grad_enabled():
            {LAUNCH_ONE}
        else:
            {LAUNCH}
        return y

def run(x):
    return Copy.apply(x, {{outside}})
"""


@pytest.mark.parametrize(("outside", "passes"), [("torch.is_grad_enabled()", False), ("False", True)])
def test_torch_s_own_functions_switch_gradients_off_in_every_call(outside: str, passes: bool, tmp_path: Path) -> None:
    assert ("plans" in told(WITHIN.format(outside=outside), tmp_path)) == passes


def test_gradients_are_on_for_what_a_call_does(tmp_path: Path) -> None:
    guard, reason = refused(f"def run(x):\n    {ALLOCATE}\n    y.requires_grad_()\n    y.zero_()\n    {LAUNCH}\n    return y", tmp_path)
    assert (guard, "leaf Variable" in reason) == ("trace_error", True), reason


NAMED = f"""
def run({{given}}):
    {{first}}
    {ALLOCATE}
    if {{condition}}:
        {LAUNCH_ONE}
    else:
        {LAUNCH}
    return y
"""


@pytest.mark.parametrize(
    ("given", "first", "condition", "passes"),
    [
        ("*given, **named", "x, w = (*given, *named.values())", "named", False),
        ("*given, **named", "x, w = (*given, *named.values())", "len(named) == 1", False),
        ("first=None, x=None, w=None", "x, w = first if x is None else x, x if w is None else w", "first is None", False),
        ("*given, **named", "x, w = (*given, *named.values())", "len(named) > 2", True),
        ("*given, **named", "x, w = given", "named", True),
        ("x, w, eps=1e-6, **named", "", "named", True),
        ("v, x", "", "False", True),
    ],
)
def test_arguments_given_by_name_change_nothing(given: str, first: str, condition: str, passes: bool, tmp_path: Path) -> None:
    host = NAMED.format(given=given, first=first or "pass", condition=condition)
    answer = told(host, tmp_path, TWO)
    assert "plans" in answer if passes else "by name" in answer["rejection"]["reason"], answer


@pytest.mark.parametrize(
    ("condition", "says"),
    [
        ("torch.cuda.current_stream().cuda_stream > 1", "compare it with =="),
        ("4096 & torch.cuda.current_stream().cuda_stream", "compare it with =="),
        ("triton.runtime.driver.active.get_current_stream(0) % 4096 == 48", "compare it with =="),
        ("torch.finfo().bits == 64", "default dtype"),
        ("torch.finfo(type=None).bits == 64", "default dtype"),
        ("torch.result_type(1, 2.5) == torch.float64", "default dtype"),
        ("len({x, x}) == 2", "in a set"),
        ("x in {x[:1]: 1}", "in a set"),
    ],
)
def test_what_has_too_many_answers_is_refused(condition: str, says: str, tmp_path: Path) -> None:
    guard, reason = refused(either(condition), tmp_path)
    assert (guard, says in reason) == ("state", True), reason


@pytest.mark.parametrize(
    ("asked", "guard", "says"),
    [
        ("A = torch.is_grad_enabled()", "module_level", "torch.is_grad_enabled"),
        ("A = torch.compiler.is_compiling()", "module_level", "torch.compiler.is_compiling"),
        ("A = torch.cuda.current_stream().cuda_stream", "module_level", "torch.cuda.current_stream"),
        ("def rows_of(m, on=torch.is_autocast_enabled()):\n    return m", "module_level", "torch.is_autocast_enabled('cuda')"),
        ("class C:\n    on: bool = torch.jit.is_scripting()", "module_level", "torch.jit.is_scripting"),
        ("A = torch.finfo().bits", "state", "default dtype"),
    ],
)
def test_nothing_is_asked_while_the_file_is_imported(asked: str, guard: str, says: str, tmp_path: Path) -> None:
    found, reason = refused(body(ALLOCATE, LAUNCH, "return y", before=f"{asked}\n"), tmp_path)
    assert (found, says in reason) == (guard, True), reason


@pytest.mark.parametrize(
    "asked",
    [
        "torch.cuda.get_device_name(5)",
        "torch.cuda.get_device_properties(1)",
        "torch.cuda.get_device_capability('cuda:1')",
        "torch.cuda.current_stream(5)",
        "torch.cuda.default_stream(torch.device('cuda', 1))",
        "torch.cuda.synchronize(3)",
        "x.cuda(3)",
        "x.cuda(device='cuda:1')",
        "x.to(3)",
    ],
)
def test_there_is_no_other_device(asked: str, tmp_path: Path) -> None:
    caught = body(ALLOCATE, "try:", f"    {asked}", "except Exception:", "    pass", LAUNCH, "return y")
    assert refused(caught, tmp_path)[0] == "device"
    if not asked.startswith("x."):
        at_import = f"try:\n    {asked}\nexcept Exception:\n    pass\n"
        assert refused(body(ALLOCATE, LAUNCH, "return y", before=at_import), tmp_path)[0] == "device"


def test_cuda_makes_what_to_makes(tmp_path: Path) -> None:
    view = "x.view(1, 3, 100, 1)"
    steps = [
        told(body(ALLOCATE, f"z = {view}.{how}(memory_format=torch.channels_last)", LAUNCH.replace("x, y", "z, y"), "return y"), tmp_path)
        for how in ("cuda", "to")
    ]
    assert "plans" in steps[0] and steps[0] == steps[1]
    assert "source" in str(steps[0]["plans"][0]["steps"][0]), steps[0]


@pytest.mark.parametrize(
    "written",
    [
        "torch.zeros(x.shape, dtype=x.dtype, device=x.device, out=x.detach())",
        "torch.ones(x.shape, dtype=x.dtype, device=x.device, out=x.data)",
        "torch.full((3,), 0.0, dtype=x.dtype, device=x.device, out=x[:, 0])",
    ],
)
def test_nothing_is_written_through_out(written: str, tmp_path: Path) -> None:
    guard, reason = refused(body(ALLOCATE, LAUNCH, written, "return y"), tmp_path)
    assert (guard, "`out=`" in reason) == ("torch_compute", True), reason


@pytest.mark.parametrize(
    "condition",
    [
        "x.stride == w.stride",
        "len({x.stride, w.stride}) == 1",
        "getattr(x, 'stride') == getattr(w, 'stride')",
        "x.numel == w.numel and not torch.is_grad_enabled() and x.requires_grad",
    ],
)
def test_one_tensor_given_twice_changes_nothing(condition: str, tmp_path: Path) -> None:
    guard, reason = refused(either(condition, "x, w"), tmp_path, TWO)
    assert (guard, "given twice" in reason) == ("state", True), reason


@pytest.mark.parametrize(
    "condition",
    [
        "torch.version.cuda == '13.0'",
        "torch.version.cuda == '12.8'",
        "torch.__version__.endswith('cu130')",
        "getattr(torch, '__version__').endswith('cu128')",
        "torch.version.cuda < '13'",
    ],
)
def test_launches_do_not_depend_on_the_version_of_cuda(condition: str, tmp_path: Path) -> None:
    guard, reason = refused(either(condition), tmp_path)
    assert (guard, "version of CUDA" in reason) == ("state", True), reason


def test_the_version_of_triton_is_no_version_of_torch() -> None:
    assert not cuda_version.is_named(ast.parse("if triton.__version__ >= '3.0': pass"))
    assert cuda_version.is_named(ast.parse("import torch as triton\nA = triton.__version__"))


@pytest.mark.parametrize(
    "line",
    [
        "assert x.cuda(0) is x and x.cuda() is x and x.cuda('cuda', non_blocking=True) is x and x.to(0) is x",
        "assert torch.finfo(x.dtype).max and torch.finfo(torch.float32).eps and type(torch.finfo(x.dtype)) == torch.finfo",
        "assert isinstance(torch.finfo(type=x.dtype), torch.finfo) and torch.result_type(x, 2.5) == x.dtype",
        "s = torch.cuda.current_stream(x.device); s.synchronize(); assert {s: 1}[s] and s.cuda_stream != 5",
        "torch.cuda.synchronize(x.device); torch.cuda.get_device_name(x.get_device()); torch.cuda.get_device_properties('cuda')",
        "d = torch.get_autocast_dtype('cuda') if torch.is_autocast_enabled('cuda') else x.dtype; assert d.is_floating_point",
        "assert torch.promote_types(x.dtype, w.dtype) == x.dtype and torch.can_cast(x.dtype, w.dtype)",
        "assert torch.is_grad_enabled() or not torch.is_autocast_enabled() or torch.compiler.is_compiling() or True",
        "message = f'torch {torch.__version__}, CUDA {torch.version.cuda}'",
        "assert x.stride == x.stride and w.stride() == x.stride(); x = x.view(-1); w = w.view(-1)",
        "assert torch.__version__ >= '2.4' and tuple(int(p) for p in torch.version.cuda.split('.')) >= (11, 8)",
    ],
)
def test_honest_questions_are_answered(line: str, tmp_path: Path) -> None:
    launch = LAUNCH.replace("(x, y", "(w, y")
    run = body(ALLOCATE, line, LAUNCH, launch, "return y").replace("run(x)", "run(x, w)")
    assert "plans" in told(run, tmp_path, TWO)


HOLDER = """
class Holder(torch.nn.Module):
    def __init__(self, *given):
        super().__init__()
        for number, one in enumerate(given):
            if number == 0:
                self.first = one
            else:
                self.second = one

"""
WITHOUT_INIT = """
class Holder(torch.nn.Module):
    def __init__(self, *given):
        self.both = given

    @property
    def set_first(self):
        self.first = self.both[0]
        return True

    @property
    def set_second(self):
        self.second = self.both[1]
        return True

"""


@pytest.mark.parametrize(
    ("before", "condition"),
    [
        (HOLDER, "len(list(Holder(x, w).parameters())) == 1"),
        ("from torch.nn import Module as Base\n" + HOLDER.replace("torch.nn.Module", "Base"), "len(list(Holder(w, x).parameters())) == 1"),
        (WITHOUT_INIT, "(held := Holder(x, w)) and hasattr(held, 'set_first') and not hasattr(held, 'set_second')"),
    ],
)
def test_a_module_could_count_the_parameters_among_the_inputs(before: str, condition: str, tmp_path: Path) -> None:
    guard, reason = refused(before + either(condition, "x, w"), tmp_path, TWO)
    assert (guard, "second call" in reason) == ("state", True), reason


def test_a_module_of_the_file_may_hold_what_it_is_given(tmp_path: Path) -> None:
    assert "plans" in told(HOLDER + either("Holder(x, w).first.dim() == 3", "x, w"), tmp_path, TWO)

"""Candidates that break one rule each: what the tracer must say of them, should they get past the
screen.
"""

from __future__ import annotations

from dataclasses import dataclass

COPY = """
@triton.jit
def copy(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n), mask=i < n)
"""

LAUNCH = "copy[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)"


@dataclass(frozen=True)
class Bad:
    """A candidate's host code after the `copy` kernel, the guard that must catch it, and a word of
    the reason.
    """

    guard: str
    says: str
    host: str

    @property
    def source(self) -> str:
        """The whole candidate."""
        return f"{COPY}\n{self.host}\n"


def body(*lines: str, before: str = "") -> str:
    """A `run(x)` of these lines."""
    return before + "\ndef run(x):\n" + "\n".join(f"    {line}" for line in lines)


ALLOCATE = "y = torch.empty_like(x)"

BAD: dict[str, Bad] = {
    "softmax": Bad("torch_compute", "aten._softmax", body("return torch.softmax(x, -1)")),
    "arithmetic": Bad("torch_compute", "aten.mul", body(ALLOCATE, LAUNCH, "return y * 2")),
    "in_place_arithmetic": Bad(
        "torch_compute", "aten.add_", body(ALLOCATE, LAUNCH, "y += 1", "return y")
    ),
    "matmul": Bad("torch_compute", "aten.mm", body("return x @ x.t()")),
    "functional": Bad("torch_compute", "aten.gelu", body("return torch.nn.functional.gelu(x)")),
    "masked_write": Bad("torch_compute", "aten.", body(ALLOCATE, "y[x > 0] = 0", "return y")),
    "random": Bad("torch_compute", "aten.", body("return torch.rand_like(x)")),
    "arange": Bad(
        "torch_compute",
        "aten.arange",
        body("i = torch.arange(4, device=x.device)", ALLOCATE, LAUNCH, "return y"),
    ),
    "host_data": Bad(
        "torch_compute",
        "torch.tensor",
        body("t = torch.tensor([1, 2], device=x.device)", ALLOCATE, LAUNCH, "return y"),
    ),
    "resize": Bad(
        "torch_compute", "aten.resize_", body(ALLOCATE, LAUNCH, "return y.resize_(x.shape)")
    ),
    "caught_compute": Bad(
        "torch_compute",
        "aten.exp",
        body(
            "try:",
            "    y = torch.exp(x)",
            "except BaseException:",
            "    y = torch.empty_like(x)",
            LAUNCH,
            "return y",
        ),
    ),
    "gradients_not_taken": Bad(
        "trace_error",
        "AssertionError: no backward (in calls in training",
        body(ALLOCATE, 'assert not x.requires_grad, "no backward"', LAUNCH, "return y"),
    ),
    "gradients_wanted": Bad(
        "state",
        "in training",
        body(ALLOCATE, "if not x.requires_grad:", f"    {LAUNCH}", "return y"),
    ),
    "gradients_enabled": Bad(
        "state",
        "in training",
        body(ALLOCATE, "if not torch.is_grad_enabled():", f"    {LAUNCH}", "return y"),
    ),
    "parameter_given": Bad(
        "state",
        "in training",
        body(ALLOCATE, "if type(x) is torch.Tensor:", f"    {LAUNCH}", "return y"),
    ),
    "input_frozen": Bad(
        "state", "leave the inputs", body(ALLOCATE, LAUNCH, "x.requires_grad_(False)", "return y")
    ),
    "default_dtype": Bad(
        "state",
        "second call",
        body(
            ALLOCATE,
            "if torch.empty(1, device=x.device).dtype == torch.float32:",
            f"    {LAUNCH}",
            "return y",
        ),
    ),
    "limits_of_the_default_dtype": Bad(
        "state",
        "second call",
        body(ALLOCATE, "if torch.finfo().bits == 32:", f"    {LAUNCH}", "return y"),
    ),
    "autocast": Bad(
        "state",
        "autocast",
        body(ALLOCATE, "if not torch.is_autocast_enabled():", f"    {LAUNCH}", "return y"),
    ),
    "compiled": Bad(
        "state",
        "torch.compile",
        body(ALLOCATE, "if not torch.compiler.is_compiling():", f"    {LAUNCH}", "return y"),
    ),
    "another_stream": Bad(
        "state",
        "second call",
        body(
            ALLOCATE,
            "if torch.cuda.current_stream() == torch.cuda.default_stream():",
            f"    {LAUNCH}",
            "return y",
        ),
    ),
    "item": Bad("needs_value", "item()", body("k = x[0, 0].item()", ALLOCATE, LAUNCH, "return y")),
    "truth": Bad("needs_value", "", body("if x[0, 0]:", "    pass", ALLOCATE, LAUNCH, "return y")),
    "tolist": Bad("needs_value", "tolist()", body("x.tolist()", ALLOCATE, LAUNCH, "return y")),
    "numpy": Bad("needs_value", "numpy()", body("x.numpy()", ALLOCATE, LAUNCH, "return y")),
    "nonzero": Bad("needs_value", "nonzero", body("x.nonzero()", ALLOCATE, LAUNCH, "return y")),
    "equal": Bad("needs_value", "equal", body("torch.equal(x, x)", ALLOCATE, LAUNCH, "return y")),
    "float_of": Bad("needs_value", "", body("s = float(x[0, 0])", ALLOCATE, LAUNCH, "return y")),
    "to_cpu": Bad("needs_value", "cpu()", body("x.cpu()", ALLOCATE, LAUNCH, "return y")),
    "to_other_device": Bad("device", "cpu", body('x.to("cpu")', ALLOCATE, LAUNCH, "return y")),
    "cpu_output": Bad(
        "device", "device=x.device", body("y = torch.empty(x.shape)", LAUNCH, "return y")
    ),
    "second_gpu": Bad(
        "device", "cuda:1", body('y = torch.empty_like(x, device="cuda:1")', LAUNCH, "return y")
    ),
    "second_gpu_by_number": Bad(
        "device", "cuda:1", body("y = torch.empty_like(x, device=1)", LAUNCH, "return y")
    ),
    "second_gpu_context": Bad(
        "device",
        "cuda:1",
        body("with torch.cuda.device(1):", f"    {ALLOCATE}", LAUNCH, "return y"),
    ),
    "memoised_output": Bad(
        "state",
        "not made in this call",
        body(
            'if "y" not in CACHE:',
            "    CACHE['y'] = torch.empty_like(x)",
            "y = CACHE['y']",
            LAUNCH,
            "return y",
            before="CACHE = {}\n",
        ),
    ),
    "call_counter": Bad(
        "state",
        "second call",
        body(
            "CALLS.append(1)",
            ALLOCATE,
            "copy[(len(CALLS),)](x, y, x.numel(), BLOCK=128)",
            "return y",
            before="CALLS = []\n",
        ),
    ),
    "module_level_tensor": Bad(
        "module_level",
        "imported",
        body(
            ALLOCATE,
            LAUNCH,
            "return y",
            before='T = torch.empty(4, dtype=torch.int8, device="cuda")\n',
        ),
    ),
    "module_level_launch": Bad(
        "module_level",
        "imported",
        body(ALLOCATE, LAUNCH, "return y", before="copy[(1,)](None, None, 1, BLOCK=128)\n"),
    ),
    "stream": Bad(
        "launch_feature",
        "torch.cuda.Stream",
        body("s = torch.cuda.Stream()", ALLOCATE, LAUNCH, "return y"),
    ),
    "graph": Bad(
        "launch_feature",
        "torch.cuda.CUDAGraph",
        body("g = torch.cuda.CUDAGraph()", ALLOCATE, LAUNCH, "return y"),
    ),
    "clusters": Bad(
        "launch_feature",
        "num_ctas",
        body(ALLOCATE, "copy[(1,)](x, y, 1, BLOCK=128, num_ctas=2)", "return y"),
    ),
    "cooperative": Bad(
        "launch_feature",
        "cooperative",
        body(ALLOCATE, "copy[(1,)](x, y, 1, BLOCK=128, launch_cooperative_grid=True)", "return y"),
    ),
    "dependent_launch": Bad(
        "launch_feature",
        "dependent",
        body(ALLOCATE, "copy[(1,)](x, y, 1, BLOCK=128, launch_pdl=True)", "return y"),
    ),
    "warmup": Bad(
        "launch_feature",
        "warmup",
        body(ALLOCATE, "copy.warmup(x, y, 1, BLOCK=128, grid=(1,))", LAUNCH, "return y"),
    ),
    "run_hook": Bad(
        "launch_feature", "hook", body("copy.add_pre_run_hook(print)", ALLOCATE, LAUNCH, "return y")
    ),
    "config_hook": Bad(
        "launch_feature",
        "pre_hook",
        body(
            ALLOCATE,
            "tuned[(1,)](x, y, 1)",
            "return y",
            before='tuned = triton.autotune([triton.Config({"BLOCK": 64}, pre_hook=print)], ["n"])(copy)\n',
        ),
    ),
    "reinterpret": Bad(
        "launch_feature",
        "TensorWrapper",
        body(ALLOCATE, "copy[(1,)](triton.reinterpret(x, tl.int16), y, 1, 128)", "return y"),
    ),
    "function_argument": Bad(
        "launch_feature",
        "JITFunction",
        body(ALLOCATE, "copy[(1,)](x, y, copy, BLOCK=128)", "return y"),
    ),
    "nothing_returned": Bad("output_contract", "NoneType", body(ALLOCATE, LAUNCH)),
    "tuple_returned": Bad("output_contract", "tuple", body(ALLOCATE, LAUNCH, "return (y,)")),
    "parameter_returned": Bad(
        "output_contract", "Parameter", body(ALLOCATE, LAUNCH, "return torch.nn.Parameter(y)")
    ),
    "too_many_steps": Bad(
        "plan_size",
        "256 steps",
        body(ALLOCATE, "for _ in range(300):", f"    {LAUNCH}", "return y"),
    ),
    "too_many_tensors": Bad(
        "plan_size",
        "256 tensors",
        body("for _ in range(300):", f"    {ALLOCATE}", LAUNCH, "return y"),
    ),
    "unknown_option": Bad(
        "trace_error",
        "KeyError",
        body(ALLOCATE, "copy[(1,)](x, y, 1, BLOCK=128, warps=4)", "return y"),
    ),
    "missing_argument": Bad(
        "trace_error", "TypeError", body(ALLOCATE, "copy[(1,)](x, y, BLOCK=128)", "return y")
    ),
    "integer_grid": Bad(
        "trace_error", "grid", body(ALLOCATE, "copy[4](x, y, 1, BLOCK=128)", "return y")
    ),
    "float_grid": Bad(
        "trace_error",
        "integers",
        body(ALLOCATE, "copy[(x.numel() / 128,)](x, y, 1, BLOCK=128)", "return y"),
    ),
    "negative_grid": Bad(
        "trace_error", "negative", body(ALLOCATE, "copy[(-1,)](x, y, 1, BLOCK=128)", "return y")
    ),
    "torch_dtype": Bad(
        "trace_error",
        "Triton dtype",
        body(ALLOCATE, "copy[(1,)](x, y, 1, BLOCK=torch.float32)", "return y"),
    ),
    "list_argument": Bad(
        "trace_error", "list", body(ALLOCATE, "copy[(1,)](x, y, [1], BLOCK=128)", "return y")
    ),
    "exception": Bad("trace_error", "line 9: ValueError: no", body("raise ValueError('no')")),
    "system_exit": Bad("trace_error", "SystemExit", body("raise SystemExit(0)")),
    "no_run": Bad("trace_error", "run", "def go(x):\n    return x"),
    "wrong_parameters": Bad(
        "trace_error", "(it is called as run(x))", "def run():\n    return None"
    ),
    "import_error": Bad(
        "trace_error", "ImportError", "from torch import nowhere\n\ndef run(x):\n    return x"
    ),
    "nested_kernel": Bad(
        "trace_error",
        "top level",
        body(
            "src = copy",
            ALLOCATE,
            "other = triton.jit(HIDDEN)",
            "other[(1,)](x, y)",
            "return y",
            before="def HIDDEN(x, y):\n    tl.store(y, tl.load(x))\n",
        ),
    ),
}

# Caught by the judge, from the plan.
BAD_PLANS: dict[str, Bad] = {
    "input_returned": Bad("output_alias", "view of an input", body(ALLOCATE, LAUNCH, "return x")),
    "input_view_returned": Bad(
        "output_alias", "view of an input", body(ALLOCATE, LAUNCH, "return x.view(x.shape)")
    ),
    "input_filled": Bad("input_written", "inputs", body(ALLOCATE, LAUNCH, "x.zero_()", "return y")),
    "input_overwritten": Bad(
        "input_written", "inputs", body(ALLOCATE, LAUNCH, "x.copy_(y)", "return y")
    ),
    "wrong_shape": Bad("output_contract", "shape", body(ALLOCATE, LAUNCH, "return y.view(-1)")),
    "wrong_dtype": Bad(
        "output_contract",
        "float32",
        body("y = torch.empty_like(x, dtype=torch.float32)", LAUNCH, "return y"),
    ),
    "with_gaps": Bad(
        "output_contract",
        "contiguous",
        body("y = x.new_empty((x.shape[0], 2 * x.shape[1]))[:, : x.shape[1]]", LAUNCH, "return y"),
    ),
    "no_launch": Bad("no_kernel", "no Triton kernel", body("return x.clone()")),
    "hoarding": Bad(
        "plan_size",
        "memory",
        body(
            ALLOCATE, LAUNCH, "z = torch.zeros(1 << 28, dtype=x.dtype, device=x.device)", "return y"
        ),
    ),
    "huge_grid": Bad(
        "launch_limits", "grid", body(ALLOCATE, "copy[(1, 70000)](x, y, 1, BLOCK=128)", "return y")
    ),
    "odd_warps": Bad(
        "launch_limits",
        "num_warps",
        body(ALLOCATE, "copy[(1,)](x, y, 1, BLOCK=128, num_warps=3)", "return y"),
    ),
}

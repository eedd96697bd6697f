"""References as people write them: what is unwrapped, moved and bound, and what is said of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from referee.reference.asked import Asked
from referee.reference.load import load_reference
from referee.reference.reference import Reference
from referee.reference.unusable import UnusableReference
from tests.referee.own_reference import load_user

FILE = """
import functools
import torch
import torch.nn as nn

def get_inputs():
    return [torch.randn(4, 64, device="cuda"), torch.rand(64).cuda()]

def on_cuda(x, w):
    assert x.is_cuda
    return x * w + torch.ones(64, device="cuda")

@torch.jit.script
def scripted(x, w):
    return x * w

@torch.compile(mode="max-autotune")
def compiled(x, w):
    return x * w

class Norm(nn.Module):
    def __init__(self, n, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.full((n,), 2.0))
        self.eps = eps

    def forward(self, x):
        return x * self.weight

    def twice(self, x):
        return x * self.weight * 2

class Layers(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(64, 3))

class SameName(nn.Module):
    def __init__(self):
        super().__init__()
        self.x = nn.Parameter(torch.full((64,), 2.0))

    def forward(self, x):
        return x * self.x

class Dropped(nn.Module):
    def __init__(self):
        super().__init__()
        self.dropout = nn.Dropout(0.5)

    def forward(self, x):
        return self.dropout(x) * 2

norm = Norm(64)
compiled_norm = torch.compile(Norm(64))

class Plain:
    factor = 2.0

    def scale(self, x):
        return x * self.factor

    @staticmethod
    def shift(x):
        return x + 1

    def __call__(self, x):
        return x * 2

plain = Plain()
partial = functools.partial(lambda x, alpha: x * alpha, alpha=2.0)

class Fn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

def outputs(x):
    return {"y": x * 2, "aux": None, "total": x.sum(-1)}

def keyword_only(x, *, w):
    return x * w

def variadic(*xs):
    return xs[0] + xs[1]

def dictionary(batch):
    return batch["x"] * batch["m"]

def optimizer(p, g, m):
    m.mul_(0.5).add_(g)
    p.sub_(m)

def gradient(x, dy):
    x = x.detach().requires_grad_(True)
    with torch.enable_grad():
        return torch.autograd.grad(torch.nn.functional.silu(x), x, dy)[0]
"""
DOUBLED = (
    "norm",
    "compiled_norm",
    "Norm(64)",
    "plain",
    "Plain.scale",
    "plain.scale",
    "Fn",
    "SameName",
)


def load(folder: Path, name: str, *inputs: str, text: str = FILE) -> Reference:
    file = folder / "reference.py"
    file.write_text(text)
    return load_reference(Asked(str(file), name, inputs))


@pytest.mark.parametrize("name", DOUBLED)
def test_what_can_be_called_is_a_reference(tmp_path: Path, name: str) -> None:
    """Modules, instances, methods and autograd functions that double their input."""
    reference = load(tmp_path, name, "x=f32[B,64]")
    (x, *state) = reference.examples[0].tensors()
    found = reference.function(x, *state)
    assert torch.equal(found, x * (2.0 if not state else state[0]))
    assert [argument.origin for argument in reference.arguments] == [
        "parameter",
        *["state"] * len(state),
    ]


@pytest.mark.parametrize(("name", "factor"), [("Norm(64).twice", 4.0), ("norm.twice", 4.0)])
def test_a_method_of_a_module_has_its_state(tmp_path: Path, name: str, factor: float) -> None:
    reference = load(tmp_path, name, "x=f32[B,64]")
    assert reference.tensors == ("x", "weight")
    assert torch.equal(
        reference.function(torch.ones(64), torch.full((64,), 2.0)), torch.full((64,), factor)
    )


@pytest.mark.parametrize(
    ("name", "notes"),
    [
        ("on_cuda", ["its cuda tensors are on the CPU, because no GPU can be used here"]),
        ("scripted", ["torch.compile and torch.jit are left out"]),
        ("compiled", ["torch.compile and torch.jit are left out"]),
    ],
)
def test_inputs_and_decorators_of_a_gpu_are_moved(
    tmp_path: Path, name: str, notes: list[str]
) -> None:
    """get_inputs() that asks for cuda, and functions that are compiled or scripted."""
    if torch.cuda.is_available():
        pytest.skip("there is a GPU to put it on")
    reference = load(tmp_path, name)
    found = reference.function(*reference.examples[0].tensors())
    assert found.shape == (4, 64) and found.device.type == "cpu"
    assert all(any(said.startswith(note) for said in reference.notes) for note in notes)


@pytest.mark.parametrize(
    ("name", "inputs", "arguments", "outputs"),
    [
        ("outputs", "x=f32[B,N]", ("x",), ("y", "total")),
        ("keyword_only", "x=f32[N] w=f32[N]", ("x", "w"), ("out",)),
        ("variadic", "xs.0=f32[N] xs.1=f32[N]", ("xs_0", "xs_1"), ("out",)),
        ("dictionary", "batch.x=f32[N] batch.m=bool[N]", ("batch_x", "batch_m"), ("out",)),
        ("optimizer", "p=f32[N] g=f32[N] m=f32[N]", ("p", "g", "m"), ("p", "m")),
        ("gradient", "x=f32[N] dy=f32[N]", ("x", "dy"), ("out",)),
        ("partial", "x=f32[N]", ("x", "alpha"), ("out",)),
        ("SameName", "x=f32[N,64]", ("x", "state_x"), ("out",)),
        ("Layers", "input=f32[N,64]", ("input", "state_0_weight", "state_0_bias"), ("out",)),
    ],
)
def test_arguments_and_outputs_have_names(
    tmp_path: Path, name: str, inputs: str, arguments: tuple[str, ...], outputs: tuple[str, ...]
) -> None:
    reference = load(tmp_path, name, inputs)
    assert tuple(argument.name for argument in reference.arguments) == arguments
    assert reference.outputs == outputs


def test_in_place_arguments_are_outputs(tmp_path: Path) -> None:
    """A function that returns None answers with what it changes."""
    reference = load(tmp_path, "optimizer", "p=f32[N] g=f32[N] m=f32[N]")
    p, g, m = torch.ones(3), torch.ones(3), torch.full((3,), 4.0)
    found = reference.function(p, g, m)
    assert [one.tolist() for one in found] == [[-2.0] * 3, [3.0] * 3] and reference.mutates == ()
    assert reference.changes == ("p", "m")
    assert any("changes p, m in place" in note for note in reference.notes)


def test_a_model_is_put_in_eval_mode_and_it_is_said(tmp_path: Path) -> None:
    reference = load(tmp_path, "Dropped", "x=f32[N]")
    assert torch.equal(reference.function(torch.ones(3)), torch.full((3,), 2.0))
    assert "Dropped is put in eval mode" in reference.notes


def test_parameters_take_the_dtype_of_the_inputs(tmp_path: Path) -> None:
    """A layer whose parameters are float32, where the function refuses other inputs."""
    reference = load(tmp_path, "Layers", "input=bf16[N,64]")
    assert {one.dtype for one in reference.examples[0].tensors()} == {torch.bfloat16}
    assert any("parameters are bfloat16" in note for note in reference.notes)


@pytest.mark.parametrize(
    ("made", "name", "arguments"),
    [
        ('{"x": torch.ones(3), "w": torch.ones(3)}', "keyword_only", ("x", "w")),
        ('[torch.ones(3)], {"w": torch.ones(3)}', "keyword_only", ("x", "w")),
        ("[torch.ones(3), torch.ones(3)]", "keyword_only", ("x", "w")),
        ('[{"x": torch.ones(3), "m": torch.ones(3)}]', "dictionary", ("batch_x", "batch_m")),
        ("torch.ones(3)", "plain", ("x",)),
        ("[torch.ones(3), torch.ones(3)]", "variadic", ("xs_0", "xs_1")),
    ],
)
def test_get_inputs_may_give_names(
    tmp_path: Path, made: str, name: str, arguments: tuple[str, ...]
) -> None:
    reference = load(tmp_path, name, text=f"{FILE}\ndef get_inputs():\n    return {made}\n")
    assert reference.tensors == arguments


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Norm", "make it with values, as in Norm(4096)"),
        ("norm.absent", "norm has no method 'absent'"),
        ("nn", "nn is a module"),
        ("Norm(64", "is no name"),
        ("Norm(nn)", "a class is made with plain values"),
        ("absent", "the file defines no function 'absent'"),
    ],
)
def test_a_name_that_cannot_be_called_says_why(tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(UnusableReference) as refused:
        load(tmp_path, name, "x=f32[B,64]")
    assert words in str(refused.value)


def test_the_source_is_what_the_function_uses(tmp_path: Path) -> None:
    helpers = "def helper(x):\n    return x + EPS\ndef unused(x):\n    return x\n"
    text = f"import torch\nEPS = 1e-6\nOTHER = 2\n{helpers}def f(x):\n    return helper(x)\n"
    reference = load(tmp_path, "f", "x=f32[N]", text=text)
    assert "helper" in reference.source and "EPS = 1e-6" in reference.source
    assert "unused" not in reference.source and "OTHER" not in reference.source


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("Norm(64)", "x=f32[B,64]"),
        ("partial", "x=f32[N]"),
        ("keyword_only", "x=f32[N] w=f32[N]"),
        ("Norm(64).twice", "x=f32[B,64]"),
    ],
)
def test_baselines_compile_the_users_code_whole(tmp_path: Path, name: str, inputs: str) -> None:
    """Nothing around it breaks the graph: a baseline would be slower than the user's own, and a
    kernel win against it.
    """
    task = (
        load_user(tmp_path / "reference.py", name, "cpu", inputs)
        if load(tmp_path, name, inputs)
        else None
    )
    assert task is not None and task.timed is not None
    values = task.inputs(task.cells[0], 1)
    torch._dynamo.reset()
    compiled = torch.compile(task.timed, fullgraph=True, backend="eager")
    assert torch.equal(compiled(*values), task.eager(*values))

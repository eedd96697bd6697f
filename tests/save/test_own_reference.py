"""Kernels of a user's own reference: the inputs that a saved file takes, its calls, and later
verdicts.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kmint_tui.save.own_reference import (
    Argument,
    OwnReference,
    ReferenceFile,
    own_reference,
    reference_file,
)
from kmint_tui.save.receipt import load
from kmint_tui.save.saving import Saved, save
from kmint_tui.save.verifying import own_reference as reference_of
from referee.judge import Referee
from referee.ops import Cell, TensorSpec, get
from referee.ops.cells import Profile, contiguous_strides
from referee.problem import Problem, TaskName
from referee.reference.asked import Asked
from referee.verdict import CellResult, Mode, Verdict
from tests.cli.runner import kmint
from tests.save.conftest import draft, save_gold, session
from tests.save.test_host_code import GOOD

# Every name is one that the saved file uses as well.
NAMES = ("tensor", "name", "type", "torch", "Tensor", "isinstance", "_run", "JUDGED")
COLLIDING = f"""
import torch as t

def odd({", ".join(NAMES)}):
    return 2.0 * tensor - name + 3.0 * type - torch * Tensor + isinstance - _run * JUDGED

EXAMPLES = [
    [t.randn(4, 33) for _ in range({len(NAMES)})],
    [t.randn(2, 16) for _ in range({len(NAMES)})],
    [t.randn(2, 16, dtype=t.float16) for _ in range({len(NAMES)})],
]
"""
KERNEL = """
import torch
import triton
import triton.language as tl

@triton.jit
def _kernel(a, b, c, d, e, f, g, h, out, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < size
    first = 2.0 * tl.load(a + at, mask=mask).to(tl.float32) - tl.load(b + at, mask=mask).to(tl.float32)
    second = 3.0 * tl.load(c + at, mask=mask).to(tl.float32)
    third = tl.load(d + at, mask=mask).to(tl.float32) * tl.load(e + at, mask=mask).to(tl.float32)
    fourth = tl.load(f + at, mask=mask).to(tl.float32)
    fifth = tl.load(g + at, mask=mask).to(tl.float32) * tl.load(h + at, mask=mask).to(tl.float32)
    tl.store(out + at, first + second - third + fourth - fifth, mask=mask)

def run(a, b, c, d, e, f, g, h):
    out = torch.empty_like(a)
    _kernel[(triton.cdiv(a.numel(), 128),)](a, b, c, d, e, f, g, h, out, a.numel(), BLOCK=128)
    return out
"""
SOFTMAX = """
import torch

def softmax(x):
    return torch.softmax(x, -1)

def get_inputs():
    return [torch.randn(5, 128)]
"""
FILE = ReferenceFile("mine.py:fused", "ab" * 32)


def of_cells(cells: Callable[[Profile], list[Cell]]) -> OwnReference:
    return OwnReference(file=FILE, cells=cells)


def cell(name: str, *inputs: Argument) -> Cell:
    specs = tuple(
        TensorSpec(f"a{i}", one.shape, one.dtype, contiguous_strides(one.shape))  # type: ignore[arg-type]
        for i, one in enumerate(inputs)
    )
    return Cell(name, specs, (), "normal", (1.0,), "required")


def made_up(*results: CellResult, mode: Mode = "interpret") -> Verdict:
    return Verdict("mine:fused", "correct", "done", "because", None, mode, cells=results)


PASSED = made_up(CellResult("example0-given", "required", "pass"))


def saved(
    folder: Path,
    name: str = "mine:fused",
    arguments: tuple[str, ...] = ("x",),
    by: str | None = None,
) -> Saved:
    """A kernel with a made-up verdict, minted by the reference `name` and saved by the reference
    `by`.
    """
    op = replace(get("softmax"), origin="user", name=by or name, kind="user", arguments=arguments)
    own = of_cells(
        lambda profile: [cell("example0-given", *[Argument((5, 7), "float32") for _ in arguments])]
    )
    return save(session(name), draft(GOOD, PASSED), op, folder, judge=lambda text: PASSED, own=own)


@pytest.fixture(scope="module")
def folder(referee: Referee, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`odd.py` and what belongs to it, really judged and saved."""
    made = tmp_path_factory.mktemp("own")
    path = made / "reference" / "odd.py"
    path.parent.mkdir()
    path.write_text(COLLIDING, encoding="utf-8")
    task = TaskName("odd", str(path))
    op = Problem(task).op
    assert op.arguments == NAMES
    verdict = referee.judge(KERNEL, task, level="correct")
    assert verdict.passed, verdict.reason
    own = own_reference(Asked(str(path)), Problem(task).cells, op.arguments)
    save(
        session(op.name),
        draft(KERNEL, verdict),
        op,
        made / "saved",
        judge=lambda text: referee.judge(text, task, level="correct"),
        own=own,
    )
    return made


CALLS = """
import contextlib, importlib.util, json, sys
from pathlib import Path
import torch

# Triton's interpreter runs on the CPU, so that the check for a GPU is left out.
text = Path(sys.argv[1]).read_text().replace('tensor.device.type != "cuda" or ', "")
path = Path(sys.argv[2]) / "odd_on_the_cpu.py"
path.write_text(text)
spec = importlib.util.spec_from_file_location("odd", path)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
torch.cuda.device = lambda device: contextlib.nullcontext()

def example(shape, dtype=torch.float32):
    return [torch.randn(shape, dtype=dtype) for _ in range(8)]

def call(*tensors, **named):
    first, again = once(*tensors, **named), once(*tensors, **named)
    return first if first == again else (first, again)

def once(*tensors, **named):
    try:
        found = module.odd(*tensors, **named)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    a, b, c, d, e, f, g, h = [one.float() for one in (*tensors, *named.values())]
    return bool(torch.allclose(found.float(), 2 * a - b + 3 * c - d * e + f - g * h, rtol=2e-3, atol=2e-2))

def with_second(tensors, wrong):
    return [tensors[0], wrong, *tensors[2:]]

one = example((4, 33))
print(json.dumps({
    "judged": call(*one),
    "by name": call(**dict(zip(module.ARGUMENTS, one))),
    "half": call(*example((2, 16), torch.float16)),
    "no tensor": call(*with_second(one, 1.0)),
    "dtype": call(*with_second(one, one[1].double())),
    "shape": call(*with_second(one, torch.randn(33))),
    "more rows": call(*example((5, 33))),
    "half at another shape": call(*example((4, 33), torch.float16)),
    "shapes of two examples": call(*with_second(one, torch.randn(2, 16))),
    "gap": call(*with_second(one, torch.randn(33, 4).t())),
    "gradient": call(*with_second(one, one[1].clone().requires_grad_())),
    "kept": sorted({str(dtype) for _, *read in module._KEPT for dtype in read[1::5]}),
    "without checks": setattr(module, "_checked", None) or call(*one),
}))
"""


@pytest.fixture(scope="module")
def told(folder: Path) -> dict[str, Any]:
    """What the saved file answers in Triton's interpreter: whether the result is right, or the
    error.
    """
    file = folder / "saved" / "odd.py"
    done = subprocess.run(
        [sys.executable, "-c", CALLS, str(file), str(folder)],
        capture_output=True,
        text=True,
        env={**os.environ, "TRITON_INTERPRET": "1"},
    )
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    assert isinstance(answers, dict)
    return answers


@pytest.mark.parametrize("what", ["judged", "by name", "half", "without checks"])
def test_no_argument_hides_a_name_that_the_file_uses(told: dict[str, Any], what: str) -> None:
    assert told[what] is True


def test_only_calls_that_passed_the_checks_are_kept(told: dict[str, Any]) -> None:
    assert told["kept"] == ["torch.float16", "torch.float32"]


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("no tensor", "TypeError: name must be a torch.Tensor, not float"),
        (
            "dtype",
            "TypeError: name is torch.float64; the kernel was judged with torch.float16 or torch.float32",
        ),
        (
            "shape",
            "ValueError: name has shape (33,); the kernel was judged with (2, 16) or (4, 33)",
        ),
        (
            "more rows",
            "ValueError: tensor has shape (5, 33); the kernel was judged with (2, 16) or (4, 33)",
        ),
        (
            "half at another shape",
            "ValueError: the kernel was not judged with these together: tensor (4, 33) torch.float16, name (4, 33)",
        ),
        (
            "shapes of two examples",
            "ValueError: the kernel was not judged with these together: tensor (4, 33) torch.float32, name (2, 16)",
        ),
        ("gap", "ValueError: name must be contiguous; pass name.contiguous()"),
        ("gradient", "NotImplementedError: odd has no backward"),
    ],
)
def test_what_was_not_judged_is_refused_and_named(
    told: dict[str, Any], what: str, words: str
) -> None:
    assert str(told[what]).startswith(words)


def test_file_and_receipt_list_what_was_judged(folder: Path) -> None:
    file = folder / "saved" / "odd.py"
    spec = importlib.util.spec_from_file_location("odd", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.ARGUMENTS == module.TENSORS == NAMES and module.NUMBERS == ()
    wanted = {((2, 16), torch.float32), ((4, 33), torch.float32), ((2, 16), torch.float16)}
    assert {entry[0][0] for entry in module.JUDGED} == wanted and len(module.JUDGED) == 3
    receipt = load((folder / "saved" / "odd.receipt.json").read_text(encoding="utf-8"))
    found = [signature["tensors"] for signature in receipt["support"]["signatures"]]
    listed = [
        [(tuple(one["shape"]), one["dtype"]) for one in tensors.values()] for tensors in found
    ]
    assert listed == [
        [(shape, str(dtype).removeprefix("torch.")) for shape, dtype in entry[0]]
        for entry in module.JUDGED
    ]
    assert all(tuple(tensors) == NAMES for tensors in found)
    assert module.__doc__ and "JUDGED below" in module.__doc__ and "`support`" in module.__doc__


def test_file_and_receipt_name_the_reference(folder: Path) -> None:
    receipt = load((folder / "saved" / "odd.receipt.json").read_text(encoding="utf-8"))
    wanted = reference_file(Asked(str(folder / "reference" / "odd.py")))
    assert receipt["reference"] == {"name": "odd.py", "sha256": wanted.sha256}
    text = (folder / "saved" / "odd.py").read_text(encoding="utf-8")
    assert "    kmint verify odd.py --reference PATH/TO/odd.py\n" in text
    assert str(folder) not in text
    assert reference_of(folder / "saved" / "odd.py") == wanted
    (folder / "alone").mkdir()
    shutil.copy(folder / "saved" / "odd.py", folder / "alone" / "odd.py")
    assert reference_of(folder / "alone" / "odd.py") == wanted


def run_test(folder: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(folder),
        str(folder),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout + done.stderr


def test_the_saved_test_says_what_it_does(folder: Path) -> None:
    run_test(folder / "saved")
    text = (folder / "saved" / "test_odd.py").read_text(encoding="utf-8")
    assert "against the function that it was judged by" in text
    assert "kmint verify odd.py --reference PATH/TO/odd.py" in text
    copy = (folder / "saved" / "odd_reference.py").read_text(encoding="utf-8")
    assert "import torch as t" not in copy and "EXAMPLES" not in copy and "def odd(" in copy


COMPILED = """
import importlib.util, re, sys, torch
from pathlib import Path

# Traced without a GPU and without the kernel: what torch.compile makes of the checks.
text = Path(sys.argv[1]).read_text().replace('tensor.device.type != "cuda" or ', "")
text = text.replace("with torch.cuda.device(tensors[0].device):", "if True:")
text, count = re.subn(r"_run\\(\\s*shaped[^)]*\\)", "tensors[0] * 2", text)
assert count == 1
path = Path(sys.argv[2]) / "odd_compiled.py"
path.write_text(text)
spec = importlib.util.spec_from_file_location("odd", path)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
compiled = torch.compile(module.odd, fullgraph=True, backend="aot_eager")
for shape in ((4, 33), (2, 16)):
    tensors = [torch.randn(shape) for _ in range(8)]
    assert torch.equal(compiled(*tensors), tensors[0] * 2)
"""


def test_torch_compile_traces_the_checks(folder: Path, tmp_path: Path) -> None:
    """Within a time: compared as nested tuples, sizes that torch.compile takes for symbols kept it
    busy for minutes.
    """
    command = [sys.executable, "-c", COMPILED, str(folder / "saved" / "odd.py"), str(tmp_path)]
    subprocess.run(command, check=True, timeout=120)


def test_the_saved_test_finds_a_check_that_is_gone(folder: Path, tmp_path: Path) -> None:
    changed = Path(shutil.copytree(folder / "saved", tmp_path / "saved"))
    text = (changed / "odd.py").read_text(encoding="utf-8")
    (changed / "odd.py").write_text(
        text.replace("raise _not_judged(tensors)", "pass"), encoding="utf-8"
    )
    with pytest.raises(AssertionError, match="failed"):
        run_test(changed)


@pytest.mark.usefixtures("warm")
def test_a_folder_with_kernels_of_both_kinds(
    referee: Referee, folder: Path, tmp_path: Path
) -> None:
    mixed = Path(shutil.copytree(folder / "saved", tmp_path / "mixed"))
    save_gold(referee, "row_rmsnorm", mixed)
    refused = kmint("verify", str(mixed))
    assert refused.code == 2 and "odd.py --reference" in refused.err
    done = kmint(
        "verify", str(mixed), "--reference", str(folder / "reference" / "odd.py"), "--json"
    )
    assert done.code == 0, done.out
    assert {one["op"] for one in done.document["kernels"]} == {"odd", "rmsnorm"}

"""Functions of the catalogue with two outputs, and a backward: their saved tests run the kernel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kmint_tui.save.own_reference import own_reference
from kmint_tui.save.saving import Saved, save
from referee.problem import Problem, TaskName
from referee.verdict import CellResult, Verdict
from tests.save.conftest import draft, session

HEAD = "import torch\nimport triton\nimport triton.language as tl\n\n"
BOTH = """
@triton.jit
def _kernel(x_ptr, r_ptr, w_ptr, out_ptr, sum_ptr, N, BLOCK: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, BLOCK)
    mask = tl.arange(0, BLOCK) < N
    h = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
    h += tl.load(r_ptr + at, mask=mask, other=0.0).to(tl.float32)
    h = h.to(sum_ptr.dtype.element_ty).to(tl.float32)
    rstd = tl.rsqrt(tl.sum(h * h, axis=0) / N + 1e-06)
    w = tl.load(w_ptr + tl.arange(0, BLOCK), mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + at, h * rstd * w, mask=mask)
    tl.store(sum_ptr + at, h, mask=mask)

def run(x, residual, w):
    M, N = x.shape
    out = torch.empty_like(x)
    total = torch.empty_like(x)
    _kernel[(M,)](x, residual, w, out, total, N, BLOCK=triton.next_power_of_2(N))
    return out, total
"""
BACKWARD = """
@triton.jit
def _kernel(dout_ptr, gate_ptr, up_ptr, dgate_ptr, dup_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < size
    d = tl.load(dout_ptr + at, mask=mask).to(tl.float32)
    g = tl.load(gate_ptr + at, mask=mask).to(tl.float32)
    u = tl.load(up_ptr + at, mask=mask).to(tl.float32)
    s = tl.sigmoid(g)
    tl.store(dgate_ptr + at, d * u * s * (1.0 + g * (1.0 - s)), mask=mask)
    tl.store(dup_ptr + at, d * g * s, mask=mask)

def run(dout, gate, up):
    dgate = torch.empty_like(gate)
    dup = torch.empty_like(up)
    _kernel[(triton.cdiv(gate.numel(), 256),)](dout, gate, up, dgate, dup, gate.numel(), BLOCK=256)
    return dgate, dup
"""
KERNELS = {"add_rmsnorm_both": BOTH, "swiglu_backward": BACKWARD}
MISTAKES = {
    "add_rmsnorm_both": {
        "factor": ("h * rstd * w,", "0.99 * h * rstd * w,"),
        "factor of the second": ("sum_ptr + at, h,", "sum_ptr + at, h * 0.99,"),
        "wrong eps": ("1e-06", "1e-05"),
        "dropped mask": ("(x_ptr + at, mask=mask, other=0.0)", "(x_ptr + at)"),
        "fp16 sum": ("tl.sum(h * h,", "tl.sum((h * h).to(tl.float16),"),
        "off-by-one column": ("x_ptr + at,", "x_ptr + at + 1,"),
        "swapped outputs": ("return (out, total)", "return (total, out)"),
        "wrong output dtype": ("return (out, total)", "return (out, total.double())"),
        "transposed": ("return (out, total)", "return (out.t().contiguous().view(M, N), total)"),
    },
    "swiglu_backward": {
        "factor": ("d * g * s,", "0.99 * d * g * s,"),
        "swapped gate": ("(dout, gate, up,", "(dout, up, gate,"),
        "off-by-one column": ("gate_ptr + at,", "gate_ptr + at + 1,"),
        "wrong output dtype": ("return (dgate, dup)", "return (dgate.double(), dup)"),
        "one output": ("return (dgate, dup)", "return dgate"),
    },
}


def saved(name: str, folder: Path) -> Saved:
    """A kernel for a function of the catalogue, saved by a made-up verdict."""
    task = TaskName.of(name)
    assert task.asked is not None
    problem = Problem(task)
    cells = [cell for cell in problem.cells("cpu") if cell.role != "capability"]
    results = tuple(CellResult(cell.name, cell.role, "pass") for cell in cells)
    verdict = Verdict(name, "correct", "done", "because", None, "interpret", cells=results)
    own = own_reference(task.asked, problem.cells, problem.op.arguments)
    source = HEAD + KERNELS[name]
    op = problem.op
    return save(
        session(op.name), draft(source, verdict), op, folder, judge=lambda _: verdict, own=own
    )


def run_tests(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", "."]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module", params=KERNELS)
def kernel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    files = saved(request.param, tmp_path_factory.mktemp(request.param)).files
    assert f"{files[0].stem}_reference.py" in {file.name for file in files}
    return files[0]


def test_the_saved_test_tells_right_from_wrong(kernel: Path, tmp_path: Path) -> None:
    done = run_tests(kernel.parent)
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout + done.stderr
    stem, text = kernel.stem, kernel.read_text(encoding="utf-8")
    mistakes = next(one for name, one in MISTAKES.items() if name in stem)
    test = (kernel.parent / f"test_{stem}.py").read_text(encoding="utf-8")
    shutil.copy(kernel.parent / f"{stem}_reference.py", tmp_path)
    for number, (before, after) in enumerate(mistakes.values()):
        assert before in text, before
        changed = tmp_path / f"wrong{number}.py"
        changed.write_text(text.replace(before, after), encoding="utf-8")
        (tmp_path / f"test_wrong{number}.py").write_text(
            test.replace(f"from {stem} import", f"from wrong{number} import"), encoding="utf-8"
        )
    report = run_tests(tmp_path).stdout
    seen = {number for number in range(len(mistakes)) if f"FAILED test_wrong{number}.py" in report}
    assert seen == set(range(len(mistakes))), report[-6000:]


def test_without_a_gpu_the_interpreter_runs_it(tmp_path: Path) -> None:
    files = saved("swiglu_backward", tmp_path).files
    text = files[0].read_text(encoding="utf-8")
    files[0].write_text(text.replace("d * g * s,", "0.9 * d * g * s,"), encoding="utf-8")
    environment = {name: os.environ[name] for name in os.environ if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", "."]
    done = subprocess.run(
        [*command, "-k", "test_kernel"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and "test_kernel_interpreted" in done.stdout, done.stdout

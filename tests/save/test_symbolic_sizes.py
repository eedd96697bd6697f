"""A kernel judged at symbolic sizes is saved for these: the wrapper binds, flattens, expands and
checks.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kmint_tui.save.own_reference import Range, judged, own_reference
from kmint_tui.save.saving import save
from referee.judge import Referee
from referee.problem import Problem, TaskName
from referee.reference.asked import Asked
from tests.save.conftest import draft, session
from tests.save.test_own_reference import run_test

REFERENCE = """
import torch

def scaled(x, r, w, alpha=0.5):
    h = x + alpha * r
    return h * w, h.amax(-1)
"""
KERNEL = """
import torch
import triton
import triton.language as tl

@triton.jit
def _kernel(x, r, w, out, most, columns, alpha, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    largest = tl.full((BLOCK,), float("-inf"), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mask = at < columns
        h = tl.load(x + row * columns + at, mask=mask) + alpha * tl.load(r + row * columns + at, mask=mask)
        largest = tl.maximum(largest, tl.where(mask, h, float("-inf")))
        tl.store(out + row * columns + at, h * tl.load(w + at, mask=mask), mask=mask)
    tl.store(most + row, tl.max(largest, 0))

def run(x, r, w, alpha):
    columns = x.shape[1]
    out, most = torch.empty_like(x), torch.empty((x.shape[0],), dtype=x.dtype, device=x.device)
    _kernel[(x.shape[0],)](x, r, w, out, most, columns, alpha, BLOCK=256)
    return out, most
"""
INPUTS = ("x=f32[B,N] r=f32[B,N] w=f32[N] alpha=0.5",)


@pytest.fixture(scope="module")
def folder(referee: Referee, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`scaled.py` and what belongs to it, really judged and saved."""
    made = tmp_path_factory.mktemp("symbolic")
    path = made / "scaled.py"
    path.write_text(REFERENCE, encoding="utf-8")
    task = TaskName("scaled", str(path), None, INPUTS)
    problem = Problem(task).fitting(KERNEL)
    verdict = referee.judge(KERNEL, task, level="correct")
    assert verdict.passed, verdict.reason
    own = own_reference(Asked(str(path), None, INPUTS), problem.cells, problem.op.arguments)
    ranges = dict(judged(problem.op.arguments, own, verdict).signatures[0].sizes)
    assert ranges == {"B": Range(1, None), "N": Range(1, 16_385)}

    def again(text: str) -> Any:
        return referee.judge(text, task, level="correct")

    save(
        session(problem.op.name),
        draft(KERNEL, verdict),
        problem.op,
        made / "saved",
        judge=again,
        own=own,
    )
    return made


CALLS = """
import contextlib, importlib.util, json, sys
from pathlib import Path
import torch

# Triton's interpreter runs on the CPU, so that the check for a GPU is left out.
text = Path(sys.argv[1]).read_text().replace('tensor.device.type != "cuda" or ', "")
path = Path(sys.argv[2]) / "on_the_cpu.py"
path.write_text(text)
spec = importlib.util.spec_from_file_location("scaled", path)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
torch.cuda.device = lambda device: contextlib.nullcontext()

def call(*given):
    first, again = once(*given), once(*given)
    return first if first == again else (first, again)

def once(x, r, w, *alpha):
    try:
        found = module.scaled(x, r, w, *alpha)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    h = x + (alpha[0] if alpha else 0.5) * r
    wanted = h * w, h.amax(-1)
    return all(one.shape == two.shape and torch.allclose(one, two, rtol=1e-5, atol=1e-5) for one, two in zip(found, wanted))

R = torch.randn
print(json.dumps({
    "other sizes": call(R(7, 333), R(7, 333), R(333)),
    "one row": call(R(1, 50), R(1, 50), R(50)),
    "a number": call(R(7, 33), R(7, 33), R(33), 3),
    "leading dimensions": call(R(2, 3, 4, 33), R(2, 3, 4, 33), R(33), 0.25),
    "one row for all": call(R(7, 33), R(1, 33), R(33)),
    "one row for all, flattened": call(R(2, 3, 33), R(33), R(33)),
    "too wide": call(R(2, 16386), R(2, 16386), R(16386)),
    "another row length": call(R(7, 33), R(7, 32), R(33)),
    "other rows": call(R(7, 33), R(6, 33), R(33)),
    "no rows": call(R(33), R(33), R(33)),
    "no number": call(R(7, 33), R(7, 33), R(33), "a"),
    "half": call(R(7, 33).half(), R(7, 33), R(33)),
}))
"""


@pytest.fixture(scope="module")
def told(folder: Path) -> dict[str, Any]:
    """What the saved file answers in Triton's interpreter: whether the results are right, or the
    error.
    """
    command = [sys.executable, "-c", CALLS, str(folder / "saved" / "scaled.py"), str(folder)]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "TRITON_INTERPRET": "1"}
    )
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    assert isinstance(answers, dict)
    return answers


@pytest.mark.parametrize(
    "what",
    [
        "other sizes",
        "one row",
        "a number",
        "leading dimensions",
        "one row for all",
        "one row for all, flattened",
    ],
)
def test_what_the_reference_takes_is_taken(told: dict[str, Any], what: str) -> None:
    assert told[what] is True


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (
            "too wide",
            "ValueError: x has shape (2, 16386); the kernel was judged with (B, N); B from 1 to any size, N from 1 to 16385",
        ),
        (
            "another row length",
            "ValueError: the kernel was not judged with these together: x (7, 33) torch.float32, r (7, 32)",
        ),
        (
            "other rows",
            "ValueError: the kernel was not judged with these together: x (7, 33) torch.float32, r (6, 33)",
        ),
        (
            "no rows",
            "ValueError: the kernel was not judged with these together: x (33,) torch.float32, r (33,)",
        ),
        ("no number", "TypeError: alpha must be a number, not str"),
        ("half", "TypeError: x is torch.float16; the kernel was judged with torch.float32"),
    ],
)
def test_what_was_not_judged_is_refused(told: dict[str, Any], what: str, words: str) -> None:
    assert str(told[what]).startswith(words)


def test_file_and_receipt_name_the_sizes(folder: Path) -> None:
    receipt = json.loads((folder / "saved" / "scaled.receipt.json").read_text(encoding="utf-8"))
    (signature,) = receipt["support"]["signatures"]
    assert signature["tensors"]["r"] == {"shape": ["B", "N"], "dtype": "float32"}
    assert signature["sizes"]["B"] == {"least": 1, "most": None, "multiple": 1}
    assert (
        receipt["support"]["numbers"]["alpha"][0] == 0.5
        and len(receipt["support"]["numbers"]["alpha"]) == 4
    )
    assert receipt["inputs"] == list(INPUTS)
    text = (folder / "saved" / "scaled.py").read_text(encoding="utf-8")
    assert "x float32 [..., N], r float32 [..., N], w float32 [N]; N 1 to 16385" in text
    assert (
        "alpha judged at 0.5, " in text
        and "def scaled(x: Tensor, r: Tensor, w: Tensor, alpha: float = 0.5)" in text
    )


def test_the_saved_test_passes(folder: Path) -> None:
    run_test(folder / "saved")

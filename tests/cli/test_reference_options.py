"""--reference, --input and --fix through the commands: refusals before anything is drafted, and a
kernel from function to project.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import tiny_models
from tests.cli.runner import kmint

pytestmark = pytest.mark.usefixtures("warm")

FILE = """
import torch
import torch.nn.functional as F

def scaled(x, w, alpha=0.5):
    return x * w * alpha

def dropped(x):
    return F.dropout(x, 0.1)

def chosen(x):
    return x[x > 0]

def wide(x):
    return x.to(torch.complex64)

def noisy(x):
    return x + torch.randn_like(x)

def ranked(x):
    return torch.sort(x, dim=-1)[0]

def tied(x):
    return x.view(-1, 4096 * 4096) * 2

def get_inputs():
    return [torch.randn(1 << 20, 1 << 20)]
"""
KERNEL = """
import torch
import triton
import triton.language as tl

@triton.jit
def kernel(x, w, out, columns, alpha, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mask = at < columns
        found = tl.load(x + row * columns + at, mask=mask) * tl.load(w + at, mask=mask) * alpha
        tl.store(out + row * columns + at, found, mask=mask)

def run(x, w, alpha):
    out = torch.empty_like(x)
    kernel[(x.shape[0],)](x, w, out, x.shape[1], alpha, BLOCK=1024)
    return out
"""
SCALED = ("--input", "x=f32[B,N] w=f32[N]")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("options")
    (made / "mine.py").write_text(FILE, encoding="utf-8")
    (made / "kernel.py").write_text(KERNEL, encoding="utf-8")
    tiny_models.scripted(made / "smith.gguf", [f"```python\n{KERNEL}```".encode()])
    return made


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("function", "options", "code", "words"),
    [
        ("dropped", ["--input", "x=f32[N]"], 2, "uses dropout in training mode at line 9"),
        ("chosen", ["--input", "x=f32[N]"], 2, "depends on values, at line 12"),
        (
            "wide",
            ["--input", "x=f32[N]"],
            2,
            "out has dtype complex64, which the referee does not judge",
        ),
        ("noisy", ["--input", "x=f32[N]"], 2, "draws random numbers at line 18"),
        (
            "ranked",
            ["--input", "x=f32[B,N]"],
            2,
            "this smith reads graphs, and mine:ranked has none: sort",
        ),
        ("scaled", ["--input", "x=c64[B,N] w=f32[N]"], 2, "c64"),
        (
            "tied",
            ["--input", "x=f32[4096,4096]"],
            3,
            "16,777,216 elements (0.06 GiB), and Triton's interpreter takes 262,144",
        ),
        ("scaled", [], 3, "get_inputs() makes tensors of 4096.0 GiB"),
        ("scaled", ["--input", "x=f32[B,N"], 2, "at character 10, the end: expected ',' or ']'"),
        ("scaled", ["--input", "x=f32[B,N]"], 2, "leaves out w, which the reference needs"),
        ("scaled", ["--input", "@nowhere.json"], 2, "@nowhere.json cannot be read"),
        (
            "scaled",
            [*SCALED, "--fix", "beta=3"],
            2,
            "--fix beta: beta is no argument; the values that can be fixed are alpha",
        ),
        ("absent", [*SCALED], 2, "the file defines no function 'absent'"),
    ],
)
def test_refusals_come_first_and_are_one_line(
    folder: Path, function: str, options: list[str], code: int, words: str
) -> None:
    """In a dry run as before drafting: what does not fit is said with its place, and with the
    memory that it would need.
    """
    done = kmint("mint", "--reference", f"{folder / 'mine.py'}:{function}", *options, "--dry-run")
    told = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert done.code == code and len(told) == 1 and words in told[0], done.err
    assert done.out == ""


def test_inputs_need_a_reference(folder: Path) -> None:
    done = kmint("judge", str(folder / "kernel.py"), "--op", "softmax", *SCALED)
    assert done.code == 2 and "--input is for a reference of your own" in done.err


def test_a_dry_run_shows_what_is_judged(folder: Path) -> None:
    done = kmint(
        "mint", "--reference", f"{folder / 'mine.py'}:scaled", *SCALED, "--dry-run", "--json"
    )
    assert done.code == 0, done.err
    reference = done.document["reference"]
    assert (
        reference["arguments"] == "x, w, alpha (0.5, 0.75, 0.25, 1.5)"
        and "N=129" in reference["small sizes"]
    )
    assert reference["timed sizes"].startswith("x f32[8192,4096], w f32[4096] (0.13 GiB)")


def test_from_a_function_to_a_project(folder: Path, tmp_path: Path) -> None:
    """Minted, saved, verified: who saves and verifies need not say the inputs again."""
    reference = ["--reference", f"{folder / 'mine.py'}:scaled"]
    options = ["--drafts", "1", "--seed", "1", "--max-tokens", "512"]
    done = kmint(
        "mint", *reference, *SCALED, "--model", str(folder / "smith.gguf"), *options, "--json"
    )
    assert done.code == 0, done.out + done.err
    verdict = done.document["drafts"][0]["verdict"]
    assert (
        verdict["verdict"] == "correct"
        and sum("-scalars" in cell["name"] for cell in verdict["cells"]) == 3
    )
    saved = kmint(
        "save", f"{done.document['history_id']}.0", "--to", str(tmp_path), *reference, "--json"
    )
    assert saved.code == 0, saved.err
    file = tmp_path / "mine_scaled.py"
    assert "def mine_scaled(x: Tensor, w: Tensor, alpha: float = 0.5)" in file.read_text(
        encoding="utf-8"
    )
    receipt = json.loads((tmp_path / "mine_scaled.receipt.json").read_text(encoding="utf-8"))
    assert receipt["inputs"] == ["x=f32[B,N] w=f32[N]"]
    assert receipt["support"]["signatures"][0]["tensors"]["x"]["shape"] == ["B", "N"]
    held = kmint("verify", str(file), *reference, "--json")
    assert held.code == 0, held.out


def test_a_recorded_call_is_taken_as_inputs(folder: Path, tmp_path: Path) -> None:
    script = folder / "script.py"
    script.write_text(
        "import torch, mine\nmine.scaled(torch.ones(5, 64), torch.ones(64), alpha=0.25)\nraise SystemExit('not reached')\n"
    )
    record = tmp_path / "call.json"
    done = kmint("record", str(script), "--function", "mine:scaled", "--out", str(record))
    assert (done.code, done.out) == (0, f"{record}\n"), done.err
    plan = kmint(
        "mint",
        "--reference",
        f"{folder / 'mine.py'}:scaled",
        "--input",
        f"@{record}",
        "--dry-run",
        "--json",
    )
    assert plan.document["reference"]["arguments"].startswith("x, w, alpha (0.25, ")
    assert plan.document["reference"]["timed sizes"].startswith(
        "x f32[5,64]:uniform, w f32[64]:uniform"
    )
    refused = kmint("record", str(script), "--function", "mine:absent")
    assert refused.code == 2 and "there is no absent in the module" in refused.err

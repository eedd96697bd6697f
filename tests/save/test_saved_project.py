"""Saved kernels of every signature kind in a user's project: their tests pass there, under its own
pytest.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from kmint_tui import __version__
from kmint_tui.save.judged_part import candidate_of
from kmint_tui.save.receipt import is_whole, load, sha256
from referee.ops import cells, get
from referee.ops.signatures import KINDS
from referee.ops.values import draw
from tests.save.conftest import BY_KIND, DRAFTED, JUDGED, OPAQUE, Project, op_name


def test_every_signature_kind_is_there() -> None:
    assert set(BY_KIND) == set(KINDS)


def test_their_own_tests_pass(project: Project, tmp_path: Path) -> None:
    """Without a GPU each file runs its kernel in a process of its own.

    `test_planted_mistakes.py` runs the tests of all kernels in one process.
    """
    report = tmp_path / "report.txt"
    pytest_there = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-k",
        "not test_kernel_interpreted",
    ]
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    tests = [str(project.saved[name].files[1]) for name in JUDGED]
    with report.open("w") as out:
        done = subprocess.run(
            [*pytest_there, "--rootdir", str(project.folder), *tests],
            cwd=project.folder,
            env=environment,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    assert done.returncode == 0, report.read_text()[-6000:]


@pytest.mark.parametrize("name", JUDGED)
def test_the_receipt_holds_the_evidence(project: Project, name: str) -> None:
    kernel, test, receipt_file = project.saved[name].files
    receipt = load(receipt_file.read_text(encoding="utf-8"))
    assert is_whole(receipt)
    assert receipt["files"] == {
        path.name: sha256(path.read_text(encoding="utf-8")) for path in (kernel, test)
    }
    assert receipt["registration"]["kind"] == ("custom_op" if name in OPAQUE else "triton_op")
    assert receipt["op"] == op_name(name)
    verdict = receipt["verdict"]
    # The other drafts have no verdict of the referee's.
    assert name != DRAFTED or verdict["seed"] != receipt["draft_verdict"]["seed"] is not None
    assert (
        {check["version"] for check in verdict["checks"]}
        == {receipt["referee"]["version"]}
        == {__version__}
    )
    assert {check["name"] for check in verdict["checks"]} >= {
        "guard_band",
        "wrong_answer",
        "input_mutated",
    }
    assert all(
        cell["error"] <= cell["budget"] for cell in verdict["cells"] if cell["role"] == "required"
    )
    assert verdict["environment"]["sandbox"], "which protections of the sandbox were in force"


@pytest.mark.parametrize("name", BY_KIND.values())
def test_one_compiled_graph_serves_every_size_up_to_its_block(project: Project, name: str) -> None:
    # What torch.compile does with the host code on a GPU, traced here on tensors of the CPU: sizes
    # must stay symbols.
    module = load_module(project.saved[name].files[0])
    module._thread.in_operator = True
    traced = make_fx(module._run, tracing_mode="symbolic")(*flat_arguments(op_name(name)))
    environment = traced.shape_env
    assert environment is not None
    fixed = [symbol for symbol, value in environment.replacements.items() if value.is_number]
    ranges = [environment.bound_sympy(symbol) for symbol in environment.var_to_range]
    assert "triton_kernel_wrapper_mutation" in traced.code
    assert not fixed and ranges
    assert all(one.upper > 1.8 * one.lower for one in ranges), (ranges, environment.guards)


def flat_arguments(op: str) -> tuple[torch.Tensor, ...]:
    """Arguments as the registered op gets them: several rows of 1000 or 80 columns."""
    return draw(
        next(
            cell
            for cell in cells(get(op), profile="cpu")
            if "5x1000-mixed" in cell.name or "head80" in cell.name
        ),
        0,
    )


def load_module(file: Path) -> ModuleType:
    """A saved file as a module."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_file_alone_can_be_judged(project: Project) -> None:
    texts = [saved.files[0].read_text(encoding="utf-8") for saved in project.saved.values()]
    assert all(
        "def run(" in candidate_of(text) and "wrap_triton" not in candidate_of(text)
        for text in texts
    )


def test_importing_needs_no_gpu_and_starts_nothing(project: Project) -> None:
    names = [saved.files[0].stem for saved in project.saved.values()]
    code = (
        "import sys, threading, torch, importlib\n"
        f"for name in {json.dumps(names)}: importlib.import_module(name)\n"
        "assert not torch.cuda.is_initialized() and threading.active_count() == 1\n"
        "import triton; assert triton.runtime.driver._active is None"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=project.folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_namespaces_are_unique(project: Project) -> None:
    namespaces = [
        json.loads(saved.files[2].read_text(encoding="utf-8"))["namespace"]
        for saved in project.saved.values()
    ]
    assert len(set(namespaces)) == len(namespaces)

"""Saved kernels of every signature kind in somebody's project: their own tests pass there, under the project's own pytest."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kmint_tui.save.judged_part import candidate_of
from kmint_tui.save.receipt import is_whole, load, sha256
from referee.ops.signatures import KINDS
from tests.save.conftest import BY_KIND, OPAQUE, Project, op_name


def test_every_signature_kind_is_there() -> None:
    assert set(BY_KIND) == set(KINDS)


def test_their_own_tests_pass(project: Project, tmp_path: Path) -> None:
    report = tmp_path / "report.txt"
    with report.open("w") as out:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(project.folder), str(project.folder)],
            cwd=project.folder,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    assert done.returncode == 0, report.read_text()[-6000:]


@pytest.mark.parametrize("name", [*BY_KIND.values(), *OPAQUE])
def test_the_receipt_holds_the_evidence(project: Project, name: str) -> None:
    kernel, test, receipt_file = project.saved[name].files
    receipt = load(receipt_file.read_text(encoding="utf-8"))
    assert is_whole(receipt)
    assert receipt["files"] == {path.name: sha256(path.read_text(encoding="utf-8")) for path in (kernel, test)}
    assert receipt["registration"]["kind"] == ("custom_op" if name in OPAQUE else "triton_op")
    assert receipt["op"] == op_name(name)
    verdict = receipt["verdict"]
    assert verdict["seed"] != receipt["draft_verdict"]["seed"]
    assert {check["name"] for check in verdict["checks"]} >= {"guard_band", "wrong_answer", "input_mutated"}
    assert all(cell["error"] <= cell["budget"] for cell in verdict["cells"] if cell["role"] == "required")
    assert verdict["environment"]["sandbox"], "which protections of the sandbox were in force"


def test_a_file_alone_can_be_judged(project: Project) -> None:
    texts = [saved.files[0].read_text(encoding="utf-8") for saved in project.saved.values()]
    assert all("def run(" in candidate_of(text) and "wrap_triton" not in candidate_of(text) for text in texts)


def test_importing_needs_no_gpu_and_starts_nothing(project: Project) -> None:
    names = [saved.files[0].stem for saved in project.saved.values()]
    code = (
        "import sys, threading, torch, importlib\n"
        f"for name in {json.dumps(names)}: importlib.import_module(name)\n"
        "assert not torch.cuda.is_initialized() and threading.active_count() == 1\n"
        "import triton; assert triton.runtime.driver._active is None"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=project.folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_namespaces_are_unique(project: Project) -> None:
    namespaces = [json.loads(saved.files[2].read_text(encoding="utf-8"))["namespace"] for saved in project.saved.values()]
    assert len(set(namespaces)) == len(namespaces)

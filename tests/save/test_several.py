"""A saved file that chooses among several kernels by shape."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from kmint_tui.errors import UsageError
from kmint_tui.save.choosing import entry_for
from kmint_tui.save.host_code import NotSaveable
from kmint_tui.save.judged_part import BEGIN, NoJudgedPart, candidate_of, candidates_of
from kmint_tui.save.receipt import load
from kmint_tui.save.saving import verdict_of
from kmint_tui.save.verifying import verify
from referee.judge import Referee
from referee.verdict import Verdict
from tests.save.conftest import draft, passed_everywhere, source
from tests.save.several import save_several

NAMES = ("online_softmax", "rows_softmax")
SHAPES = (("8192x4096:bfloat16", 1), ("32768x1024:bfloat16", 2), ("64x4096:float32", 2))


def module(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"saved_{abs(hash(file))}", file)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("several")
    save_several(NAMES, SHAPES, made / "nearest")
    save_several(NAMES, SHAPES[:2], made / "reference", outside="reference")
    save_several(
        ("rows_rope", "barrier_rope"), (("8192x128:bfloat16", 1), ("64x64:float16", 2)), made
    )
    save_several(
        ("keywords_rmsnorm_short",), (("8192x4096:bfloat16", 1),), made, outside="reference"
    )
    return made


def test_a_call_takes_the_nearest_row(folder: Path) -> None:
    saved: Any = module(folder / "nearest" / "softmax.py")
    bf16, fp16, fp32 = torch.bfloat16, torch.float16, torch.float32
    one, two = saved._run_1, saved._run_2
    taken = [
        ((8192, 4096, bf16), one),
        ((32768, 1024, bf16), two),
        ((1, 2048, bf16), two),
        ((1, 2049, bf16), one),
        ((1, 33000, bf16), one),
        ((8192, 4096, fp32), two),
        # Of as many bytes as bfloat16.
        ((8192, 4096, fp16), one),
        ((8192, 1024, fp16), two),
    ]
    for shape, kernel in taken:
        assert saved._kernel_for(*shape) is kernel, shape


def test_the_entry_for_a_shape_is_that_of_the_file(folder: Path) -> None:
    dtypes = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
    for where in ("nearest", "reference"):
        file = folder / where / "softmax.py"
        saved: Any = module(file)
        for dtype, rows, columns in product(dtypes, (1, 1000, 40000), (1, 2047, 2048, 2049, 5000)):
            kernel = saved._kernel_for(rows, columns, dtypes[dtype])
            wanted = None if kernel is saved.reference else kernel.__name__
            assert entry_for(file.read_text(), rows, columns, dtype) == wanted


def test_rows_decide_where_columns_are_equal(tmp_path: Path) -> None:
    shapes = (("64x4096:bfloat16", 1), ("16384x4096:bfloat16", 2), ("64x128:bfloat16", 2))
    save_several(NAMES, shapes, tmp_path)
    saved: Any = module(tmp_path / "softmax.py")
    found = [saved._kernel_for(rows, 4000, torch.bfloat16) for rows in (1, 1024, 1025, 99999)]
    assert found == [saved._run_1, saved._run_1, saved._run_2, saved._run_2]
    assert saved._kernel_for(64, 128, torch.bfloat16) is saved._run_2


def test_other_dtypes_take_the_reference_where_asked(folder: Path) -> None:
    saved: Any = module(folder / "reference" / "softmax.py")
    assert saved._kernel_for(8192, 4096, torch.float32) is saved.reference
    assert saved._kernel_for(8192, 4096, torch.bfloat16) is saved._run_1


def test_the_table_is_readable(folder: Path) -> None:
    text = (folder / "nearest" / "softmax.py").read_text(encoding="utf-8")
    assert "    _Shape(32768, 1024, torch.bfloat16, _run_2, 1.250),\n" in text
    assert "# A call takes the nearest row: first its dtype, then its columns" in text
    receipt = load((folder / "nearest" / "softmax.receipt.json").read_text(encoding="utf-8"))
    assert [(one["entry"], one["id"]) for one in receipt["entries"]] == [
        ("_run_1", "12.1"),
        ("_run_2", "12.2"),
    ]
    assert [(one["rows"], one["entry"], one["ratio"]) for one in receipt["shapes"]] == [
        (32768, "_run_2", 1.25),
        (8192, "_run_1", 1.25),
        (64, "_run_2", 1.25),
    ]
    assert receipt["outside"] == "nearest"


def test_ruff_and_mypy_find_nothing_in_several(folder: Path) -> None:
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache"]
    ruff += ["--line-length", "100", "--extend-select", "E501,I,UP"]
    mypy = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir=/dev/null"]
    for where in (folder, folder / "nearest", folder / "reference"):
        files = sorted(file.name for file in where.glob("*.py"))
        assert files
        for command in (ruff, mypy):
            done = subprocess.run([*command, *files], cwd=where, capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr
        for file in where.glob("*.py"):
            assert all(len(line) <= 100 for line in file.read_text().splitlines()), file


def run_test(folder: Path, *only: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *only]
    return subprocess.run([*command, "test_softmax.py"], cwd=folder, capture_output=True, text=True)


def test_the_saved_test_passes_and_covers_every_entry(tmp_path: Path) -> None:
    save_several(NAMES, SHAPES, tmp_path)
    done = run_test(tmp_path)
    assert done.returncode == 0, done.stdout
    file = tmp_path / "softmax.py"
    right = file.read_text(encoding="utf-8")
    # The second kernel alone is wrong; then the choice alone.
    for before, after, only in (
        ("e / total, mask=mask", "e, mask=mask", "kernel_interpreted"),
        ("elif columns > math", "elif columns < math", "nearest"),
    ):
        assert before in right
        file.write_text(right.replace(before, after), encoding="utf-8")
        assert run_test(tmp_path, "-k", only).returncode == 1, only


def test_every_entry_is_judged_again(tmp_path: Path) -> None:
    save_several(NAMES, SHAPES, tmp_path)
    judged: list[str] = []

    def judge(candidate: str, op: str) -> Verdict:
        judged.append(candidate)
        return passed_everywhere(op)

    found = verify(tmp_path / "softmax.py", judge)
    assert [one for one in found.problems if "differ" in one] == []
    assert found.holds and len(judged) == 2 and set(found.entries) == {"_run_1", "_run_2"}
    assert all("def run(" in one and "wrap_triton" not in one for one in judged)

    def second_is_wrong(candidate: str, op: str) -> Verdict:
        if "keep_dims" in candidate:
            return Verdict(op, "rejected", "correct", "off", "wrong_answer", "interpret")
        return passed_everywhere(op)

    found = verify(tmp_path / "softmax.py", second_is_wrong)
    assert found.problems == ("the referee does not pass _run_2: off",)
    assert found.verdict is not None and not found.verdict.passed
    text = (tmp_path / "softmax.py").read_text(encoding="utf-8")
    (tmp_path / "softmax.py").write_text(text.replace(BEGIN, "#", 1), encoding="utf-8")
    lacking = verify(tmp_path / "softmax.py", judge).problems
    assert any("the receipt is for 2 kernels, the file has 1" in one for one in lacking)


def test_one_kernel_is_not_taken_for_several(folder: Path) -> None:
    text = (folder / "nearest" / "softmax.py").read_text(encoding="utf-8")
    assert list(candidates_of(text)) == ["_run_1", "_run_2"]
    with pytest.raises(NoJudgedPart, match="chooses among 2 kernels"):
        candidate_of(text)


def test_the_referee_passes_both_entries(referee: Referee, tmp_path: Path) -> None:
    seen: list[str] = []

    def judge(candidate: str) -> Verdict:
        seen.append(candidate)
        return referee.judge(candidate, "softmax", level="correct", strict=True)

    save_several(NAMES, SHAPES, tmp_path, judge=judge)
    assert len(seen) == 2


def test_a_rejected_entry_is_not_saved(tmp_path: Path) -> None:
    def judge(candidate: str) -> Verdict:
        return Verdict("softmax", "rejected", "correct", "off", "wrong_answer", "interpret")

    with pytest.raises(NotSaveable, match="draft 12.1 does not pass in its saved form: off"):
        save_several(NAMES, SHAPES, tmp_path, judge=judge)
    assert not list(tmp_path.iterdir())
    with pytest.raises(UsageError, match="only kernels that passed"):
        verdict_of(draft(source(NAMES[0]), judge("")))

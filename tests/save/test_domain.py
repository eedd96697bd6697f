"""A saved file keeps to the shapes that its launcher takes, with the launcher's own words."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kmint_tui.save.host_code import NotSaveable
from kmint_tui.save.saving import Saved, save
from kmint_tui.save.support import domain
from referee.ops import cells, get
from referee.verdict import CellResult, Holds, Refused, Verdict
from tests.save.conftest import draft, passed_everywhere, session, source

CHECKED = source("online_softmax").replace(
    "def run(x):\n",
    "def run(x):\n"
    "    assert x.shape[-1] % 8 == 0, 'columns must be a multiple of 8'\n"
    "    if x.dtype == torch.float32 and x.shape[-1] > 4096:\n"
    "        raise ValueError('float32 up to 4096 columns')\n",
)


def refuses(columns: int, dtype: str) -> str:
    """The words of the launcher above."""
    if columns % 8:
        return "AssertionError: columns must be a multiple of 8"
    return "float32 up to 4096 columns" if dtype == "float32" and columns > 4096 else ""


def partly() -> Verdict:
    """A verdict that holds for the cases that the launcher takes."""
    passed, refused = [], []
    for cell in cells(get("softmax"), profile="cpu"):
        words = refuses(cell.inputs[0].shape[-1], cell.inputs[0].dtype)
        if cell.role != "capability" and words:
            refused.append(Refused(cell.name, words))
        else:
            passed.append(CellResult(cell.name, cell.role, "pass"))
    holds = Holds("holds for float32 up to 4,096 columns; the launcher refuses 9", tuple(refused))
    return replace(passed_everywhere("softmax"), cells=tuple(passed), holds=holds)


def saved(folder: Path, verdict: Verdict) -> tuple[Saved, list[str]]:
    """The kernel saved by a made-up verdict, and the candidates that were judged."""
    seen: list[str] = []

    def judge(candidate: str) -> Verdict:
        seen.append(candidate)
        return verdict

    op = get("softmax")
    return save(session("softmax"), draft(CHECKED, verdict), op, folder, judge=judge), seen


def python(folder: Path, program: str, *options: str) -> str:
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, *options, "-c", program], env=environment, capture_output=True, text=True
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("options", [(), ("-O",)])
def test_the_launchers_words_are_raised(tmp_path: Path, options: tuple[str, ...]) -> None:
    saved(tmp_path, partly())
    program = (
        "import softmax as file, torch\n"
        "for shape in ((2, 64), (2, 9), (1, 8192)):\n"
        "    try: print(tuple(file._run(torch.ones(shape)).shape))\n"
        "    except Exception as error: print(type(error).__name__, error)\n"
    )
    assert python(tmp_path, program, *options).splitlines() == [
        "(2, 64)",
        "AssertionError columns must be a multiple of 8",
        "ValueError float32 up to 4096 columns",
    ]


def test_the_judged_text_has_no_assert(tmp_path: Path) -> None:
    (_, (candidate,)) = saved(tmp_path, partly())
    assert "assert " not in candidate and "raise AssertionError(" in candidate


def test_the_file_says_where_it_holds(tmp_path: Path) -> None:
    made, _ = saved(tmp_path, partly())
    text = " ".join(made.files[0].read_text(encoding="utf-8").split())
    assert "float32 up to 4,096 columns; its launcher raises for other shapes" in text


def test_the_generated_test_keeps_to_the_domain(tmp_path: Path) -> None:
    """Every size of the saved test is one that the launcher takes with every dtype."""
    made, _ = saved(tmp_path, partly())
    test = next(file for file in made.files if file.name == "test_softmax.py")
    lines = test.read_text(encoding="utf-8").splitlines()
    sizes = [
        size
        for line in lines
        if line.strip().startswith("SIZES")
        for size in ast.literal_eval(line.partition("= ")[2])
    ]
    assert len(sizes) > 5
    for _, columns in sizes:
        assert not refuses(columns, "float32") and not refuses(columns, "float16"), columns


def test_the_domain_of_a_verdict() -> None:
    found = domain(partly())
    assert found is not None and (found.step, found.most) == (8, 1024)
    assert [found.columns(one) for one in (1, 8, 257, 5000)] == [8, 8, 256, 1024]
    assert domain(passed_everywhere("softmax")) is None


def test_kernels_that_work_in_place_are_not_saved(tmp_path: Path) -> None:
    verdict = replace(partly(), holds=Holds("", changed=("p", "m")))
    with pytest.raises(NotSaveable, match="changes p and m in place") as refused:
        saved(tmp_path, verdict)
    assert "allocate" in str(refused.value.fix) and not list(tmp_path.iterdir())


def test_other_circumstances_are_not_saved(tmp_path: Path) -> None:
    verdict = replace(partly(), holds=Holds("", (), ("another default dtype than float32",)))
    with pytest.raises(NotSaveable, match="another default dtype"):
        saved(tmp_path, verdict)
    assert not list(tmp_path.iterdir())

"""`kmint save` from the history to a project, through the real command."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kmint_tui import paths
from kmint_tui.history.records import NewDraft, NewSession
from kmint_tui.history.store import History
from kmint_tui.save.receipt import load
from referee.judge import Referee
from referee.problem import TaskName
from tests.cli.runner import kmint
from tests.referee.stand_in import TUNED
from tests.save.conftest import source
from tests.save.test_host_code import GOOD

pytestmark = pytest.mark.usefixtures("warm")

IMPORTS = "import torch\nimport triton\nimport triton.language as tl\n\n\n"


def remember(referee: Referee, op: str, text: str, task: TaskName | None = None) -> str:
    """A judged draft in the history; its id. `task` is a reference of the user's own."""
    verdict = referee.judge(text, task or op, level="correct")
    with History(paths.history_file()) as history:
        number = history.begin(
            NewSession(
                op=op,
                model="gold",
                model_file="m.gguf",
                model_sha256="ab" * 32,
                system="s",
                user="u",
                seed=7,
                wanted=1,
                settings={},
                environment={"torch": "2.13"},
            )
        )
        history.add_draft(
            number,
            NewDraft(
                number=0,
                source=text,
                seed=1,
                temperature=0.7,
                tokens=10,
                seconds=1.0,
                finish="stop",
            ),
        )
        history.set_verdict(number, 0, verdict.to_json(), ratio=None)
        return history.draft(number, 0).id


def test_from_the_history_to_a_project_and_back(referee: Referee, tmp_path: Path) -> None:
    good = remember(referee, "softmax", GOOD)
    done = kmint("save", good, "--to", str(tmp_path), "--json")
    assert done.code == 0, done.err
    assert [Path(file).name for file in done.document["files"]] == [
        "softmax.py",
        "test_softmax.py",
        "softmax.receipt.json",
    ]
    assert kmint("verify", str(tmp_path), "--digests").code == 0
    (tmp_path / "softmax.py").write_text("# mine\n", encoding="utf-8")
    refused = kmint("save", good, "--to", str(tmp_path))
    assert (refused.code, (tmp_path / "softmax.py").read_text(encoding="utf-8")) == (2, "# mine\n")
    assert "--force" in refused.err


def test_a_kernel_is_saved_from_a_history_that_cannot_be_written(
    referee: Referee, tmp_path: Path
) -> None:
    """As on a read-only mount: SQLite cannot make the files that it wants beside its own."""
    good = remember(referee, "softmax", GOOD)
    file = paths.history_file()
    before = file.read_bytes()
    file.with_name(f"{file.name}-shm").symlink_to("nowhere")
    done = kmint("save", good, "--to", str(tmp_path))
    assert done.code == 0, done.err
    assert (tmp_path / "softmax.py").is_file() and file.read_bytes() == before


def test_an_autotuned_kernel_is_saved_with_one_configuration(
    referee: Referee, tmp_path: Path
) -> None:
    tuned = remember(referee, "silu", IMPORTS + TUNED.replace("})", "}, num_warps=4)"))
    done = kmint("save", tuned, "--to", str(tmp_path))
    assert done.code == 0, done.err
    (hint,) = (line for line in done.err.splitlines() if line.startswith("use it: "))
    called = subprocess.run(hint.removeprefix("use it: "), shell=True, capture_output=True)
    assert called.returncode == 0 and b"tensor" in called.stdout, called.stderr
    text = (tmp_path / "silu.py").read_text(encoding="utf-8")
    assert "autotune" not in text and "BLOCK=256, num_warps=4" in text
    chosen = load((tmp_path / "silu.receipt.json").read_text(encoding="utf-8"))["configuration"]
    assert (chosen["kernel"], chosen["values"], chosen["of"]) == (
        "_silu",
        {"BLOCK": 256, "num_warps": 4},
        2,
    )


def test_a_kernel_that_needs_more_may_be_right_and_is_not_saved(
    referee: Referee, tmp_path: Path
) -> None:
    chosen = remember(referee, "layernorm_abs", source("heuristics_layernorm_abs"))
    done = kmint("save", chosen, "--to", str(tmp_path / "new"))
    assert done.code == 2 and "cannot be saved" in done.err and "heuristics" in done.err
    assert not (tmp_path / "new").exists()


@pytest.mark.usefixtures("own_process")
def test_only_minting_needs_llama_cpp(referee: Referee, tmp_path: Path) -> None:
    """Judging, saving and verifying work where llama.cpp is not built; `mint` says what is missing."""
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "llama_cpp.py").write_text(
        "raise ImportError('llama.cpp is not built here')\n", encoding="utf-8"
    )
    (tmp_path / "kernel.py").write_text(GOOD, encoding="utf-8")
    without = str(tmp_path / "without")
    judged = kmint(
        "judge",
        str(tmp_path / "kernel.py"),
        "--op",
        "softmax",
        "--level",
        "compile",
        "--json",
        PYTHONPATH=without,
    )
    assert judged.document["verdict"] == "unsure", judged.err
    good = remember(referee, "softmax", GOOD)
    assert kmint("save", good, "--to", str(tmp_path / "saved"), PYTHONPATH=without).code == 0
    assert kmint("verify", str(tmp_path / "saved"), PYTHONPATH=without).code == 0
    refused = kmint("mint", "softmax", "--drafts", "1", PYTHONPATH=without)
    assert refused.code == 3 and "llama.cpp is not built here" in refused.err

"""What `ID|FILE` names: drafts, saved kernels, other files, and every way to name nothing."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from kmint_tui import paths
from kmint_tui.core.kernel_choice import chosen_kernel
from kmint_tui.core.reference import parse_reference
from kmint_tui.errors import UsageError
from kmint_tui.history.records import NewDraft, Reference
from kmint_tui.history.store import History
from tests.cli.test_judge import DOUBLE, REFERENCE
from tests.history.test_history import SESSION
from tests.save.test_host_code import GOOD
from tests.save.test_saving import saved

TIMED = {
    "verdict": "win",
    "timing": {"ratio": {"ratio": 1.2, "low": 1.1, "high": 1.3}, "bar": "compile", "cell": "x"},
    "environment": {
        "device": "NVIDIA H200",
        "torch": "2.11",
        "triton": "3.6",
        "cuda_driver": "13.0",
        "python": "3.12",
    },
}


@pytest.fixture
def history() -> None:
    """Session 1: a timed draft, its duplicate, one that was not timed. Session 2: a draft of the
    user's own op.
    """
    with History(paths.history_file()) as store:
        store.begin(SESSION)
        for number in range(3):
            store.add_draft(
                1,
                NewDraft(
                    number=number,
                    source=GOOD,
                    seed=11,
                    temperature=0.7,
                    tokens=100,
                    seconds=1.5,
                    finish="stop",
                    duplicate_of=0 if number == 1 else None,
                ),
            )
        store.set_verdict(1, 0, TIMED, ratio=1.2)
        store.set_verdict(1, 2, {"verdict": "correct", "timing": None}, ratio=None)
        store.begin(replace(SESSION, op="reference:double"))
        store.add_draft(
            2,
            NewDraft(
                number=0,
                source=DOUBLE,
                seed=11,
                temperature=0.7,
                tokens=100,
                seconds=1.5,
                finish="stop",
            ),
        )


def test_a_draft_with_what_was_claimed_of_it(history: None) -> None:
    found = chosen_kernel("1.0", None)
    assert (found.source, found.op.name, found.task.op, found.name, found.origin) == (
        GOOD,
        "softmax",
        "softmax",
        "1.0",
        "history",
    )
    assert (
        found.draft == Reference(1, 0)
        and found.source_sha256 == hashlib.sha256(GOOD.encode()).hexdigest()
    )
    assert found.claim is not None
    claimed = {
        "outcome": "win",
        "ratio": 1.2,
        "bar": "compile",
        "device": "NVIDIA H200",
        "cuda_driver": "13.0",
    }
    assert found.claim.to_json() == {**claimed, "torch": "2.11", "triton": "3.6"}
    assert chosen_kernel("1.2", "softmax").claim is None


def test_a_saved_kernel_knows_its_operation_and_judged_part(tmp_path: Path) -> None:
    saved(tmp_path)
    found = chosen_kernel(str(tmp_path / "softmax.py"), None)
    assert (found.op.name, found.origin, found.draft) == ("softmax", "saved file", None)
    assert (
        "def run(" in found.source
        and "provenance" not in found.source
        and "torch.library" not in found.source
    )


def test_a_plain_file_and_one_whose_name_is_a_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "12.3").write_text(GOOD, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    found = chosen_kernel("./12.3", "softmax")
    assert (found.source, found.op.name, found.origin) == (GOOD, "softmax", "file")


def test_a_reference_of_ones_own(history: None, tmp_path: Path) -> None:
    (tmp_path / "reference.py").write_text(REFERENCE, encoding="utf-8")
    found = chosen_kernel("2.0", None, parse_reference(str(tmp_path / "reference.py:double")))
    assert (found.op.name, found.op.origin, found.task.function) == (
        "reference:double",
        "user",
        "double",
    )


@pytest.mark.parametrize(
    ("wanted", "op", "words"),
    [
        ("1", None, "1 is a session"),
        ("1.1", None, "the same kernel as 1.0"),
        ("1.7", None, "no draft 1.7"),
        ("9.0", None, "no session 9"),
        ("1.0", "rmsnorm", "is a kernel for softmax, not for rmsnorm"),
        ("1.0", "sofmax", "'sofmax'"),
        ("2.0", None, "which is no operation of the catalogue"),
        ("1.", None, "'1.' is not an id"),
        ("kernel.py", None, "does not say what it is for"),
        ("kernel.py", "sofmax", "'sofmax'"),
        ("missing.py", "softmax", "neither an id of the history nor a file"),
        ("empty.py", "softmax", "is empty"),
        (".", "softmax", "cannot be read"),
    ],
)
def test_what_names_nothing_is_told(
    history: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wanted: str,
    op: str | None,
    words: str,
) -> None:
    (tmp_path / "kernel.py").write_text(GOOD, encoding="utf-8")
    (tmp_path / "empty.py").write_text("", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as refused:
        chosen_kernel(wanted, op)
    assert words in refused.value.message and (refused.value.fix or wanted == ".")


def test_an_operation_or_a_reference_but_not_both(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not both"):
        chosen_kernel("1.0", "softmax", parse_reference("reference.py"))

"""Names of references and of saved files, and saving through the commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kmint_tui.errors import UsageError
from kmint_tui.history.records import Draft
from kmint_tui.save.host_code import NotSaveable
from kmint_tui.save.own_reference import (
    own_reference,
)
from kmint_tui.save.saving import save
from kmint_tui.save.single_file import file_stem
from referee.judge import Referee
from referee.ops import Op, catalogue, get
from referee.problem import Problem, TaskName
from referee.reference.asked import Asked
from tests.cli.runner import kmint
from tests.save.conftest import draft, session
from tests.save.test_host_code import GOOD
from tests.save.test_own_reference import PASSED, SOFTMAX, run_test, saved
from tests.save.test_save_command import remember

pytestmark = pytest.mark.usefixtures("warm")


def test_a_reference_that_needs_more_than_torch_is_not_copied(tmp_path: Path) -> None:
    text = "import numpy\nimport torch\n\ndef f(x):\n    return x * float(numpy.pi)\n\nEXAMPLES = [[torch.ones(3)]]\n"
    (tmp_path / "f.py").write_text(text, encoding="utf-8")
    asked = Asked(str(tmp_path / "f.py"))
    assert own_reference(asked, Problem(TaskName("f", asked.file)).cells, ("x",)).copy is None
    test = saved(tmp_path / "new").files[1].read_text(encoding="utf-8")
    assert "The kernel is not run" in test and "test_kernel" not in test


def test_a_reference_of_any_name_gives_a_file_that_works(tmp_path: Path) -> None:
    names = (
        "lambda",
        "torch",
        "triton",
        "pytest",
        "isinstance",
        "zip",
        "random",
        "_run",
        "_checked_run",
        "JUDGED",
    )
    for name in names:
        files = saved(tmp_path, name).files
        assert [path.name for path in files] == [
            f"op_{name}.py",
            f"test_op_{name}.py",
            f"op_{name}.receipt.json",
        ]
    run_test(tmp_path)
    assert all(
        Path(saved(tmp_path, name).files[0]).stem == name for name in ("odd", "reference", "x")
    )


def test_operations_keep_their_names() -> None:
    assert [op.name for op in catalogue() if file_stem(op) != op.name] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("lambda",), "not Python"),
        (("x", "x"), "not Python"),
        (("a b",), "not Python"),
        (("_checked_run",), "itself"),
    ],
)
def test_what_would_be_no_python_is_not_written(
    tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    with pytest.raises(NotSaveable, match=words):
        saved(tmp_path / "new", arguments=arguments)
    assert not (tmp_path / "new").exists()


def test_a_kernel_is_saved_by_the_reference_it_was_minted_by(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="minted by mine:fused, not by other") as refused:
        saved(tmp_path / "new", by="other")
    assert "--reference" in refused.value.fix
    assert not (tmp_path / "new").exists()


def test_a_kernel_of_a_reference_is_not_saved_as_an_operations(tmp_path: Path) -> None:
    def save_as(op: Op, one: Draft) -> None:
        save(session(op.name), one, op, tmp_path, judge=lambda text: PASSED)

    with pytest.raises(UsageError, match="reference of your own") as refused:
        save_as(get("softmax"), draft(GOOD, PASSED))
    assert "--reference FILE.py" in refused.value.fix


def reference_then(document: dict[str, Any]) -> list[str]:
    """The reference that a kernel was saved by, where `verify` was given another one."""
    return [one["then"] for one in document["kernels"][0]["stale"] if one["name"] == "reference"]


def test_through_the_commands(referee: Referee, tmp_path: Path) -> None:
    """A reference with the name of an operation, from the history to a project and back."""
    path, other, project = tmp_path / "softmax.py", tmp_path / "other.py", tmp_path / "project"
    path.write_text(SOFTMAX, encoding="utf-8")
    other.write_text(SOFTMAX, encoding="utf-8")
    own = f"{path}:softmax"
    name = "softmax:softmax"
    identity = remember(referee, name, GOOD, TaskName(name, str(path), "softmax"))
    for wrong, words in (
        ([], "give --reference FILE.py"),
        (["--reference", f"{other}:softmax"], "not by other:softmax"),
        (["--reference", str(tmp_path / "nowhere.py")], "nowhere.py"),
    ):
        refused = kmint("save", identity, "--to", str(project), *wrong)
        assert refused.code == 2 and words in refused.err, refused.err
    assert not project.exists()
    done = kmint("save", identity, "--to", str(project), "--reference", own)
    assert done.code == 0, done.err

    file = project / "softmax_softmax.py"
    refused = kmint("verify", str(file))
    assert refused.code == 2 and "--reference PATH/TO/softmax.py:softmax" in refused.err
    assert kmint("verify", str(file), "--digests").code == 0
    held = kmint("verify", str(file), "--reference", own, "--json")
    assert held.code == 0 and reference_then(held.document) == [], held.out
    path.write_text(SOFTMAX + "# changed since\n", encoding="utf-8")
    changed = kmint("verify", str(file), "--reference", own, "--json")
    assert changed.code == 0
    assert [then.partition(" ")[0] for then in reference_then(changed.document)] == [
        "softmax.py:softmax"
    ]


def test_an_operations_kernel_is_not_saved_by_a_reference(referee: Referee, tmp_path: Path) -> None:
    (tmp_path / "softmax.py").write_text(SOFTMAX, encoding="utf-8")
    identity = remember(referee, "softmax", GOOD)
    refused = kmint(
        "save", identity, "--to", str(tmp_path / "new"), "--reference", str(tmp_path / "softmax.py")
    )
    assert refused.code == 2 and "leave out --reference" in refused.err
    assert not (tmp_path / "new").exists()

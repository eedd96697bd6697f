"""Hostile files in a project before a kernel is saved there."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from kmint_tui.errors import UsageError
from kmint_tui.save import writer
from tests.save.test_saving import saved

HANG_SECONDS = 30


@pytest.fixture(autouse=True)
def _ended() -> Iterator[None]:
    """A test that hangs is ended: reading a pipe waits for ever."""

    def end(number: int, frame: object) -> None:
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(HANG_SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(
    "content", ["[" * 100_000, '{"files":' * 20_000, "{", '{"files": 3}', "[]"]
)
def test_a_planted_receipt_vouches_for_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / "softmax.receipt.json").write_text(content)
    (tmp_path / "softmax.py").write_text("# mine\n")
    with pytest.raises(UsageError, match="edited"):
        saved(tmp_path)
    assert (tmp_path / "softmax.py").read_text() == "# mine\n"


@pytest.mark.parametrize("name", ["softmax.py", "softmax.receipt.json"])
def test_a_planted_pipe_is_not_waited_for(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(UsageError, match="was not written by kmint"):
        saved(tmp_path)
    saved(tmp_path, force=True)
    assert (tmp_path / name).is_file()


def test_nothing_is_written_through_a_folder_that_is_a_link(tmp_path: Path) -> None:
    """A repository can hold a link to a folder of the user's."""
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    project.mkdir()
    (elsewhere / "inner").mkdir(parents=True)
    (project / "torch-ext").symlink_to(elsewhere)
    for name in ("torch-ext/a.py", "torch-ext/inner/a.py"):
        with pytest.raises(UsageError, match="is a link"):
            writer.write(project, {name: "x"}, name, force=True)
    assert [path.name for path in elsewhere.rglob("*")] == ["inner"]


def test_a_file_that_is_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "theirs").write_text("# theirs\n")
    (tmp_path / "out" / "softmax.py").symlink_to(tmp_path / "theirs")
    saved(tmp_path / "out", force=True)
    assert (tmp_path / "theirs").read_text() == "# theirs\n"
    assert not (tmp_path / "out" / "softmax.py").is_symlink()

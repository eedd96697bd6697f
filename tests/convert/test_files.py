"""Files that appear whole or not at all, and their temporary folders, also after kills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from convert import files

# Kills itself before its n-th change in the folder: a new folder or file, a rename, a removal.
STEPS = """
import os, signal, sys
from pathlib import Path
folder, left = sys.argv[1], int(sys.argv[2])
def seen(event, arguments):
    global left
    place = str(arguments[0]) if arguments else ""
    if event in ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir") and place.startswith(folder):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
from convert import files
sys.addaudithook(seen)
files.write_text(Path(folder, "a.txt"), "new")
"""
HOLDER = """
import sys
from pathlib import Path
from convert import files
with files.temporary_folder(Path(sys.argv[1])) as folder:
    (folder / "large").write_bytes(bytes(1000))
    print(folder, flush=True)
    sys.stdin.read()
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    """The user's mode stays, and no other file is left in the folder."""
    path = tmp_path / "a.txt"
    path.write_text("old")
    umask = os.umask(0o027)
    try:
        files.write_text(path, "é")
    finally:
        os.umask(umask)
    assert path.read_bytes() == "é".encode() and path.stat().st_mode & 0o777 == 0o640
    assert names(tmp_path) == ["a.txt"]


def test_after_an_error_everything_is_as_before(tmp_path: Path) -> None:
    """The error passes through."""
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), files.replacing(path) as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert path.read_text() == "old" and names(tmp_path) == ["a.txt"]


def test_the_longest_name_can_be_replaced(tmp_path: Path) -> None:
    """Nothing is appended to the name on the way."""
    path = tmp_path / ("x" * 255)
    files.write_text(path, "new")
    assert path.read_text() == "new"


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    """The link's target does not change."""
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "a.txt").symlink_to(tmp_path / "victim")
    files.write_text(tmp_path / "a.txt", "new")
    assert (tmp_path / "victim").read_text() == "mine" and not (tmp_path / "a.txt").is_symlink()


def test_only_its_owner_may_enter_a_temporary_folder(tmp_path: Path) -> None:
    """Its name cannot be guessed either."""
    with files.temporary_folder(tmp_path) as first, files.temporary_folder(tmp_path) as second:
        assert first.stat().st_mode & 0o777 == 0o700
        assert first.parent == second.parent == tmp_path and first.name != second.name
    assert names(tmp_path) == []


def test_a_folder_in_use_is_not_swept(tmp_path: Path) -> None:
    """Neither another process's folder nor one's own; a killed maker's folder is swept at once."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        folder = Path(child.stdout.readline().strip())
        with files.temporary_folder(tmp_path) as ours:
            assert files.sweep(tmp_path) == tuple(sorted((folder, ours)))
        assert (folder / "large").exists()
        child.kill()
    assert names(tmp_path) == [folder.name]
    assert files.sweep(tmp_path) == () and names(tmp_path) == []


def test_killed_before_any_step_nothing_stays(tmp_path: Path) -> None:
    """Before every change in turn: the file is the old or the new one, and one sweep removes the
    rest.
    """
    path, seen = tmp_path / "a.txt", set[str]()
    for step in range(1, 50):
        path.write_text("old")
        done = subprocess.run(
            [sys.executable, "-c", STEPS, str(tmp_path), str(step)], capture_output=True, text=True
        )
        seen.add(path.read_text())
        assert files.sweep(tmp_path) == () and names(tmp_path) == ["a.txt"]
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
    assert seen == {"old", "new"} and 6 < step < 49


def test_what_only_looks_like_ours_is_left_alone(tmp_path: Path) -> None:
    """A file, a link, a folder of another name, and a folder with content but without a lock."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "text").write_text("mine")
    (tmp_path / ".kmint-tmp-abcdefgh").write_text("mine")
    (tmp_path / ".kmint-tmp-abcdefgi").symlink_to(tmp_path / "other")
    (tmp_path / ".kmint-tmp-abcdefghij").mkdir()
    (tmp_path / ".kmint-tmp-abcdefgj").mkdir()
    (tmp_path / ".kmint-tmp-abcdefgj" / "text").write_text("mine")
    before = names(tmp_path)
    assert files.sweep(tmp_path) == (tmp_path / ".kmint-tmp-abcdefgj",)
    assert names(tmp_path) == before and (tmp_path / "other" / "text").exists()


def test_a_sweep_does_not_follow_links(tmp_path: Path) -> None:
    """A link in an abandoned folder is removed, and its target stays."""
    (tmp_path / "user").mkdir()
    (tmp_path / "user" / "text").write_text("mine")
    folder = tmp_path / ".kmint-tmp-abcdefgh"
    folder.mkdir()
    (folder / ".kmint-lock").touch()
    (folder / "link").symlink_to(tmp_path / "user")
    assert files.sweep(tmp_path) == () and names(tmp_path) == ["user"]
    assert (tmp_path / "user" / "text").read_text() == "mine"

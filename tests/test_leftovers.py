"""What killed runs of kmint left is gone after the next start, wherever it lies."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from kmint_tui import leftovers, paths
from kmint_tui.models import part
from kmint_tui.models.remote import Remote
from kmint_tui.unfinished_places import noted
from referee.compiling.binaries import Binary, CompileCache
from tests.cli.runner import kmint
from tests.models.hub_server import COMMIT

# Makes something large in a place, and is killed there.
KILLED = """
import os, signal, sys
from pathlib import Path
from convert import files
from kmint_tui import leftovers
leftovers.begin()
with files.temporary_folder(Path(sys.argv[1])) as folder, files.temporary_folder(folder) as inner:
    (inner / "large").write_bytes(bytes(1000))
    os.kill(os.getpid(), signal.SIGKILL)
"""


def killed_in(place: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(place)], check=False)


def left(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir() if path.name.startswith(".kmint-tmp-"))


@pytest.mark.parametrize(
    "where",
    [
        "a folder of the user's",
        "the store",
        "a model's folder",
        "the cache",
        "the temporary folder",
    ],
)
def test_the_next_start_removes_what_a_kill_left(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any command is a start; it says nothing of it."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    places = {
        "a folder of the user's": tmp_path / "wörk",
        "the store": paths.models_dir(),
        "a model's folder": paths.models_dir() / "tiny",
        "the cache": paths.cache_dir(),
        "the temporary folder": tmp_path / "tmp",
    }
    place = places[where]
    for folder in (place, tmp_path / "tmp"):
        folder.mkdir(parents=True, exist_ok=True)
    killed_in(place)
    assert len(left(place)) == 1
    done = kmint("path")
    assert (done.code, done.err) == (0, "")
    assert left(place) == []


def test_places_are_forgotten_when_they_are_clean(tmp_path: Path) -> None:
    """So that a start does not look into more and more folders."""
    for name in ("a", "b", "gone"):
        (tmp_path / name).mkdir()
        killed_in(tmp_path / name)
    notes = paths.state_dir() / "unfinished"
    assert len(notes.read_text().splitlines()) >= 1
    subprocess.run(["rm", "-r", str(tmp_path / "gone")], check=True)
    with noted(tmp_path / "c"):
        pass
    leftovers.begin()
    assert notes.read_text() == "" and left(tmp_path / "a") == left(tmp_path / "b") == []


def test_a_damaged_list_of_places_is_no_trouble(tmp_path: Path) -> None:
    """Lines that are none are passed over."""
    notes = paths.private_dir(paths.state_dir()) / "unfinished"
    killed_in(tmp_path)
    notes.write_bytes(
        b'nonsense\n[1]\n"/\\u0000"\n"here"\n\xff\n'
        + b"[" * 200_000
        + b"\n"
        + notes.read_bytes()
        + b'"half'
    )
    leftovers.begin()
    assert left(tmp_path) == [] and notes.read_text() == ""


def test_where_nothing_can_be_written_work_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A home that is a file holds no list of places."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KMINT_HOME", str(tmp_path / "file"))
    leftovers.begin()
    with noted(tmp_path / "a"), noted(tmp_path / "b"):
        pass
    assert leftovers.found() == ()


def a_part(
    folder: Path, name: str, *, days: float = 0.0, note: bool = True, lock: bool = True
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.part"
    path.write_bytes(bytes(100))
    remote = Remote(
        repo="a/b",
        revision=COMMIT,
        name=name,
        nbytes=1000,
        sha256=None,
        licence=None,
        url="http://127.0.0.1:9",
    )
    if note:
        path.with_name(f"{name}.part.json").write_text(
            json.dumps({"remote": asdict(remote), "etag": None})
        )
    if lock:
        (folder / f".{name}.lock").touch()
    then = path.stat().st_mtime - days * 24 * 3600
    os.utime(path, (then, then))
    with noted(folder):
        pass
    return path


def test_parts_that_nobody_continues_are_swept() -> None:
    """A part that can go on stays a month; one that belongs to nothing goes at once; files of
    others stay.
    """
    folder = paths.models_dir() / "tiny"
    fresh = a_part(folder, "fresh.gguf", days=29)
    a_part(folder, "old.gguf", days=31)
    a_part(folder, "orphan.gguf", note=False)
    foreign = a_part(folder, "film.mkv", days=400, lock=False)
    note = folder / "late.gguf.part.json"
    note.write_text("{}")
    (folder / ".late.gguf.lock").touch()
    leftovers.begin()
    names = sorted(path.name for path in folder.iterdir())
    assert names == sorted(
        [
            fresh.name,
            fresh.name + ".json",
            ".fresh.gguf.lock",
            foreign.name,
            foreign.name + ".json",
        ]
    )
    assert [one.path for one in leftovers.found() if one.resumable] == [fresh]


def test_a_part_that_is_being_fetched_is_not_swept() -> None:
    """Its lock says so, however old it is."""
    path = a_part(paths.models_dir() / "tiny", "old.gguf", days=400)
    with part.locked(path.with_name(".old.gguf.lock")):
        leftovers.begin()
        assert path.exists()
    leftovers.begin()
    assert not path.exists()


def test_a_planted_part_is_not_written_through(tmp_path: Path) -> None:
    """A link under the name of a part is removed, and what it leads to stays."""
    victim, remote = (
        tmp_path / "victim",
        Remote(
            repo="a/b",
            revision=COMMIT,
            name="m.gguf",
            nbytes=1000,
            sha256=None,
            licence=None,
            url="http://127.0.0.1:9",
        ),
    )
    victim.write_text("mine")
    for name in ("m.gguf.part", "m.gguf.part.json", "m.gguf.sha256"):
        (tmp_path / name).symlink_to(victim)
    part.Part(remote, tmp_path / "m.gguf")
    assert victim.read_text() == "mine" and not (tmp_path / "m.gguf.part").is_symlink()
    (tmp_path / ".m.gguf.lock").symlink_to(tmp_path / "nowhere")
    with pytest.raises(OSError), part.locked(tmp_path / ".m.gguf.lock"):
        pass
    assert not (tmp_path / "nowhere").exists()


def test_the_newest_logs_are_kept() -> None:
    """Of each kind ten."""
    logs = paths.private_dir(paths.log_dir())
    for number in range(15):
        for kind in ("fault", "tui", "smoke"):
            path = logs / f"{kind}-{number:02}.log"
            path.touch()
            os.utime(path, (number, number))
    leftovers.begin()
    assert sorted(path.name for path in logs.iterdir()) == sorted(
        f"{kind}-{number:02}.log" for kind in ("fault", "tui", "smoke") for number in range(5, 15)
    )


def test_the_referees_unfinished_kernels_are_swept() -> None:
    """In the folder where its compile cache makes them; one that is being written stays."""
    cache = CompileCache(paths.cache_dir() / "referee" / "kernels")
    cache.store(
        Binary(
            kernel="k",
            key="a" * 64,
            image=b"\x7fELF",
            name="k",
            shared=0,
            num_warps=4,
            registers=None,
            spills=None,
            parameters=(),
            paths=(),
        )
    )
    (folder,) = (
        path for path in (paths.cache_dir() / "referee" / "kernels").iterdir() if path.is_dir()
    )
    (folder / "abandoned").write_text("{")
    with (folder / "busy").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        leftovers.begin()
        assert [path.name for path in folder.iterdir()] == ["busy"]


def test_doctor_lists_what_is_unfinished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Downloads that can go on, and folders in use, with their sizes."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    a_part(paths.models_dir() / "tiny", "m.gguf")
    done = kmint("doctor", "--json")
    (found,) = (one for one in done.document["findings"] if one["name"] == "leftovers")
    assert (
        found["status"] == "warn"
        and "m.gguf.part" in found["detail"]
        and "100 B" in found["detail"]
    ), found
    assert "kmint models pull" in found["fix"]

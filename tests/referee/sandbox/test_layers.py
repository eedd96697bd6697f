"""The layers' own parts, and what is told of them."""

from __future__ import annotations

import os
import pwd
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

import referee
from referee.sandbox import file_view, job_frame, landlock, layers
from referee.sandbox.layers import Sandbox, SandboxError
from referee.sandbox.removal import remove_tree
from referee.sandbox.zygote import Zygote
from tests.referee.sandbox.support import HOSTILE, LIMITS, NAMESPACES, WORLDS, make

LAYERS = (
    *(
        "user namespace",
        "mount namespace",
        "network namespace",
        "ipc namespace",
        "uts namespace",
        "pid namespace",
        "private root",
    ),
    *(
        "closed descriptors",
        "private /proc",
        "scratch quota",
        "unprivileged user",
        "parent death signal",
        "job namespaces",
    ),
    *(
        "resource limits",
        "no capabilities",
        "thread limit",
        "no new privileges",
        "landlock",
        "not dumpable",
        "system-call filter",
    ),
)


def test_every_layer_is_reported_by_name(servers: dict[str, Zygote]) -> None:
    for zygote in servers.values():
        assert tuple(protection.name for protection in zygote.protections) == LAYERS
        assert all(protection.detail for protection in zygote.protections)


@pytest.mark.parametrize("world", ("container", "namespaces only"))
def test_a_layer_that_is_left_out_is_reported_missing(
    servers: dict[str, Zygote], world: str
) -> None:
    missing = {
        protection.name for protection in servers[world].protections if not protection.active
    }
    assert missing >= set(WORLDS[world])


def test_a_layer_that_depends_on_a_missing_one_says_so(servers: dict[str, Zygote]) -> None:
    details = {
        protection.name: protection.detail
        for protection in servers["container"].protections
        if not protection.active
    }
    assert details["scratch quota"].startswith("needs a mount namespace")
    assert details["job namespaces"] == "needs a user namespace"


@pytest.mark.parametrize("layer", LAYERS)
def test_jobs_run_whichever_single_layer_a_host_lacks(layer: str) -> None:
    with make((layer,)) as zygote:
        outcome = zygote.run("hostile_resources:echo", b"runs", limits=LIMITS)
        assert (outcome.status, outcome.data) == ("ok", b"runs"), outcome
        assert layer in {
            protection.name for protection in zygote.protections if not protection.active
        }


def test_jobs_run_with_no_layer_at_all() -> None:
    with make(LAYERS) as zygote:
        assert not any(protection.active for protection in zygote.protections)
        assert zygote.run("hostile_resources:echo", b"runs", limits=LIMITS).data == b"runs"


def test_a_layer_whose_trial_is_killed_is_not_taken_for_active() -> None:
    trials = (
        "import os, signal; from referee.sandbox.namespaces import try_in_child\n"
        "print(repr(try_in_child(lambda: None)), repr(try_in_child(lambda: os.kill(os.getpid(), signal.SIGKILL))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", trials], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "'' 'the trial process died'\n"


def test_a_job_that_cannot_take_on_a_layer_is_refused() -> None:
    def failing() -> str:
        raise OSError("the kernel says no")

    sandbox = Sandbox.__new__(Sandbox)
    sandbox._without = frozenset()
    sandbox._required = None
    assert not sandbox._take_on_one("landlock", failing).active
    sandbox._required = frozenset({"landlock"})
    with pytest.raises(SandboxError, match="cannot take on landlock: the kernel says no"):
        sandbox._take_on_one("landlock", failing)
    sandbox._required = frozenset()
    assert not sandbox._take_on_one("landlock", failing).active


def test_a_user_without_root_gets_every_layer_too() -> None:
    if os.geteuid() != 0:
        pytest.skip("the other tests run as an ordinary user already")
    python = next(
        (
            path
            for path in (sys.executable, shutil.which("python3", path="/usr/bin"))
            if path and usable_by_nobody(path)
        ),
        None,
    )
    if python is None:
        pytest.skip("no Python here that another user may run")
    with tempfile.TemporaryDirectory() as folder:
        os.chown(folder, 65534, 65534)
        secret = Path(folder) / "secret"
        secret.write_text("secret")
        os.chown(secret, 65534, 65534)
        done = as_nobody(
            python, USER_SCRIPT.format(root=ROOT, hostile=str(HOSTILE), secret=str(secret))
        )
    assert done.returncode == 0, done.stderr
    answer = done.stdout.split("\n")
    assert answer[0] == "ok b'runs'"
    assert answer[1].startswith("ok b'refused ")
    missing = set(answer[2].split(","))
    assert not missing & {"landlock", "system-call filter"}
    if not missing & set(NAMESPACES):
        assert not missing & {"private root", "job namespaces", "scratch quota"}


ROOT = str(Path(referee.__file__).parents[1])
USER_SCRIPT = """
import sys
sys.path.insert(0, {root!r})
from referee.sandbox.zygote import Limits, Zygote
limits = Limits(240.0, 1 << 28, 1 << 16)
with Zygote(preload=(), extra_path=({hostile!r},)) as zygote:
    for entry, payload in (("resources:echo", b"runs"), ("files:read", {secret!r}.encode())):
        outcome = zygote.run("hostile_" + entry, payload, limits=limits)
        print(outcome.status, outcome.data)
    print(",".join(protection.name for protection in zygote.protections if not protection.active))
"""


def as_nobody(python: str, script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-c", script],
        user=65534,
        group=65534,
        extra_groups=[],
        cwd="/",
        env={},
        capture_output=True,
        text=True,
        timeout=600,
    )


def usable_by_nobody(python: str) -> bool:
    check = f"import sys, os; sys.exit(not (sys.version_info >= (3, 11) and os.access({ROOT + '/referee/sandbox/zygote.py'!r}, os.R_OK)))"
    try:
        return as_nobody(python, check).returncode == 0
    except OSError:
        return False


def test_what_is_readable_holds_no_folder_of_the_user() -> None:
    paths = file_view.readable_paths(())
    home = os.path.expanduser("~")
    assert f"{ROOT}/referee" in paths
    assert sys.base_prefix in paths or any(sys.base_prefix.startswith(path + "/") for path in paths)
    assert not any(path == "/" or home == path or home.startswith(path + "/") for path in paths)


def test_a_user_without_a_password_entry_has_no_home_to_hide(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(uid: int) -> pwd.struct_passwd:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    before = file_view.readable_paths(())
    monkeypatch.setattr(pwd, "getpwuid", missing)
    assert set(file_view.readable_paths(())) >= set(before)


def test_a_python_inside_the_home_shows_its_libraries_only() -> None:
    shown = file_view._installation(sys.prefix)
    assert sys.prefix not in shown
    assert os.path.dirname(os.__file__) in shown


def test_landlock_describes_its_versions() -> None:
    assert landlock.describe(1) == "version 1: files"
    assert (
        landlock.describe(7)
        == "version 7: files, truncation, TCP, device ioctls, signals and abstract sockets"
    )


def test_the_loader_of_a_program_is_found(tmp_path: Path) -> None:
    loader = layers.loader_of(os.path.realpath(sys.executable))
    assert loader is not None and os.path.exists(loader)
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    assert layers.loader_of(str(script)) is None
    assert layers.loader_of(loader) is None


def test_frames_are_read_as_they_were_written() -> None:
    frame = job_frame.build("memory", b"abc")
    assert job_frame.parse_header(frame) == job_frame.Header("memory", 3)
    assert frame[job_frame.HEADER_BYTES :] == b"abc"


@pytest.mark.parametrize(
    "damaged",
    (b"", b"KMJ1", b"XXXX" + bytes(9), b"KMJ1\x07" + bytes(8), job_frame.build("ok", b"")[:-1]),
)
def test_damaged_frames_are_not_read(damaged: bytes) -> None:
    assert job_frame.parse_header(damaged) is None


def test_a_frame_may_claim_any_size() -> None:
    header = job_frame.parse_header(struct.pack("<4sBQ", b"KMJ1", 0, 2**64 - 1))
    assert header is not None and header.size == 2**64 - 1


def test_removal_follows_no_link_and_leaves_nothing(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    tree = tmp_path / "tree"
    (tree / "a" / "b").mkdir(parents=True)
    (tree / "c").mkdir()
    (tree / "a" / "file").write_text("x")
    (tree / "a" / "b" / "link").symlink_to(outside)
    (tree / "link").symlink_to(outside)
    (tree / "c").chmod(0)
    remove_tree(str(tree))
    assert not tree.exists()
    assert (outside / "kept").read_text() == "kept"


def test_two_removers_of_one_tree_leave_nothing(tmp_path: Path) -> None:
    for round_ in range(20):
        tree = tmp_path / str(round_)
        for number in range(20):
            (tree / str(number) / "a" / "b").mkdir(parents=True)
        other = threading.Thread(target=remove_tree, args=(str(tree),))
        other.start()
        remove_tree(str(tree))
        other.join()
        assert not tree.exists()


def test_removing_what_is_not_there_or_a_link_is_harmless(tmp_path: Path) -> None:
    remove_tree(str(tmp_path / "absent"))
    target = tmp_path / "target"
    target.mkdir()
    (target / "kept").write_text("kept")
    (tmp_path / "link").symlink_to(target)
    remove_tree(str(tmp_path / "link"))
    assert (target / "kept").exists()


def test_control_characters_never_reach_a_terminal(zygote: Zygote) -> None:
    outcome = zygote.run("hostile_resources:print_escape", b"", limits=LIMITS)
    assert outcome.status == "exited"
    assert "\x1b" not in outcome.detail and "\ufffd[31mred" in outcome.detail

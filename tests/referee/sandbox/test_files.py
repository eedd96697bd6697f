"""No file outside the scratch directory can be read or changed; each layer that sees to it must do
so alone.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import referee.verdict
from tests.referee.sandbox.support import WORLDS, Attack

READING = (
    "read",
    "walk_up",
    "read_through_symbolic_link",
    "read_through_hard_link",
    "read_by_mapping",
    "open_by_handle",
)
WRITING = (
    "append",
    "overwrite",
    "create_beside",
    "make_directory_beside",
    "link_beside",
    "truncate_by_name",
    "truncate_while_reading",
    "delete",
    "move_into_scratch",
    "replace_from_scratch",
    "change_mode",
    "change_owner",
    "change_times",
    "set_attribute",
)
SECRETS = (
    ".ssh/id_ed25519",
    ".cache/huggingface/token",
    ".netrc",
    ".local/share/kmint/history.jsonl",
)
CHANGING_CODE = (
    "append",
    "overwrite",
    "truncate_while_reading",
    "delete",
    "change_mode",
    "replace_from_scratch",
    "create_beside",
)
HOST_FILES = (
    "/etc/shadow",
    "/etc/passwd",
    "/etc/hostname",
    "/proc/kcore",
    "/dev/kmsg",
    "/dev/mem",
    "/dev/tty",
    "/dev/fuse",
)
ON_HOST = (
    "make_device",
    "run_from_scratch",
    "write_shared_memory_directory",
    "write_kernel_setting",
    "write_to_tmp",
)


def refused(data: bytes) -> bool:
    return data.startswith(b"refused ")


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("secret", SECRETS)
def test_secrets_cannot_be_read(attack: Attack, home: Path, secret: str, world: str) -> None:
    outcome = attack("files:read", str(home / secret), world=world)
    assert refused(outcome.data), outcome


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("way", READING)
def test_no_way_of_reading_a_secret_works(attack: Attack, home: Path, way: str, world: str) -> None:
    outcome = attack(f"files:{way}", str(home / SECRETS[0]), world=world)
    assert refused(outcome.data), outcome


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("way", WRITING)
def test_no_way_of_changing_a_file_works(attack: Attack, home: Path, way: str, world: str) -> None:
    target = home / SECRETS[3]
    before = (target.read_bytes(), target.stat(), sorted(os.listdir(target.parent)))
    outcome = attack(f"files:{way}", str(target), world=world)
    assert refused(outcome.data), outcome
    assert (target.read_bytes(), sorted(os.listdir(target.parent))) == (before[0], before[2])
    after = target.stat()
    assert (after.st_mode, after.st_uid, after.st_mtime_ns, after.st_ino) == (
        before[1].st_mode,
        before[1].st_uid,
        before[1].st_mtime_ns,
        before[1].st_ino,
    )


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("way", CHANGING_CODE)
@pytest.mark.parametrize(
    "target", (str(referee.verdict.__file__), os.path.join(sys.prefix, "pyvenv.cfg"), os.__file__)
)
def test_the_judges_own_code_cannot_be_changed(
    attack: Attack, target: str, way: str, world: str
) -> None:
    before = Path(target).read_bytes() if os.path.exists(target) else None
    outcome = attack(f"files:{way}", target, world=world)
    assert refused(outcome.data), outcome
    assert (Path(target).read_bytes() if os.path.exists(target) else None) == before


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("way", ("list_directory",))
def test_directories_of_the_user_cannot_be_listed(
    attack: Attack, home: Path, way: str, world: str
) -> None:
    assert refused(attack(f"files:{way}", str(home / "x"), world=world).data)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("target", HOST_FILES)
def test_files_of_the_host_cannot_be_read(attack: Attack, target: str, world: str) -> None:
    assert refused(attack("files:read", target, world=world).data)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("way", ON_HOST)
def test_the_host_cannot_be_written(attack: Attack, way: str, world: str) -> None:
    outcome = attack(f"files:{way}", "", world=world)
    assert refused(outcome.data), outcome
    assert not os.path.exists("/tmp/left-behind")
    assert not os.path.exists("/dev/shm/left-behind")


@pytest.mark.parametrize("world", WORLDS)
def test_a_module_left_in_scratch_shadows_nothing(attack: Attack, world: str) -> None:
    assert attack("files:shadow_module", world=world).data == b"written"
    assert attack("resources:echo", b"again", world=world).data == b"again"


@pytest.mark.parametrize("world", WORLDS)
def test_temporary_files_are_made_in_scratch(attack: Attack, world: str) -> None:
    outcome = attack("files:make_temporary_file", world=world)
    assert outcome.data == b"in scratch", outcome

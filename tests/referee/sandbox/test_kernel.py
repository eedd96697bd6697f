"""Network, kernel interfaces, environment and descriptors."""

from __future__ import annotations

import json
import os
import socket
import tempfile

import pytest

from tests.referee.sandbox.support import SECRET, WORLDS, Attack

FILTERED_WORLDS = ("full", "container")


@pytest.mark.parametrize("world", FILTERED_WORLDS)
def test_no_dangerous_system_call_passes_the_filter(attack: Attack, world: str) -> None:
    known = attack("kernel:known", world=world).data.decode()
    assert len(known.split()) >= 50
    assert attack("kernel:names", known, world=world).data.decode() == ""


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("way", ("connect_tcp", "send_udp"))
def test_no_connection_leaves_the_job(attack: Attack, way: str, world: str) -> None:
    kind = socket.SOCK_STREAM if way == "connect_tcp" else socket.SOCK_DGRAM
    with socket.socket(socket.AF_INET, kind) as listener:
        listener.bind(("127.0.0.1", 0))
        if kind == socket.SOCK_STREAM:
            listener.listen()
        outcome = attack(f"kernel:{way}", str(listener.getsockname()[1]), world=world)
        assert outcome.data.startswith(b"refused "), outcome
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            if kind == socket.SOCK_STREAM:
                listener.accept()
            else:
                listener.recv(16)


@pytest.mark.parametrize("world", FILTERED_WORLDS)
@pytest.mark.parametrize(
    "way", ("listen_tcp", "resolve_name", "listen_unix", "pair_of_sockets", "netlink")
)
def test_no_socket_can_be_made(attack: Attack, way: str, world: str) -> None:
    outcome = attack(f"kernel:{way}", world=world)
    assert outcome.data.startswith(b"refused "), outcome


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("way", ("connect_unix_path", "connect_unix_abstract"))
def test_no_local_server_can_be_reached(attack: Attack, way: str, world: str) -> None:
    with socket.socket(socket.AF_UNIX) as listener, tempfile.TemporaryDirectory() as folder:
        name = os.path.join(folder, "s")
        listener.bind(name if way == "connect_unix_path" else "\0" + name)
        listener.listen()
        outcome = attack(f"kernel:{way}", name, world=world)
    assert outcome.data.startswith(b"refused "), outcome


def test_scratch_holds_no_programs(attack: Attack) -> None:
    assert attack("kernel:map_program").data.startswith(b"refused ")


@pytest.mark.parametrize("world", WORLDS)
def test_environment_arguments_and_descriptors_hold_no_secret(attack: Attack, world: str) -> None:
    view = json.loads(attack("kernel:self_view", world=world).data)
    assert SECRET not in view["environment"]
    assert "hf_token" not in json.dumps(view)
    allowed = {
        "PATH",
        "LANG",
        "USER",
        "HOME",
        "TMPDIR",
        "XDG_CACHE_HOME",
        "TRITON_HOME",
        "PYTHONHASHSEED",
        "CUDA_VISIBLE_DEVICES",
    }
    assert set(view["environment"]) - allowed - {
        "MALLOC_ARENA_MAX",
        "LD_LIBRARY_PATH",
        "LC_CTYPE",
    } == {
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "TRITON_DEFAULT_FP_FUSION",
    }
    assert view["environment"]["CUDA_VISIBLE_DEVICES"] == ""
    assert view["environment"]["HOME"] == view["environment"]["TMPDIR"]
    assert len(view["open"]) == 4, view["descriptors"]
    assert all(target.startswith(("/dev/null", "pipe:")) for target in view["descriptors"].values())

"""The attacks work where there is no sandbox: their refusals elsewhere are the sandbox's doing.

Each runs in a process of its own, against a victim made for it.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.referee.sandbox.support import HOSTILE
from tests.referee.sandbox.test_files import READING, WRITING
from tests.referee.sandbox.test_processes import MAKING_PROCESSES, ON_OTHERS

# What a machine may forbid everybody or not have at all: rights that root lacks in a container,
# file systems without it.
MAY_BE_MISSING = {
    "open_by_handle": (b"refused EPERM", b"refused EOPNOTSUPP"),
    "set_attribute": (b"refused EOPNOTSUPP",),
}
# Lets every process trace it, where only its own ancestors might.
VICTIM = """
import ctypes, time
ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(2**64 - 1), 0, 0, 0)
print("ready", flush=True)
time.sleep(3600)
"""
RUN = "import sys, hostile_{0}; sys.stdout.buffer.write(hostile_{0}.{1}(sys.argv[1].encode(), sys.argv[2], ()))"


def unsandboxed(entry: str, argument: str, scratch: Path) -> bytes:
    module, _, function = entry.partition(":")
    done = subprocess.run(
        [sys.executable, "-c", RUN.format(module, function), argument, str(scratch)],
        env={"PYTHONPATH": str(HOSTILE)},
        cwd=scratch,
        capture_output=True,
        timeout=600,
    )
    return done.stdout


@pytest.mark.parametrize("way", (*READING, *WRITING))
def test_file_attacks_work_without_a_sandbox(way: str, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("secret")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    outcome = unsandboxed(f"files:{way}", str(victim), scratch)
    if outcome in MAY_BE_MISSING.get(way, ()):
        pytest.skip(f"nobody can do this here: {outcome.decode()}")
    assert outcome.startswith(b"succeeded "), outcome


@pytest.mark.parametrize("way", ON_OTHERS)
def test_process_attacks_work_without_a_sandbox(way: str, tmp_path: Path) -> None:
    victim = subprocess.Popen(
        [sys.executable, "-c", VICTIM], stdout=subprocess.PIPE, start_new_session=True
    )
    assert victim.stdout is not None
    try:
        with victim.stdout:
            assert victim.stdout.readline() == b"ready\n"
        outcome = unsandboxed(f"processes:{way}", json.dumps([victim.pid]), tmp_path)
    finally:
        victim.kill()
        victim.wait()
    # The copied address is the attacker's own: nothing of the victim's lies there, and the kernel
    # says so.
    assert outcome.startswith(b"refused EFAULT" if way == "copy_memory" else b"succeeded "), outcome


@pytest.mark.parametrize(
    "way", sorted(set(MAKING_PROCESSES) & {"spawn_program", "execute_memory_file"})
)
def test_processes_can_be_made_without_a_sandbox(way: str, tmp_path: Path) -> None:
    assert unsandboxed(f"processes:{way}", "", tmp_path).startswith(b"succeeded ")


@pytest.mark.parametrize(
    "way",
    (
        "connect_tcp",
        "send_udp",
        "listen_tcp",
        "listen_unix",
        "pair_of_sockets",
        "netlink",
        "map_program",
    ),
)
def test_network_attacks_work_without_a_sandbox(way: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert unsandboxed(f"kernel:{way}", str(listener.getsockname()[1]), tmp_path).startswith(
            b"succeeded "
        )

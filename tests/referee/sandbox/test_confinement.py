"""What a helper process can still do once it has confined itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from referee.sandbox import landlock
from referee.sandbox.confinement import NAMES
from tests.referee.sandbox.test_layers import ROOT

# Runs `attempts`, Python expressions by name, after confining itself; prints how each ended and
# what the layers say.
SCRIPT = """
import json, os, resource, signal, socket, sys
sys.path.append({root!r})
import fcntl, ctypes, threading, time
from referee.sandbox.confinement import Rights, confine
asked = json.loads(sys.argv[1])
rights = Rights(**{{name: tuple(value) if isinstance(value, list) else value for name, value in asked["rights"].items()}})
layers = confine(rights, asked["without"])
ended = {{}}
for name, attempt in asked["attempts"].items():
    try:
        ended[name] = f"done {{eval(attempt)}}"
    except OSError as error:
        ended[name] = f"errno {{error.errno}}"
    except BaseException as error:
        ended[name] = type(error).__name__
print(json.dumps([ended, {{layer.name: layer.active for layer in layers}}, {{layer.name: layer.detail for layer in layers}}]))
"""
EPERM, EACCES, EAFNOSUPPORT, ECONNREFUSED, EFBIG = (
    "errno 1",
    "errno 13",
    "errno 97",
    "errno 111",
    "errno 27",
)


@pytest.fixture(autouse=True)
def supported() -> None:
    try:
        landlock.version()
    except OSError as error:
        pytest.skip(f"this host has no Landlock: {error}")


def attempted(
    attempts: dict[str, str], without: tuple[str, ...] = (), **rights: object
) -> tuple[dict[str, str], dict[str, bool], dict[str, str]]:
    """How each attempt ended in a confined process, which layers were active, and what they say."""
    asked = json.dumps({"rights": rights, "attempts": attempts, "without": without})
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(root=ROOT), asked], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    ended, active, details = json.loads(done.stdout)
    return ended, active, details


def test_every_layer_is_taken_on_and_named() -> None:
    _, active, details = attempted({})
    assert active == dict.fromkeys(NAMES, True)
    assert all(details.values())


def test_it_reads_what_it_was_given_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "given").write_text("given")
    (tmp_path / "secret").write_text("secret")
    given, secret = str(tmp_path / "given"), str(tmp_path / "secret")
    attempts = {
        "given": f"open({given!r}).read()",
        "library": "__import__('colorsys').__name__",
        "secret": f"open({secret!r}).read()",
        "list": f"os.listdir({str(tmp_path)!r})",
        "write": f"open({given!r}, 'a')",
        "make": f"open({str(tmp_path / 'new')!r}, 'w')",
        "remove": f"os.unlink({given!r})",
        "mode": f"os.chmod({given!r}, 0o777)",
        "other's memory": f"open('/proc/{os.getpid()}/environ').read()",
    }
    ended, _, _ = attempted(attempts, readable=[given])
    assert (ended.pop("given"), ended.pop("library")) == ("done given", "done colorsys")
    assert set(ended.values()) <= {EACCES, EPERM}, ended
    assert (tmp_path / "given").exists()


def test_it_reaches_no_network_and_no_other_process(tmp_path: Path) -> None:
    attempts = {
        "network": "socket.socket()",
        "unix": "socket.socket(socket.AF_UNIX)",
        "fork": "os.fork()",
        "program": "os.execv('/bin/true', ['true'])",
        "signal": f"os.kill({os.getppid()}, 0)",
        "rights back": "__import__('referee.sandbox.linux').sandbox.linux.unshare(0x10000000)",
        "debugger": "__import__('referee.sandbox.linux').sandbox.linux.call('ptrace', 0, 0, 0, 0)",
    }
    ended, _, _ = attempted(attempts)
    assert set(ended.values()) == {EPERM}, ended
    ended, _, _ = attempted(
        {
            "thread": "threading.Thread(target=time.time).start()",
            "own signal": "os.kill(os.getpid(), 0)",
        }
    )
    assert set(ended.values()) == {"done None"}


def test_memory_and_time_are_limited() -> None:
    attempts = {
        "memory": "len('x' * (300 << 20))",
        "a little": "len('x' * (100 << 20))",
        "core": "resource.getrlimit(resource.RLIMIT_CORE)",
        "time": "[signal.signal(signal.SIGXCPU, lambda number, frame: sys.exit(1)), all(True for _ in iter(int, 1))]",
    }
    ended, _, _ = attempted(attempts, memory_bytes=200 << 20, processor_seconds=1)
    assert ended == {
        "memory": "MemoryError",
        "a little": f"done {100 << 20}",
        "core": "done (0, 0)",
        "time": "SystemExit",
    }


def test_a_file_that_is_open_already_takes_only_so_much(tmp_path: Path) -> None:
    """As the engine's log is."""
    log = tmp_path / "log"
    attempts = {"more": "os.write(2, b'x' * 5000)", "and more": "os.write(2, b'x' * 5000)"}
    asked = json.dumps({"rights": {"file_bytes": 4096}, "attempts": attempts, "without": []})
    with log.open("w") as words:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT.format(root=ROOT), asked],
            stdout=subprocess.PIPE,
            stderr=words,
            text=True,
        )
    assert json.loads(done.stdout)[0] == {"more": "done 4096", "and more": EFBIG}
    assert log.stat().st_size == 4096


def test_a_driver_gets_its_devices_and_sockets_that_reach_nobody(tmp_path: Path) -> None:
    """`/dev/full` stands in for a GPU's device file: it takes commands only from those who may use
    it.
    """
    attempts = {
        "device": "fcntl.ioctl(open('/dev/full', 'r+b', buffering=0), 0x5401)",
        "unix": "socket.socket(socket.AF_UNIX).getsockname()",
        "pair": "[end.close() for end in socket.socketpair()]",
        "packets": "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)",
        "network": "socket.socket()",
        "caller": "socket.socket(socket.AF_UNIX).connect('/run/some/socket')",
        "pinned": "os.sched_setaffinity(0, os.sched_getaffinity(0))",
        "program": "os.execv('/bin/true', ['true'])",
        "other device": "open('/dev/tty', 'r+b', buffering=0)",
    }
    ended, _, details = attempted(attempts, devices=["/dev/full"])
    assert (ended.pop("device"), ended.pop("unix"), ended.pop("pinned")) == (
        "errno 25",
        "done ",
        "done None",
    )
    assert ended.pop("pair").startswith("done ")
    wanted = {
        "packets": EPERM,
        "network": EAFNOSUPPORT,
        "caller": ECONNREFUSED,
        "program": EPERM,
        "other device": EACCES,
    }
    assert ended == wanted
    assert details["system-call filter"].endswith("any command to a device")
    ended, _, _ = attempted({"device": "open('/dev/full', 'r+b', buffering=0)"})
    assert ended == {"device": EACCES}


@pytest.mark.parametrize("layer", NAMES)
def test_a_layer_that_is_left_out_is_told_and_the_others_hold(layer: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    attempts = {
        "secret": f"open({str(tmp_path / 'secret')!r}).read()",
        "network": "socket.socket().close()",
    }
    ended, active, details = attempted(attempts, (layer,))
    assert (active[layer], details[layer]) == (False, "left out on request")
    missing = {name for name, there in active.items() if not there}
    # Landlock and the filter ask that no new privileges can be had; root may do without.
    assert missing <= {
        layer,
        *(("landlock", "system-call filter") if layer == "no new privileges" else ()),
    }
    assert ended["secret"] == ("done secret" if "landlock" in missing else EACCES)
    assert ended["network"] == ("done None" if "system-call filter" in missing else EPERM)


def test_root_keeps_what_it_needs_to_read_the_file(tmp_path: Path) -> None:
    """A file of another user's that root reads only as root: it is read, and the layer that would
    forbid it is told.
    """
    if os.geteuid() != 0:
        pytest.skip("needs root")
    path = tmp_path / "of another"
    path.write_text("given")
    os.chown(path, 65534, 65534)
    path.chmod(0o600)
    ended, active, details = attempted(
        {"given": f"open({str(path)!r}).read()"}, readable=[str(path)]
    )
    assert ended == {"given": "done given"}
    assert not active["no capabilities"] and "readable with them only" in details["no capabilities"]

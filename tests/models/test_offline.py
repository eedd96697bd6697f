"""No socket opens offline, and online only a pull opens one: a filter kills every other command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.runner import Done
from tests.models import no_sockets
from tests.tiny_models import llama

GUARD = [sys.executable, no_sockets.__file__]
CONNECT = "import socket; socket.socket(socket.AF_INET).connect(('127.0.0.1', 9))"
OFFLINE = {
    "flag": {},
    "KMINT_OFFLINE": {"KMINT_OFFLINE": "1"},
    "HF_HUB_OFFLINE": {"HF_HUB_OFFLINE": "1"},
    "settings": {},
}


def guarded(*command: str, **environment: str) -> Done:
    done = subprocess.run(
        [*GUARD, *command], capture_output=True, env={**os.environ, **environment}
    )
    if done.returncode == no_sockets.UNSUPPORTED:
        pytest.skip("this machine has no system-call filter")
    out, err = done.stdout.decode(), done.stderr.decode()
    assert "Traceback" not in err, err
    return Done(done.returncode, out, err)


def kmint(*arguments: str, **environment: str) -> Done:
    return guarded(sys.executable, "-m", "kmint_tui", *arguments, **environment)


def test_the_filter_kills_whoever_opens_a_socket_also_in_a_child() -> None:
    assert guarded(sys.executable, "-c", "import socket; socket.socketpair()").code == 0
    assert guarded(sys.executable, "-c", CONNECT).code == -signal.SIGSYS
    child = f"import subprocess, sys; print(subprocess.run([sys.executable, '-c', {CONNECT!r}]).returncode)"
    assert guarded(sys.executable, "-c", child).out.strip() == str(-signal.SIGSYS)


@pytest.mark.parametrize("how", OFFLINE)
def test_what_needs_the_network_is_refused_without_a_socket(how: str, kmint_home: Path) -> None:
    if how == "settings":
        (kmint_home / "config").mkdir(parents=True)
        (kmint_home / "config" / "config.toml").write_text(
            "[network]\noffline = true\n", encoding="utf-8"
        )
    for verb in ("pull", "url"):
        done = kmint(
            "models", verb, "minicpm5-1b", *(["--offline"] if how == "flag" else []), **OFFLINE[how]
        )
        assert done.code == 4, done.err
        name = {"flag": "--offline", "settings": "network.offline"}.get(how, how)
        assert "offline" in done.err and name in done.err


def test_without_a_word_about_offline_a_pull_would_open_one() -> None:
    """The filter really stands between a pull and the network.

    The address is this machine's, on a port without a listener.
    """
    assert (
        kmint("models", "pull", "minicpm5-1b", HF_ENDPOINT="http://127.0.0.1:9").code
        == -signal.SIGSYS
    )


def test_everything_else_opens_no_socket_online_either(tmp_path: Path) -> None:
    model = llama(tmp_path / "m.gguf")
    bundle = tmp_path / "b.tar"
    for arguments in (
        ["--help"],
        ["models", "ls", "--json"],
        ["models", "import", str(model), "--as", "tiny"],
        ["models", "show", "tiny"],
        ["models", "verify", "tiny", "--smoke"],
        ["models", "bundle", "tiny", "--out", str(bundle)],
        ["models", "rm", "tiny", "--yes"],
        ["models", "import", str(bundle), "--as", "tiny"],
        ["path"],
        ["config", "show"],
        ["config", "validate"],
        ["completion", "bash"],
        ["ops"],
        ["history"],
        ["crowns"],
    ):
        done = kmint(*arguments)
        assert done.code == 0, (arguments, done.err)


def test_minting_opens_no_socket() -> None:
    """The smith's and the referee's processes included; the verdicts do not matter here."""
    done = kmint(
        "mint",
        "relu2",
        "--drafts",
        "2",
        "--max-tokens",
        "300",
        "--seed",
        "1",
        "--model",
        "embedded",
        "--json",
    )
    assert done.code in (0, 1), done.err
    drafts = [one for one in done.document["drafts"] if one["author"] == "smith"]
    assert len(drafts) == 2 and any(draft["verdict"] for draft in drafts), drafts
    # Two equal drafts are judged once; the drawn tokens differ between kinds of processor.
    assert all(draft["verdict"] or draft["duplicate_of"] is not None for draft in drafts), drafts

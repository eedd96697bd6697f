"""`kmint serve` as a process, and the commands that use it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kmint_tui.service import place
from tests.cli.runner import kmint
from tests.cli.test_bad_input import refused
from tests.cli.test_judge import DOUBLE, REFERENCE
from tests.processes import processes_below, still_living
from tests.save.test_host_code import GOOD

Process = subprocess.Popen[str]


@contextmanager
def serving(*options: str) -> Iterator[Process]:
    """A session that is ready."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kmint_tui", "serve", *options], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        said = process.stderr.readline()
        assert "the session listens at" in said, said + process.stderr.read()
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate()


@pytest.fixture
def kernel(tmp_path: Path) -> str:
    (tmp_path / "softmax.py").write_text(GOOD, encoding="utf-8")
    return str(tmp_path / "softmax.py")


def test_a_session_judges_for_commands_and_leaves_nothing(kernel: str, tmp_path: Path) -> None:
    (tmp_path / "reference.py").write_text(REFERENCE, encoding="utf-8")
    (tmp_path / "double.py").write_text(DOUBLE, encoding="utf-8")
    with serving() as process:
        by_session = kmint("judge", kernel, "--session", "--json", "--seed", "1")
        assert (by_session.code, by_session.document["verdict"]) == (0, "correct")
        assert "this process judges" not in by_session.err
        own = kmint(
            "judge",
            str(tmp_path / "double.py"),
            "--reference",
            str(tmp_path / "reference.py:double"),
            "--session",
            "--json",
        )
        assert (own.code, own.document["verdict"]) == (0, "correct"), own.err
        bad = kmint("judge", kernel, "--op", "rmsnorm", "--session")
        assert (bad.code, "argument" in bad.out) == (1, True)
        status = kmint("serve", "--status", "--json").document
        assert (status["schema"], status["pid"], status["done"]) == (
            "kmint.service-status/1",
            process.pid,
            3,
        )
        refused(kmint("serve"), 2, "runs already", "--stop")
        below = processes_below(process.pid)
        assert kmint("serve", "--stop").code == 0
        assert process.wait() == 0
    assert below and not still_living(below)
    assert not place.socket_file().exists()


def test_without_a_session_the_command_judges_itself_and_says_so(kernel: str) -> None:
    done = kmint("judge", kernel, "--level", "screen", "--session")
    assert done.code == 0
    assert "no session runs" in done.err and "kmint serve" in done.err
    refused(kmint("serve", "--status"), 3, "no session runs", "kmint serve")
    refused(kmint("serve", "--stop"), 3, "no session runs")


def test_a_killed_session_is_started_again(kernel: str) -> None:
    with serving() as process:
        process.kill()
        process.wait()
    assert place.socket_file().exists()
    done = kmint("judge", kernel, "--level", "screen", "--session")
    assert (done.code, "no session runs" in done.err) == (0, True)
    with serving():
        done = kmint("judge", kernel, "--level", "screen", "--session")
        assert (done.code, "no session" in done.err) == (0, False)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_session_that_is_told_to_end_leaves_no_process(number: signal.Signals, code: int) -> None:
    with serving() as process:
        below = processes_below(process.pid)
        process.send_signal(number)
        assert process.wait() == code
    assert not still_living(below)
    assert not place.socket_file().exists()


def test_an_idle_session_ends() -> None:
    with serving("--idle", "0.1") as process:
        assert process.wait() == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--status", "--stop"], "exclude"),
        (["--json"], "--status"),
        (["--idle", "0"], "--idle"),
        (["--idle", "nan"], "not a number"),
    ],
)
def test_wrong_options_are_told(options: list[str], words: str) -> None:
    refused(kmint("serve", *options), 2, words)


def test_a_stricter_command_judges_itself(kernel: str) -> None:
    with serving("--allow-weak-sandbox"):
        done = kmint("judge", kernel, "--level", "screen", "--session")
        assert (done.code, "asks less of the sandbox" in done.err) == (0, True)


def test_verify_uses_the_session_too(kernel: str, tmp_path: Path) -> None:
    with serving():
        kept = kmint("judge", kernel, "--session", "--keep", "mine", "--json")
        assert (kept.code, kept.document["draft"]) == (0, "1.0")
        assert kmint("save", "1.0", "--to", str(tmp_path / "saved")).code == 0
        done = kmint("verify", str(tmp_path / "saved"), "--session", "--json")
        assert (done.code, done.document["holds"], "this process judges" in done.err) == (
            0,
            True,
            False,
        )
        # The session judged the kernel twice: saving has a referee of its own.
        assert kmint("serve", "--status", "--json").document["done"] == 2


def test_a_mint_uses_the_session_from_several_threads(tmp_path: Path) -> None:
    with serving() as process:
        done = kmint(
            "mint",
            "silu",
            "-n",
            "3",
            "--seed",
            "1",
            "--no-template",
            "--session",
            "--save",
            str(tmp_path / "saved"),
            "--json",
        )
        assert (done.code, "this process judges" in done.err) == (0, False), done.err
        judged = len([one for one in done.document["drafts"] if one["verdict"]])
        status = kmint("serve", "--status", "--json").document
        assert judged > 1 and status["done"] == judged + 1, (
            "every draft, and the draft that is saved"
        )
        assert status["pid"] == process.pid
    assert (tmp_path / "saved" / "silu.py").exists()
    refused(kmint("mint", "silu", "--session", "--tune"), 2, "exclude")

"""Commands that run kernels on a host with half a sandbox: what they say, and what they refuse."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from kmint_tui.cli.main import kmint as command_line
from kmint_tui.cli.state import State
from kmint_tui.core.referee import ALLOW_VARIABLE, REQUIRE_VARIABLE
from kmint_tui.doctor.kernel import OP, SOURCE
from kmint_tui.errors import UsageError
from tests import in_container
from tests.cli.runner import Done
from tests.referee.sandbox.support import NAMESPACES

OF_A_CONTAINER = (*NAMESPACES, "private root", "private /proc", "scratch quota", "job namespaces")


def kmint(*arguments: str, landlock: bool = True, variable: str = "") -> Done:
    """Run the command as in a container that allows no namespaces."""
    inside = [sys.executable, in_container.__file__, *(() if landlock else ("--without-landlock",))]
    done = subprocess.run(
        [*inside, sys.executable, "-m", "kmint_tui", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **({variable: "1"} if variable else {})},
    )
    if done.returncode == in_container.UNSUPPORTED:
        pytest.skip("no system-call filter here")
    assert "Traceback" not in done.stderr, done.stderr
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def judge(tmp_path: Path) -> list[str]:
    """The arguments that judge a good kernel."""
    (tmp_path / "kernel.py").write_text(SOURCE, encoding="utf-8")
    return ["judge", str(tmp_path / "kernel.py"), "--op", OP]


def test_the_reason_names_the_missing_layers(judge: list[str]) -> None:
    done = kmint(*judge, "--json")
    assert done.code == 0, done.err
    reason = done.document["reason"]
    assert "the sandbox here lacks" in reason and all(name in reason for name in OF_A_CONTAINER)
    assert "landlock" not in reason and "system-call filter" not in reason


def test_a_rejection_shows_them_beside_its_reason(judge: list[str], tmp_path: Path) -> None:
    """A model reads the reason of a rejection, so they do not stand in it."""
    (tmp_path / "kernel.py").write_text(SOURCE.replace("x * x", "x + x"), encoding="utf-8")
    done = kmint(*judge)
    shown = dict(line.split(maxsplit=1) for line in done.out.splitlines()[:6])
    assert (
        done.code == 1 and "mount namespace" in shown["sandbox"] and "namespace" not in shown["why"]
    )


def test_the_table_of_a_session_names_them_once() -> None:
    done = kmint("mint", "softmax", "--drafts", "2", "--seed", "3", "--max-tokens", "400")
    assert done.out.count("the sandbox here lacks") == 1
    assert (
        done.out.splitlines()[-1].startswith("the sandbox here lacks")
        and "mount namespace" in done.out
    )


@pytest.mark.parametrize("way", ["option", "variable", "setting"])
def test_a_required_sandbox_is_refused_with_exit_code_3(
    judge: list[str], kmint_home: Path, way: str
) -> None:
    if way == "setting":
        (kmint_home / "config").mkdir(parents=True)
        (kmint_home / "config" / "config.toml").write_text(
            "[sandbox]\nrequire = true\n", encoding="utf-8"
        )
    done = kmint(
        *judge,
        *(["--require-sandbox"] if way == "option" else ()),
        variable=REQUIRE_VARIABLE if way == "variable" else "",
    )
    assert (done.code, done.out) == (3, "")
    assert "lacks" in done.err and "mount namespace" in done.err and "fix:" in done.err


def test_a_session_is_refused_before_anything_is_drafted() -> None:
    done = kmint("mint", "softmax", "--require-sandbox")
    assert (done.code, done.out) == (3, "")
    assert "mount namespace" in done.err and "drafts of softmax" not in done.err


def test_open_files_are_refused_unless_accepted(judge: list[str]) -> None:
    """With neither Landlock nor namespaces a kernel's code could read whatever this user can."""
    done = kmint(*judge, landlock=False)
    assert (done.code, done.out) == (3, "")
    assert "this user's files" in done.err and "--allow-weak-sandbox" in done.err
    done = kmint(*judge, "--allow-weak-sandbox", "--json", landlock=False)
    assert done.code == 0 and "landlock" in done.document["reason"]


def test_the_examination_says_that_kernels_are_not_run() -> None:
    done = kmint("doctor", "--json", landlock=False)
    found = {one["name"]: one for one in done.document["findings"]}
    assert done.code == 3 and found["sandbox"]["status"] == "fail"
    assert "--allow-weak-sandbox" in found["sandbox"]["fix"]
    assert found["smith landlock"]["status"] == "warn"


def test_an_option_goes_before_a_variable_and_a_setting(
    kmint_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert State().demand() == "files"
    (kmint_home / "config").mkdir(parents=True)
    (kmint_home / "config" / "config.toml").write_text(
        "[sandbox]\nrequire = true\n", encoding="utf-8"
    )
    assert State().demand() == "all"
    monkeypatch.setenv(ALLOW_VARIABLE, "yes")
    assert State().demand() == "any"
    assert State(require_sandbox=True).demand() == "all"
    monkeypatch.setenv(REQUIRE_VARIABLE, "1")
    with pytest.raises(UsageError, match="exclude each other"):
        State().demand()
    monkeypatch.setenv(REQUIRE_VARIABLE, "off")
    assert State().demand() == "any"


@pytest.mark.parametrize(
    "words",
    [
        "mint",
        "judge",
        "save",
        "verify",
        "gate",
        "grid",
        "selftest",
        "crowns claim",
        "history rejudge",
    ],
)
def test_every_command_that_runs_kernels_has_the_options(words: str) -> None:
    shown = CliRunner().invoke(command_line, [*words.split(), "--help"]).output
    assert "--require-sandbox" in shown and "--allow-weak-sandbox" in shown

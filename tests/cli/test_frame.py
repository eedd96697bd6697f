"""The command line as a whole: help, exit codes, streams, colour, errors."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from kmint_tui import __version__
from kmint_tui.cli import main
from kmint_tui.cli.diagnostics import ExitCode
from kmint_tui.cli.framework import Command
from kmint_tui.cli.main import COMMANDS
from tests.cli.runner import kmint

README = Path(__file__).parents[2] / "README.md"


def test_no_command_without_a_terminal_is_short_help_and_exit_2() -> None:
    done = kmint()
    assert (done.code, done.out) == (2, "")
    assert "Usage: kmint" in done.err


def test_help_lists_every_command_and_every_exit_code() -> None:
    done = kmint("--help")
    assert done.code == 0
    assert all(f"  {name} " in done.out for name in COMMANDS)
    assert all(str(code.value) in done.out and code.meaning in done.out for code in ExitCode)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_listed_command_has_help(name: str) -> None:
    module, _, attribute = COMMANDS[name].target.partition(":")
    assert getattr(importlib.import_module(module), attribute).name == name
    done = kmint(name, "--help")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"Usage: kmint {name}")


def test_the_readme_holds_every_exit_code() -> None:
    text = README.read_text(encoding="utf-8")
    assert all(f"| {code.value} | {code.meaning} |" in text for code in ExitCode)


def test_version() -> None:
    assert kmint("--version").out == f"kmint {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["mnt"], "'mint'"),
        (["ops", "shw"], "'show'"),
        (["ops", "--jsn"], "--json"),
        (["ops", "show", "softmx"], "softmax"),
        (["path", "modles"], "models"),
        (["models", "show", "minicpm5-1"], "minicpm5-1b"),
        (["history", "show", "first"], "12.3"),
    ],
)
def test_a_wrong_word_is_answered_with_the_right_one(arguments: list[str], hint: str) -> None:
    done = kmint(*arguments)
    assert done.code == (4 if "models" in arguments[0] else 2)
    assert done.out == ""
    assert hint in done.err
    assert len(done.err.splitlines()) <= 2


def test_the_same_bytes_with_and_without_colour() -> None:
    plain, painted = kmint("ops").out, kmint("ops", "--color", "always").out
    assert "\x1b[" not in plain
    assert painted != plain
    assert painted.replace("\x1b[1m", "").replace("\x1b[0m", "") == plain


@pytest.mark.parametrize(("choice", "painted"), [("auto", False), ("always", True), ("never", False)])
def test_the_flag_beats_no_color(choice: str, painted: bool) -> None:
    assert ("\x1b[" in kmint("--color", choice, "ops", NO_COLOR="1").out) is painted


@pytest.mark.parametrize(
    ("arguments", "schema"),
    [
        (["ops", "--json"], "kmint.ops/1"),
        (["ops", "show", "add_rmsnorm_gelu_tanh", "--json"], "kmint.op/1"),
        (["history", "--json"], "kmint.history/1"),
        (["models", "ls", "--json"], "kmint.models/1"),
        (["models", "show", "qwen3.6-27b", "--json"], "kmint.model/1"),
        (["path", "--json"], "kmint.path/1"),
        (["config", "show", "--json"], "kmint.config/1"),
    ],
)
def test_read_commands_give_one_document(arguments: list[str], schema: str) -> None:
    done = kmint(*arguments)
    assert done.code == 0
    assert (done.document["schema"], done.document["kmint_version"]) == (schema, __version__)


def test_asking_creates_nothing(kmint_home: Path) -> None:
    for arguments in (["path"], ["history"], ["models", "ls"], ["ops"], ["config", "validate"], ["history", "show", "1"]):
        kmint(*arguments)
    assert not kmint_home.exists()


def test_quiet_leaves_only_data() -> None:
    done = kmint("ops", "--quiet")
    assert done.err == ""
    assert "softmax" in done.out


def test_a_reader_that_goes_away_is_no_fault() -> None:
    producer = subprocess.Popen([sys.executable, "-m", "kmint_tui", "ops", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert producer.stdout is not None
    assert producer.stderr is not None
    producer.stdout.read(1)
    producer.stdout.close()
    errors = producer.stderr.read()
    producer.stderr.close()
    assert (producer.wait(), errors) == (0, b"")


def test_a_settings_file_that_is_a_directory_is_told(kmint_home: Path) -> None:
    (kmint_home / "config" / "config.toml").mkdir(parents=True)
    done = kmint("config", "show")
    assert done.code == 2
    assert "cannot be read" in done.err


@pytest.fixture
def boom(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ValueError("a very\nunlikely thing")

    monkeypatch.setitem(main.kmint.commands, "boom", Command("boom", callback=fail))


@pytest.mark.usefixtures("boom")
def test_an_internal_fault_is_one_line_and_a_log(kmint_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["boom"]) == 70
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: internal fault: ValueError: a very unlikely thing\n  log: ")
    assert "Traceback" not in err
    (log,) = (kmint_home / "state" / "logs").iterdir()
    assert "unlikely thing" in log.read_text(encoding="utf-8")
    assert "Traceback" in log.read_text(encoding="utf-8")


@pytest.mark.usefixtures("boom")
def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["boom", "--debug"]) == 70
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    assert "_KMINT_COMPLETE" in kmint("completion", shell).out


def test_completion_knows_operations_and_models() -> None:
    assert "rmsnorm_wide" in kmint(_KMINT_COMPLETE="bash_complete", COMP_WORDS="kmint mint rmsnorm_w", COMP_CWORD="2").out
    assert "qwen3.6-27b" in kmint(_KMINT_COMPLETE="bash_complete", COMP_WORDS="kmint models show q", COMP_CWORD="3").out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[mint]\ndrafs = 3\n", "mint.drafts"),
        ("[mint]\ndrafts = 'many'\n", "type int"),
        ("[mint]\ndrafts = 1000\n", "outside"),
        ("mint =\n", "not TOML"),
        ("[network]\noffline = 1\n", "type bool"),
    ],
)
def test_a_wrong_settings_file_is_told(kmint_home: Path, text: str, message: str) -> None:
    file = kmint_home / "config" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(text, encoding="utf-8")
    done = kmint("config", "validate")
    assert done.code == 2
    assert message in done.err

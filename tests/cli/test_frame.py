"""The command line as a whole: help, exit codes, streams, colour, errors."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kmint_tui import __version__
from kmint_tui.cli import main
from kmint_tui.cli.framework import Command
from kmint_tui.cli.main import COMMANDS
from kmint_tui.cli.options import RUNS_AS_YOU
from kmint_tui.core.exit_codes import ExitCode
from tests.cli.runner import kmint

pytestmark = pytest.mark.usefixtures("warm")

PLACES = Path(__file__).parents[2] / "docs" / "places-and-exit-codes.md"


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


@pytest.mark.parametrize(
    "command", [["mint"], ["judge"], ["save"], ["verify"], ["gate"], ["history", "rejudge"]]
)
def test_help_says_that_a_reference_runs_as_you(command: list[str]) -> None:
    """Everything else that kmint did not write runs in a sandbox; this file does not."""
    text = " ".join(kmint(*command, "--help").out.split())
    assert "--reference FILE.py[:FN]" in text and RUNS_AS_YOU in text


def test_every_reference_option_is_made_in_one_place() -> None:
    files = [
        file
        for file in (Path(main.__file__).parent).glob("*.py")
        if '"--reference"' in file.read_text(encoding="utf-8")
    ]
    assert [file.name for file in files] == ["options.py"]


def test_the_documentation_holds_every_exit_code() -> None:
    text = PLACES.read_text(encoding="utf-8")
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
        (["doctor", "--report", "."], "directory"),
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


@pytest.mark.parametrize(
    ("choice", "painted"), [("auto", False), ("always", True), ("never", False)]
)
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
    for arguments in (
        ["path"],
        ["history"],
        ["models", "ls"],
        ["ops"],
        ["config", "validate"],
        ["history", "show", "1"],
    ):
        kmint(*arguments)
    assert not kmint_home.exists()


def test_quiet_leaves_only_data() -> None:
    done = kmint("ops", "--quiet")
    assert done.err == ""
    assert "softmax" in done.out


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("ops", "--json"), 0),
        (("judge", "-", "--op", "softmax", "--level", "screen"), 1),
        (("--help",), 0),
        (("--version",), 0),
        (("models", "pull", "--help"), 0),
    ],
)
def test_a_command_whose_reader_goes_away_ends_as_it_would_have(
    arguments: tuple[str, ...], code: int
) -> None:
    """A pipe without a reader from the start, so that the first byte meets it."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "kmint_tui", *arguments],
        stdout=write,
        stderr=subprocess.PIPE,
        input=b"def f(:",
    )
    os.close(write)
    assert done.returncode == code
    assert b"error" not in done.stderr


def test_nobody_reading_stderr_changes_nothing() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "kmint_tui", "ops", "--search", "softmax"],
        stdout=subprocess.PIPE,
        stderr=write,
    )
    os.close(write)
    assert (done.returncode, b"log_softmax" in done.stdout) == (0, True)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", ["ops", "--help"])
def test_stdout_on_a_full_disk_is_exit_6(arguments: str, unbuffered: str) -> None:
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    command = [sys.executable, "-m", "kmint_tui", arguments]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment
        )
    assert (done.returncode, len(done.stderr.splitlines())) == (6, 2), done.stderr
    assert done.stderr.startswith("error: cannot write: stdout: no space left")


@pytest.mark.parametrize(
    ("closed", "code"), [("<&-", 0), (">&-", 0), ("2>&-", 0), ("<&- >&- 2>&-", 0)]
)
def test_closed_standard_streams_are_no_fault(closed: str, code: int) -> None:
    done = subprocess.run(
        ["sh", "-c", f'"{sys.executable}" -m kmint_tui ops --search softmax {closed}'],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, "error" in done.stderr) == (code, False)


def test_a_name_that_is_no_text_is_shown_escaped(kmint_home: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kmint_tui", "path"],
        capture_output=True,
        env={**os.environ, "KMINT_HOME": "/tmp/\udcff"},
    )
    assert (done.returncode, b"/tmp/\\udcff/cache" in done.stdout) == (0, True)


@pytest.mark.parametrize("group", ["models", "config"])
def test_a_group_alone_shows_what_there_is(group: str) -> None:
    done = kmint(group, "--json")
    assert (done.code, done.document["schema"]) == (0, f"kmint.{group}/1")


@pytest.mark.parametrize("group", ["models", "history", "crowns"])
def test_the_help_of_a_group_tells_every_command_whole(group: str) -> None:
    assert "..." not in kmint(group, "--help").out.partition("Commands:")[2]


def test_a_search_without_a_hit_says_so() -> None:
    done = kmint("ops", "--search", "zzz")
    assert (done.code, "no operation holds all words of 'zzz'" in done.err) == (0, True)


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


def test_completing_says_nothing_on_stderr() -> None:
    done = kmint(_KMINT_COMPLETE="bash_complete", COMP_WORDS="kmint mint soft", COMP_CWORD="2")
    assert (done.code, done.err, "plain,softmax" in done.out.split()) == (0, "", True)


def test_an_exit_in_foreign_code_is_never_a_pass(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(
        main.kmint.commands, "leave", Command("leave", callback=lambda: sys.exit(0))
    )
    assert main.main(["leave"]) == 70
    assert "ended the process with 0" in capsys.readouterr().err


@pytest.mark.usefixtures("boom")
def test_an_internal_fault_is_one_line_and_a_log(
    kmint_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
    assert (
        "rmsnorm_wide"
        in kmint(
            _KMINT_COMPLETE="bash_complete", COMP_WORDS="kmint mint rmsnorm_w", COMP_CWORD="2"
        ).out
    )
    assert (
        "qwen3.6-27b"
        in kmint(
            _KMINT_COMPLETE="bash_complete", COMP_WORDS="kmint models show q", COMP_CWORD="3"
        ).out
    )


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

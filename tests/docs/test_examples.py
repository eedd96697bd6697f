"""Every command that README and docs print is run, without a network, and prints what the page
shows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from docs.generate.command_page import walk
from docs.generate.examples import (
    Command,
    Example,
    Place,
    differences,
    examples,
    matched,
    programs_of_this_checkout,
    updated,
)
from docs.generate.pages import DOCS, ROOT, handwritten
from tests.models import no_sockets

PAGES = [page for page in handwritten() if examples(page)]
INSTALL = "python3 -m venv"


@pytest.fixture
def no_network() -> None:
    """Skip the test where the kernel has no filter of system calls, without which sockets are not
    blocked."""
    if (
        subprocess.run([sys.executable, no_sockets.__file__, "true"]).returncode
        == no_sockets.UNSUPPORTED
    ):
        pytest.skip("this machine has no system-call filter")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, programs_of_this_checkout(tmp_path / "bin"))


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_prints_what_its_commands_print(page: Path, place: Place) -> None:
    found = [
        one for example in examples(page) if example.runs for one in differences(example, place)
    ]
    assert found == [], "\n\n".join(found)


def test_every_command_line_of_a_page_is_an_example() -> None:
    """A block of another kind holds no command of kmint, but for the indented install commands of
    README and CONTRIBUTING."""
    for page in handwritten():
        text = page.read_text(encoding="utf-8")
        for kind, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
            assert kind in ("console", "python") or not re.search(
                r"\b(kmint|pip|pytest) ", block
            ), f"{page.name}: {block}"
    indented = re.findall(
        r"^ {4}(\S.*)$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert [line for line in indented if line.startswith(INSTALL)] != []
    shown = "\n".join(
        line for line in indented if not line.startswith((INSTALL, "z = x;", "softmax(x)"))
    )
    assert shown == ""


def test_the_readme_sets_up_and_runs_and_tests() -> None:
    """The two commands that other programs read from the page, in this form."""
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    run, test = (line.strip() for line in lines if line.strip().startswith(INSTALL))
    form = (
        r'python3 -m venv \.venv && CMAKE_ARGS="[^"]+" \.venv/bin/pip install %s && \.venv/bin/%s'
    )
    assert re.fullmatch(form % (r"\.", "kmint mint softmax"), run)
    assert re.fullmatch(form % (r"'\.\[test\]'", "python -m pytest -n 2"), test)


KMINT = re.compile(r"(?<![\w/.-])kmint((?: [^\s`|&;<>]+)*)")


def command_lines() -> list[tuple[str, str]]:
    """Every `kmint ...` in code of a page, and in the help of a command, with the place."""
    found = []
    for page in [*handwritten(), DOCS / "cli.md"]:
        text = page.read_text(encoding="utf-8")
        spans = re.findall(r"`([^`\n]+)`", text)
        blocks = re.findall(r"^```(?:console|text)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
        lines = [
            *spans,
            *(line.removeprefix("$ ") for block in blocks for line in block.splitlines()),
        ]
        found += [(page.name, line) for line in lines if re.match(r"(\w+=\S+ )*kmint ", line)]
    return found


def check_line(place: str, line: str) -> None:
    """Fail unless the line names a command and options of kmint."""
    commands = dict(walk())
    found = KMINT.search(line)
    assert found is not None, line
    # What follows `--` belongs to the user's own program.
    words, path = found[1].partition(" -- ")[0].split(), "kmint"
    while words and f"{path} {words[0]}" in commands:
        path += f" {words.pop(0)}"
    assert path != "kmint" or not words or words[0].startswith(("-", "COMMAND")), f"{place}: {line}"
    options = {
        name
        for param in commands[path].params
        if isinstance(param, click.Option)
        for name in param.opts
    }
    named = [word.partition("=")[0].rstrip(".,") for word in words if re.match(r"--?[a-z]", word)]
    assert set(named) <= options | {"--help"}, f"{place}: {line}"


def test_every_kmint_line_of_a_page_names_real_commands() -> None:
    for page, line in command_lines():
        check_line(page, line)


SHOWN = ("a 1", "...", "b 2", "...")


@pytest.mark.parametrize(
    ("lines", "shape", "result"),
    [
        (["a 1", "b 2"], False, ["a 1", "...", "b 2", "..."]),
        (["a 1", "x", "b 2", "y"], False, ["a 1", "...", "b 2", "..."]),
        (["a 1", "x", "b 3"], False, None),
        (["a 7", "x", "b   3.5"], True, ["a 7", "...", "b   3.5", "..."]),
        (["x", "a 1", "b 2"], False, None),
        ([], False, None),
    ],
)
def test_lines_match_but_for_what_an_ellipsis_stands_for(
    lines: list[str], shape: bool, result: list[str] | None
) -> None:
    assert matched(SHOWN, lines, shape=shape) == result


def test_without_an_ellipsis_every_line_counts() -> None:
    assert matched(("a",), ["a", "b"], shape=False) is None
    assert matched((), ["a"], shape=False) is None
    assert matched((), [], shape=False) == []


def example(*commands: Command, marks: str = "") -> Example:
    return Example(Path("page.md"), 0, 0, frozenset(marks.split(", ")) - {""}, commands)


def test_a_page_that_is_not_true_is_told(place: Place) -> None:
    wrong = example(
        Command("echo one", ("two",)),
        Command("exit 3"),
        Command("raise SystemExit(4)\n", program=True),
    )
    output, code, program = differences(wrong, place)
    assert "one" in output and "two" in output
    assert "exit code 3" in code
    assert "exit code 4" in program


@pytest.mark.usefixtures("no_network")
def test_a_socket_ends_an_example(place: Place) -> None:
    connect = "import socket; socket.socket(socket.AF_INET)"
    assert "exit code" in differences(example(Command(connect, program=True)), place)[0]
    assert (
        differences(example(Command("import socket; socket.socketpair()", program=True)), place)
        == []
    )


def test_a_run_updates_the_output_of_a_block(place: Place) -> None:
    block = example(
        Command("printf 'a 5\\nx\\nb  22\\n'", ("a 1", "...", "b 2")), Command("echo new", ("old",))
    )
    assert (
        updated(block, place) == "$ printf 'a 5\\nx\\nb  22\\n'\na 5\n...\nb  22\n$ echo new\nnew\n"
    )
    with pytest.raises(ValueError, match="by hand"):
        updated(example(Command("echo other", ("...", "words"))), place)


def test_unknown_marks_are_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- example: sometimes -->\n```console\n$ true\n```\n", encoding="utf-8")
    with pytest.raises(ValueError, match="sometimes"):
        examples(page)


def test_a_command_of_several_lines_is_read_and_written_the_same(
    place: Place, tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    text = "$ cat <<'END'\n> one\n>\n> > two\n> END\none\n\n> two\n"
    page.write_text(f"```console\n{text}```\n", encoding="utf-8")
    (block,) = examples(page)
    assert [command.line for command in block.commands] == ["cat <<'END'\none\n\n> two\nEND"]
    assert differences(block, place) == []
    assert updated(block, place) == text

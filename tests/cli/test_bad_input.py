"""What is wrong is told in a line or two, with the exit code meant for it, and nothing is left
half-written.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import tiny_models
from tests.cli.runner import Done, kmint
from tests.history.test_transfer import fill
from tests.sampling import EVERY_CASE

pytestmark = pytest.mark.usefixtures("warm")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path: Path = tmp_path / "tiny.gguf"
    return tiny_models.llama(path)


def refused(done: Done, code: int, *words: str) -> None:
    assert (done.code, done.out) == (code, ""), done.err
    assert all(word in done.err for word in words), done.err
    lines = [line for line in done.err.splitlines() if not line.startswith(("no GPU", "still "))]
    assert 1 <= len(lines) <= 2, done.err


@pytest.mark.parametrize(
    "command",
    [
        ["mint", "sofmax"],
        ["judge", "-", "--op", "sofmax"],
        ["ops", "show", "sofmax"],
        ["mint", "sofmax", "--dry-run"],
    ],
)
def test_an_unknown_operation_is_answered_with_the_nearest(command: list[str]) -> None:
    refused(kmint(*command, stdin=b"def run(x): ..."), 2, "'sofmax'", "softmax")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["mint"], ["--reference"]),
        (["mint", "softmax", "--reference", "x.py"], ["--reference", "exclude"]),
        (["mint", "softmax", "--json", "--jsonl"], ["--jsonl"]),
        (["mint", "softmax", "--drafts", "0"], ["--drafts"]),
        (["mint", "softmax", "--temperature", "hot"], ["--temperature"]),
        (["mint", "softmax", "--temperature", "nan"], ["--temperature", "not a number"]),
        (["mint", "softmax", "--target", ""], ["target"]),
        (["models", "rm", "embedded"], ["ships inside kmint"]),
        (["completion"], ["bash|zsh|fish"]),
        (["history", "import", "nowhere.jsonl"], ["nowhere.jsonl", "history export"]),
        (["mint", "--reference", "nowhere.py"], ["nowhere.py", "does not exist"]),
    ],
)
def test_a_wrong_request_is_told(arguments: list[str], words: list[str]) -> None:
    refused(kmint(*arguments), 2, *words)


NAMES = {"too long": "a" * 300, "of nobody": "~nobody-has-this-name/x", "a loop": "loop"}


READERS = [
    ["judge", "{}", "--op", "softmax"],
    ["verify", "{}"],
    ["mint", "softmax", "--model", "{}", "--dry-run"],
    ["mint", "--reference", "{}.py", "--dry-run"],
    ["grid", "{}", "--op", "softmax"],
    ["models", "import", "{}"],
    ["convert", "--base", "{}", "--out", "m.gguf", "--plan"],
    ["convert", "--base", ".", "--adapter", "{}", "--out", "m.gguf", "--plan"],
    ["convert", "--base", "{}/x", "--out", "{}/m.gguf", "--plan"],
    ["history", "import", "{}"],
    ["save", "1.0", "--to", "{}"],
]
PAIRS = [
    pytest.param(arguments, name, id=f"{' '.join(arguments[:3])}-{label}")
    for number, arguments in enumerate(READERS)
    for at, (label, name) in enumerate(NAMES.items())
    if EVERY_CASE or at == number % len(NAMES)
]
"""Every command that reads a file with one of the names, or with each of them."""


@pytest.mark.parametrize(("arguments", "name"), PAIRS)
def test_a_name_that_no_file_has_is_told(
    arguments: list[str], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    done = kmint(*(argument.format(name) for argument in arguments))
    assert done.code in (2, 4, 6) and len(done.err) < 7000, (done.code, done.err[-500:])


def test_a_relative_home_is_the_same_for_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They start in another folder."""
    monkeypatch.chdir(tmp_path)
    places = kmint("path", KMINT_HOME="home", KMINT_MODELS_DIR="weights").out
    assert f"{tmp_path}/home/" in places and f"{tmp_path}/weights" in places


@pytest.mark.parametrize("variable", ["KMINT_HOME", "KMINT_MODELS_DIR"])
def test_a_home_of_nobody_is_no_fault(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KMINT_HOME", str(tmp_path))
    monkeypatch.setenv(variable, "~nobody-has-this-name/x")
    monkeypatch.chdir(tmp_path)
    done = kmint("models", "ls")
    assert done.code in (0, 6), done.err


def test_a_missing_model_is_exit_4(tmp_path: Path) -> None:
    refused(kmint("mint", "softmax", "--model", str(tmp_path / "none.gguf")), 4, "does not exist")
    refused(
        kmint("mint", "softmax", "--model", "qwen3.6-27b"), 4, "not in the store", "kmint convert"
    )
    refused(kmint("mint", "softmax", "--model", "embeded"), 4, "embedded")


@pytest.mark.parametrize("damage", ["short", "magic", "empty", "text", "folder"])
def test_a_corrupt_model_is_exit_4(model: Path, damage: str) -> None:
    content = model.read_bytes()
    if damage == "folder":
        model.unlink()
        model.mkdir()
    else:
        model.write_bytes(
            {
                "short": content[:-64],
                "magic": b"GGML" + content[4:],
                "empty": b"",
                "text": b"not a model\n" * 50,
            }[damage]
        )
    refused(kmint("mint", "softmax", "--model", str(model)), 4, str(model))


def test_no_space_is_exit_6_and_leaves_nothing_half_written(model: Path, kmint_home: Path) -> None:
    refused(kmint("mint", "softmax", "--model", str(model), file_limit=2048), 6, "history.db")
    assert list(kmint_home.rglob("*.partial")) == []
    for path in kmint_home.rglob("*.json"):
        json.loads(path.read_text())
    again = kmint("history")
    assert (again.code, len(again.out.splitlines())) == (0, 1)


def test_a_home_that_cannot_be_made_is_exit_6(model: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    refused(
        kmint("mint", "softmax", "--model", str(model), KMINT_HOME=str(tmp_path / "file" / "home")),
        6,
        "file",
    )


def test_a_history_that_cannot_be_written_is_still_read(kmint_home: Path) -> None:
    """As on a full disk or a read-only mount: SQLite cannot make the files that it wants beside its
    own.
    """
    fill(kmint_home / "data" / "history.db", 1)
    (kmint_home / "data" / "history.db-shm").symlink_to("nowhere")
    assert "softmax" in kmint("history").out
    assert kmint("history", "show", "1.0").code == 0
    assert kmint("history", "diff", "1.0", "1.1").code == 0
    exported = kmint("history", "export")
    assert (exported.code, json.loads(exported.out)["id"]) == (0, 1)
    refused(kmint("save", "1.0", "--to", str(kmint_home / "new")), 2, "kernel")
    refused(kmint("gate", "1.1"), 2, "the same kernel as 1.0")
    refused(kmint("history", "rm", "1", "--yes"), 6, "history.db")


def test_a_history_of_a_newer_kmint_is_exit_3(model: Path, kmint_home: Path) -> None:
    import sqlite3

    (kmint_home / "data").mkdir(parents=True)
    connection = sqlite3.connect(kmint_home / "data" / "history.db")
    connection.execute("PRAGMA user_version = 1000")
    connection.close()
    refused(kmint("mint", "softmax", "--model", str(model)), 3, "1000")
    refused(kmint("history"), 3, "1000")


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "empty"),
        (b" \n\n", "empty"),
        (b"def run(x):\n    return '\xff'\n", "UTF-8"),
        (b"\x00\xd8", "UTF-8"),
        (b"#" * (2 << 20), "longer"),
    ],
    ids=["empty", "blank", "latin-1", "utf-16", "huge"],
)
def test_a_draft_file_that_cannot_be_a_kernel_is_exit_2(
    tmp_path: Path, content: bytes, word: str
) -> None:
    file = tmp_path / "kernel.py"
    file.write_bytes(content)
    refused(kmint("judge", str(file), "--op", "softmax"), 2, word, str(file))


@pytest.mark.parametrize("name", ["missing.py", "."])
def test_a_draft_file_that_cannot_be_read_is_exit_2(tmp_path: Path, name: str) -> None:
    refused(
        kmint("judge", str(tmp_path / name), "--op", "softmax"),
        2,
        "cannot be read",
        "give the path of a kernel file",
    )


@pytest.mark.parametrize("form", ["--json", "--jsonl"])
def test_a_dry_run_writes_nothing(model: Path, kmint_home: Path, form: str) -> None:
    done = kmint("mint", "softmax", "--model", str(model), "--dry-run", form, "--seed", "3")
    assert done.code == 0
    assert (done.document["schema"], done.document["seed"], done.document["op"]) == (
        "kmint.plan/1",
        3,
        "softmax",
    )
    assert "softmax" in done.document["prompt"]["user"]
    assert not (kmint_home / "data").exists()

"""The modules that quick commands load, and the shell's completions.

`bench/startup.py` measures the times.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.runner import kmint
from tests.history.test_transfer import fill
from tests.tiny_models import llama

pytestmark = pytest.mark.usefixtures("warm")

HEAVY = {
    "torch",
    "triton",
    "llama_cpp",
    "textual",
    "numpy",
    "transformers",
    "huggingface_hub",
    "gguf",
    "jinja2",
    "referee",
    "sqlite3",
}
# The package itself loads nothing, and this one module of it starts every child.
LIGHT = {"referee", "referee.python_child"}
SCRIPT = """
import atexit, sys
atexit.register(lambda: sys.stderr.write("LOADED " + " ".join(sys.modules)))
from kmint_tui.cli.main import main
main(sys.argv[1:])
"""


def run(*arguments: str, **environment: str) -> tuple[str, set[str]]:
    """The output of a command, and the packages it loads."""
    command = [sys.executable, "-c", SCRIPT, *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert "LOADED " in done.stderr, done.stderr
    modules = set(done.stderr.rpartition("LOADED ")[2].split()) - LIGHT
    return done.stdout, {name.partition(".")[0] for name in modules}


def complete(line: str) -> tuple[list[str], set[str]]:
    """bash's completions at the end of `line`, and the packages loaded for them."""
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    out, loaded = run(_KMINT_COMPLETE="bash_complete", **words)
    return [item.partition(",")[2] for item in out.splitlines()], loaded


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["models", "--help"], ["models", "ls"], ["models", "show", "minicpm5-1b"], ["models", "verify", "minicpm5-1b"],
     ["config", "show"], ["config", "validate"], ["completion", "zsh"], ["path"], ["doctor", "--help"]],
    ids=" ".join,
)  # fmt: skip
def test_quick_commands_load_none_of_the_large_packages(
    arguments: list[str], kmint_home: Path
) -> None:
    """The store holds a model, so that a head is read and its memory estimated."""
    folder = kmint_home / "data" / "models" / "minicpm5-1b"
    folder.mkdir(parents=True)
    llama(folder / "model-F16.gguf")
    out, loaded = run(*arguments)
    assert out
    assert not loaded & HEAVY


def test_completion_offers_ids_and_loads_little(kmint_home: Path) -> None:
    (kmint_home / "config").mkdir(parents=True)
    text = '[[model]]\nid = "minimal"\ntitle = "Mine"\nkind = "made"\nrank = 1\nlicence = "MIT"\ncontext = 9\ndialect = "card"\n'
    text += "temperature = 1\ntop_p = 1\nmax_tokens = 9\n"
    (kmint_home / "config" / "models.toml").write_text(text, encoding="utf-8")
    for line in ("kmint models show mini", "kmint mint softmax --model mini"):
        offered, loaded = complete(line)
        assert set(offered) == {"minicpm5-1b", "minicpm5-1b-base", "minimal"}
        assert not loaded & HEAVY
    assert complete("kmint models ")[0] == [
        "ls",
        "show",
        "pull",
        "url",
        "import",
        "prompt",
        "bundle",
        "verify",
        "rm",
    ]


def test_completion_offers_sessions_and_drafts_of_the_history(kmint_home: Path) -> None:
    assert (
        run(_KMINT_COMPLETE="bash_complete", COMP_WORDS="kmint save ", COMP_CWORD="2")[0].strip()
        == ""
    )
    assert not (kmint_home / "data").exists()
    fill(kmint_home / "data" / "history.db", 2)
    offered, loaded = complete("kmint history show 1")
    assert (offered, loaded & HEAVY) == (["1", "1.0", "1.1"], {"sqlite3"})
    assert complete("kmint save 2.")[0] == ["2.0", "2.1"]
    assert complete("kmint history diff 1.0 1.")[0] == ["1.0", "1.1"]
    (kmint_home / "data" / "history.db").write_text(
        "no database, and long enough to be taken for one " * 20
    )
    assert (
        run(_KMINT_COMPLETE="bash_complete", COMP_WORDS="kmint save 2.", COMP_CWORD="2")[0].strip()
        == ""
    )


def test_show_tells_which_file_won(kmint_home: Path) -> None:
    file = kmint_home / "config" / "models.toml"
    file.parent.mkdir(parents=True)
    file.write_text('[[model]]\nid = "minicpm5-1b"\ntemperature = 0.4\n', encoding="utf-8")
    origins = kmint("models", "show", "minicpm5-1b", "--json").document["origins"]
    assert origins["temperature"] == str(file)
    assert origins["top_p"] == "kmint's own models.toml"
    lines = kmint("models", "show", "minicpm5-1b").out.splitlines()
    assert any(line.split()[:2] == ["temperature", "0.4"] and str(file) in line for line in lines)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[mint]\ndraft = 3\n", "mint.drafts"),
        ("[mint]\ndrafts = 0\n", "outside"),
        ("[mint\n", "not TOML"),
        ("[mint]\nmodel = 3\n", "str"),
    ],
)
def test_wrong_settings_are_named_with_the_nearest_key(
    kmint_home: Path, text: str, said: str
) -> None:
    file = kmint_home / "config" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(text, encoding="utf-8")
    for verb in ("validate", "show"):
        done = kmint("config", verb)
        assert (done.code, said in done.err) == (2, True), done.err


def test_the_origin_of_each_setting_is_shown(kmint_home: Path) -> None:
    file = kmint_home / "config" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text("[mint]\ndrafts = 3\n", encoding="utf-8")
    shown = kmint("config", "show", "--json").document["settings"]
    assert shown["mint.drafts"] == {"value": 3, "origin": str(file)}
    assert shown["mint.top_p"]["origin"] == "built in"


def test_places_follow_the_environment(tmp_path: Path, kmint_home: Path) -> None:
    found = kmint("path", "--json").document["paths"]
    assert all(Path(place).is_relative_to(kmint_home) for place in found.values())
    assert kmint("path", "models", KMINT_MODELS_DIR=str(tmp_path)).out.strip() == str(tmp_path)
    data, config = str(tmp_path / "d"), str(tmp_path / "c")
    found = kmint(
        "path",
        "--json",
        KMINT_HOME="",
        HOME=str(tmp_path),
        XDG_DATA_HOME=data,
        XDG_CONFIG_HOME=config,
    ).document["paths"]
    assert Path(found["models"]) == tmp_path / "d" / "kmint" / "models"
    assert Path(found["config"]) == tmp_path / "c" / "kmint"
    assert list(tmp_path.iterdir()) == [], "asking made something"

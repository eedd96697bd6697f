"""Importing, bundling and removing model files with the real command, on awkward files and stores."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from kmint_tui import installed
from kmint_tui.errors import ModelError
from kmint_tui.installed import knows
from kmint_tui.models import bundle
from kmint_tui.models.check import check
from tests.cli import runner
from tests.cli.runner import Done
from tests.tiny_models import CHATML, llama, qwen35

pytestmark = pytest.mark.usefixtures("warm")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return llama(tmp_path_factory.mktemp("model") / "Tiny Modèle.gguf")


def kmint(home: Path, *arguments: str, code: int = 0) -> Done:
    done = runner.kmint(*arguments, KMINT_HOME=str(home))
    assert done.code == code, done.err
    return done


def test_link_verify_and_remove_leave_the_original(model: Path, tmp_path: Path) -> None:
    home = tmp_path / "a home with spaces é"
    answer = json.loads(kmint(home, "models", "import", str(model), "--as", "tiny", "--json").out)
    assert answer["linked"] and Path(answer["path"]).resolve() == model.resolve()
    again = json.loads(kmint(home, "models", "import", str(model), "--as", "tiny", "--json").out)
    assert again["reason"] == "it is in the store already"
    told = kmint(home, "models", "verify", "tiny").out
    assert "unknown" in told and "unchanged since it came in" in told
    kmint(home, "models", "rm", "tiny", "--yes")
    assert model.exists()
    assert "not in the store" in kmint(home, "models", "rm", "tiny", "--yes", code=4).err


def test_a_file_that_changed_in_the_store_is_told(model: Path, tmp_path: Path) -> None:
    answer = json.loads(
        kmint(tmp_path, "models", "import", str(model), "--as", "tiny", "--copy", "--json").out
    )
    with open(answer["path"], "r+b") as file:
        file.seek(-4, 2)
        file.write(b"oops")
    assert "has changed since" in kmint(tmp_path, "models", "verify", "tiny", code=4).err
    kmint(tmp_path, "models", "rm", "tiny", "--yes")
    assert not list(Path(answer["path"]).parent.iterdir())


def test_the_template_must_have_a_form_without_thinking(tmp_path: Path) -> None:
    thinks = CHATML.replace("<think>\n\n</think>{{ '\\n\\n' }}", "<think>\n")
    assert thinks != CHATML
    path = llama(tmp_path / "thinks.gguf", template=thinks)
    told = kmint(tmp_path, "models", "import", str(path), "--as", "tiny", code=4).err
    assert "thinking" in told and "fix:" in told
    assert "thinking" in kmint(tmp_path, "models", "verify", str(path), code=4).err


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (
            "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
            "more than 3 s of processor time",
        ),
        ("{{ 'x' * 10 ** 11 }}", "more than 1024 MiB of memory"),
    ],
    ids=["endless", "large"],
)
def test_a_template_that_would_take_the_machine_is_refused(
    tmp_path: Path, template: str, reason: str
) -> None:
    path = llama(tmp_path / "hostile.gguf", template=template + CHATML)
    assert reason in kmint(tmp_path, "models", "import", str(path), "--as", "tiny", code=4).err


def test_a_model_by_its_path_gets_the_checks(tmp_path: Path) -> None:
    """A file given with --model is a stranger's file like an imported one."""
    path = llama(
        tmp_path / "thinks.gguf",
        template=CHATML.replace("<think>\n\n</think>{{ '\\n\\n' }}", "<think>\n"),
    )
    told = kmint(tmp_path, "mint", "softmax", "--model", str(path), "--dry-run", code=4).err
    assert "thinking" in told and "fix:" in told


def test_smoke_writes_and_compares_memory(model: Path, tmp_path: Path) -> None:
    told = json.loads(kmint(tmp_path, "models", "verify", str(model), "--smoke", "--json").out)[
        "smoke"
    ]
    assert 0 < told["tokens"] <= 48
    assert abs(told["error"]) < 0.1
    assert told["used"]["cache"] == pytest.approx(told["expected"]["cache"], abs=6000)
    lines = kmint(tmp_path, "models", "verify", str(model), "--smoke").out
    assert "taken" in lines and "estimated" in lines
    assert not list(tmp_path.rglob("smoke-*.log"))


def test_a_smoke_that_fails_keeps_the_words_of_llama_cpp(tmp_path: Path) -> None:
    """A head that kmint accepts and llama.cpp refuses: a block of layers is missing."""
    path = llama(tmp_path / "holes.gguf")
    content = path.read_bytes()
    assert content.count(b"blk.1.attn_q.weight") == 1
    path.write_bytes(content.replace(b"blk.1.attn_q.weight", b"blk.1.attn_Q.weight"))
    told = kmint(tmp_path, "models", "verify", str(path), "--smoke", code=4).err
    assert "llama.cpp does not accept" in told and "llama.cpp's output" in told
    assert list(tmp_path.rglob("smoke-*.log"))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (b"gpt-2", b"gpt-9", "pre-tokenizer 'gpt-9'"),
        (b"eos_token_id\x04\0\0\0\1\0", b"eos_token_id\x04\0\0\0\xff\xff", "end an answer"),
        (b"tokenizer.ggml.pre", b"tokenizer.ggml.bre", "pre-tokenizer"),
        (b"token_embd.weight", b"token_embD.weight", "token_embd.weight is missing"),
        (b"llama", b"lIama", "architecture 'lIama'"),
    ],
)
def test_what_llama_cpp_would_not_take_is_refused_by_its_head(
    model: Path, tmp_path: Path, old: bytes, new: bytes, said: str
) -> None:
    content = model.read_bytes()
    assert old in content
    path = tmp_path / "m.gguf"
    path.write_bytes(content.replace(old, new))
    told = kmint(tmp_path, "models", "import", str(path), "--as", "tiny", code=4).err
    assert said in told and "fix:" in told


def test_a_name_that_llama_cpp_lacks_is_refused_with_the_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older library, imitated by a file without the name."""
    assert knows("qwen35") and knows("qwen2") and knows("minicpm5") and not knows("no-such-name")
    old = tmp_path / "libllama.so"
    old.write_bytes(b"\0llama\0gpt-2\0")
    monkeypatch.setattr(installed, "_library", lambda: old)
    knows.cache_clear()
    try:
        with pytest.raises(ModelError, match="qwen35") as refused:
            check(qwen35(tmp_path / "q.gguf"))
        assert "0.3.17" in refused.value.fix
        check(llama(tmp_path / "l.gguf"))
    finally:
        knows.cache_clear()


def test_a_bundle_carries_a_model_to_another_home(model: Path, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    kmint(here, "models", "import", str(model), "--as", "tiny", "--copy")
    kmint(here, "models", "bundle", "tiny", "--out", str(tmp_path / "b.tar"))
    answer = json.loads(
        kmint(there, "models", "import", str(tmp_path / "b.tar"), "--as", "tiny", "--json").out
    )
    assert answer["id"] == "tiny" and Path(answer["path"]).read_bytes() == model.read_bytes()


def test_a_file_that_is_not_a_model_is_refused_with_the_reason(model: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(model.read_bytes()[:2000])
    assert "not a sound GGUF" in kmint(tmp_path, "models", "import", str(broken), code=4).err
    assert (
        "does not exist"
        in kmint(tmp_path, "models", "import", str(tmp_path / "none.gguf"), code=4).err
    )
    assert "--as ID" in kmint(tmp_path, "models", "import", str(model), code=4).err
    assert not list(tmp_path.rglob("*.partial"))


def test_another_file_under_the_same_name_is_not_overwritten(model: Path, tmp_path: Path) -> None:
    kmint(tmp_path, "models", "import", str(model), "--as", "tiny", "--copy")
    other = tmp_path / "other" / model.name
    other.parent.mkdir()
    shutil.copy(model, other)
    with other.open("r+b") as file:
        file.seek(-4, 2)
        file.write(b"\x01\x02\x03\x04")
    assert (
        "another file"
        in kmint(tmp_path, "models", "import", str(other), "--as", "tiny", code=6).err
    )


@pytest.mark.parametrize("damage", ["truncated", "digest", "path", "manifest"])
def test_a_damaged_bundle_leaves_nothing(model: Path, tmp_path: Path, damage: str) -> None:
    path = tmp_path / "b.tar"
    bundle.write_bundle("tiny", model, path)
    data = bytearray(path.read_bytes())
    if damage == "truncated":
        data = data[: len(data) // 2]
    elif damage == "digest":
        data[-20_000] ^= 1
    elif damage == "path":
        data = bytearray(bytes(data).replace(b'"file": "', b'"file": "../'))
    else:
        data = bytearray(bytes(data).replace(b"kmint.bundle/1", b"kmint.bundle/9"))
    path.write_bytes(data)
    (tmp_path / "out").mkdir()
    with pytest.raises(ModelError):
        bundle.unpack(path, tmp_path / "out")
    if damage != "truncated":
        assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize(
    ("out", "words"), [("model.gguf", "not overwritten"), (".", "is a folder"), ("", "is a folder")]
)
def test_a_bundle_replaces_nothing_but_a_bundle(tmp_path: Path, out: str, words: str) -> None:
    (tmp_path / "model.gguf").write_bytes(b"somebody's weights")
    refused = kmint(
        tmp_path,
        "models",
        "bundle",
        "embedded",
        "--out",
        str(tmp_path / out) if out else "",
        code=2,
    )
    assert words in refused.err
    assert (tmp_path / "model.gguf").read_bytes() == b"somebody's weights"


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert (
        "is not a file" in kmint(tmp_path, "models", "import", str(tmp_path / "pipe"), code=4).err
    )

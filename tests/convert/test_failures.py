"""Failures of the real command: one line with an exit code, and no file under the final name."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.fake_checkpoint import write_adapter, write_minicpm5
from tests.cli.runner import Done, kmint

MODEL, STORAGE = 4, 6
MOST_STEPS = 100
SIZES = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}
VOCABULARY = 2048


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound base in two shards and its adapter."""
    folder = tmp_path_factory.mktemp("whole")
    write_minicpm5(
        folder / "base",
        folder / "adapter",
        shards=2,
        rank=8,
        alpha=16,
        vocab_size=VOCABULARY,
        **SIZES,
    )
    return folder


@pytest.fixture
def pair(whole: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    for name in ("base", "adapter"):
        shutil.copytree(whole / name, tmp_path / name)
    return tmp_path


def command(folder: Path, *more: str) -> tuple[str, ...]:
    paths = (
        "--base",
        str(folder / "base"),
        "--adapter",
        str(folder / "adapter"),
        "--out",
        str(folder / "out" / "m.gguf"),
    )
    return ("convert", *paths, "--quant", "F16", *more)


def run(folder: Path, *more: str, file_limit: int | None = None) -> Done:
    (folder / "out").mkdir(exist_ok=True)
    return kmint(*command(folder, *more), file_limit=file_limit, KMINT_HOME=str(folder / "home"))


def edit(path: Path, change: Callable[[dict[str, object]], None]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def a_missing_shard(folder: Path) -> None:
    (folder / "base" / "model-00002-of-00002.safetensors").unlink()


def a_truncated_shard(folder: Path) -> None:
    path = folder / "base" / "model-00002-of-00002.safetensors"
    os.truncate(path, path.stat().st_size - 1000)


def a_truncated_adapter(folder: Path) -> None:
    path = folder / "adapter" / "adapter_model.safetensors"
    os.truncate(path, path.stat().st_size // 2)


def a_shard_that_is_something_else(folder: Path) -> None:
    (folder / "base" / "model-00001-of-00002.safetensors").write_text("<html>404 not found</html>")


def an_index_that_promises_more(folder: Path) -> None:
    def change(document: dict[str, object]) -> None:
        assert isinstance(document["weight_map"], dict)
        document["weight_map"]["model.layers.9.mlp.up_proj.weight"] = (
            "model-00001-of-00002.safetensors"
        )

    edit(folder / "base" / "model.safetensors.index.json", change)


def another_base(folder: Path) -> None:
    shutil.rmtree(folder / "base")
    write_minicpm5(
        folder / "base",
        folder / "unused",
        rank=8,
        alpha=16,
        vocab_size=VOCABULARY,
        **{**SIZES, "hidden_size": 512},
    )


def adapter_keys_of_a_deeper_model(folder: Path) -> None:
    modules = {f"model.layers.{layer}.mlp.up_proj": (512, 256) for layer in (0, 1, 2)}
    write_adapter(folder / "adapter", modules, 8, 16, lambda tensor: True)


def a_pattern_without_end(folder: Path) -> None:
    edit(
        folder / "adapter" / "adapter_config.json",
        lambda document: document.update(rank_pattern={"(.|.)*!": 4}),
    )


def a_shard_above(folder: Path) -> None:
    shutil.copy(
        folder / "base" / "model-00001-of-00002.safetensors",
        folder / "model-00001-of-00002.safetensors",
    )
    index = folder / "base" / "model.safetensors.index.json"
    index.write_text(index.read_text().replace("model-00001", "../model-00001"))


def a_rank_that_the_config_denies(folder: Path) -> None:
    edit(folder / "adapter" / "adapter_config.json", lambda document: document.update(r=4))


def an_unknown_rope(folder: Path) -> None:
    edit(
        folder / "base" / "config.json",
        lambda document: document.update(rope_scaling={"type": "spiral", "factor": 2.0}),
    )


def an_unknown_pre_tokenizer(folder: Path) -> None:
    edit(
        folder / "base" / "tokenizer.json",
        lambda document: document.update(pre_tokenizer={"type": "Whitespace"}),
    )


def an_unknown_tokenizer(folder: Path) -> None:
    edit(
        folder / "base" / "tokenizer.json",
        lambda document: document.update(model={"type": "WordPiece", "vocab": {}}),
    )


def no_tokenizer(folder: Path) -> None:
    (folder / "base" / "tokenizer.json").unlink()


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (a_missing_shard, "model-00002-of-00002.safetensors is missing"),
        (a_truncated_shard, "the file is truncated"),
        (a_truncated_adapter, "the file is truncated"),
        (a_shard_that_is_something_else, "not a safetensors file"),
        (an_index_that_promises_more, "model.layers.9.mlp.up_proj.weight"),
        (another_base, "is this the right base model?"),
        (adapter_keys_of_a_deeper_model, "2 adapter tensors match nothing in the base"),
        (a_pattern_without_end, "matching rank_pattern failed: it takes more than 5 s"),
        (a_shard_above, "is not a plain file name"),
        (a_rank_that_the_config_denies, "stores rank 8, adapter_config.json says 4"),
        (an_unknown_rope, "rope type 'spiral' is not supported"),
        (an_unknown_pre_tokenizer, "pre-tokenizer not recognised"),
        (an_unknown_tokenizer, "tokenizer.json"),
        (no_tokenizer, "tokenizer"),
    ],
    ids=lambda value: value.__name__ if callable(value) else " ",
)
def test_damage_is_named_and_writes_nothing(
    damage: Callable[[Path], None], said: str, pair: Path
) -> None:
    damage(pair)
    refused(pair, run(pair), MODEL, said)


def refused(folder: Path, done: Done, code: int, said: str) -> None:
    """One line of error, at most one of advice, the exit code, and nothing in the folder."""
    lines = [line for line in done.err.splitlines() if not line.startswith("writing ")]
    assert done.code == code, done.err
    assert said in done.err
    assert len(lines) <= 2 and lines[0].startswith("error: "), done.err
    assert list((folder / "out").iterdir()) == []


def test_a_wrong_pre_tokenizer_does_not_get_past_the_proof(pair: Path) -> None:
    """gpt-2 takes four digits together where this one takes three; the vocabulary shows it."""
    path = pair / "base" / "tokenizer.json"
    document = json.loads(path.read_text())
    numbers, merges = document["model"]["vocab"], [["1", "2"], ["12", "3"], ["123", "4"]]
    for _ in merges:
        del numbers[max(numbers, key=lambda text: int(numbers[text]))]
    numbers |= {left + right: len(numbers) + index for index, (left, right) in enumerate(merges)}
    document["model"]["merges"][-len(merges) :] = merges
    path.write_text(json.dumps(document))
    refused(pair, run(pair, "--pre", "gpt-2"), MODEL, "cuts text as 'minicpm5' does")
    steps = document["pre_tokenizer"]["pretokenizers"]
    steps.insert(0, {**steps[0], "pattern": {"Regex": "~{50}"}})
    path.write_text(json.dumps(document))
    refused(pair, run(pair), MODEL, "pre-tokenizer not recognised")
    refused(pair, run(pair, "--pre", "gpt-2"), MODEL, "texts encode differently")


def test_a_file_that_may_not_grow(pair: Path) -> None:
    refused(pair, run(pair, file_limit=1_000_000), STORAGE, "File too large")


def on_a_small_disk(folder: Path, room: int, *more: str) -> tuple[int, str, str]:
    """(exit code, stderr, remaining files) of the command with a disk of `room` bytes for its
    output.

    Skips where such a disk is impossible.
    """
    (folder / "out").mkdir()
    mount = f"mount -t tmpfs -o size={room} none {folder / 'out'}"
    if (
        shutil.which("unshare") is None
        or subprocess.run(["unshare", "-Urm", "sh", "-c", mount], capture_output=True).returncode
        != 0
    ):
        pytest.skip("a small disk needs user and mount namespaces, which this system does not give")
    script = f'{mount} && "$@"; code=$?; ls -A {folder / "out"}; exit $code'
    arguments = [
        "unshare",
        "-Urm",
        "sh",
        "-c",
        script,
        "sh",
        sys.executable,
        "-m",
        "kmint_tui",
        *command(folder, *more),
    ]
    done = subprocess.run(
        arguments,
        capture_output=True,
        text=True,
        env={**os.environ, "KMINT_HOME": str(folder / "home")},
    )
    return done.returncode, done.stderr, done.stdout


def size_of_tensors(folder: Path) -> int:
    disk = run(folder, "--plan", "--json").document["disk"]
    (folder / "out").rmdir()
    return int(disk)


def test_a_disk_that_is_too_small_is_noticed_before_writing(pair: Path) -> None:
    code, error, left = on_a_small_disk(pair, size_of_tensors(pair) // 2)
    assert (code, left) == (STORAGE, "")
    assert "GB free" in error and "are needed" in error and "writing" not in error


def test_a_disk_that_fills_up(tmp_path: Path) -> None:
    """The vocabulary, for which the estimate has a margin, is large enough to exceed it."""
    sizes = {**SIZES, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1}
    write_minicpm5(
        tmp_path / "base", tmp_path / "adapter", rank=8, alpha=16, vocab_size=60_000, **sizes
    )
    code, error, left = on_a_small_disk(tmp_path, size_of_tensors(tmp_path) + 2**20 + 2**18)
    assert (code, left) == (STORAGE, ""), error
    assert "No space left on device" in error and "Traceback" not in error


def test_a_folder_that_is_not_there(pair: Path) -> None:
    done = kmint(*command(pair), KMINT_HOME=str(pair / "home"))
    assert done.code == STORAGE and "No such file or directory" in done.err


def test_planted_names_are_neither_followed_nor_deleted(pair: Path) -> None:
    """Guessable names of earlier conversions: links to a file of the user's, and the user's files."""
    (pair / "out").mkdir()
    out, victim = pair / "out" / "m.gguf", pair / "victim"
    victim.write_text("mine")
    endings = (
        ".intermediate",
        ".intermediate.partial",
        ".unproven",
        ".unproven.partial",
        ".importance.npz",
        ".report.json.partial",
    )
    for number, ending in enumerate(endings):
        planted = out.with_name(out.name + ending)
        if number % 2:
            planted.write_text("mine, too")
        else:
            planted.symlink_to(victim)
    assert run(pair, "--quant", "Q4_K_M", "--verify", "structure").code == 0
    assert victim.read_text() == "mine"
    for number, ending in enumerate(endings):
        planted = out.with_name(out.name + ending)
        assert planted.read_text() == "mine, too" if number % 2 else planted.is_symlink()
    assert len(list(out.parent.iterdir())) == len(endings) + 2


STEPS = """
import os, signal, sys
folder, left, pieces = sys.argv[1], int(sys.argv[2]), 0
def step():
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
def called(frame, event, function):
    global pieces
    if event == "c_call" and function.__name__ == "write" and frame.f_code.co_name == "write_gguf":
        pieces += 1
        if pieces % 4 == 0:
            step()
def seen(event, arguments):
    if event in ("open", "os.rename", "os.remove") and str(arguments[0]).startswith(folder):
        step()
        if event == "open" and arguments[1] == "a":
            sys.setprofile(called)
sys.addaudithook(seen)
from kmint_tui.cli.main import main
main(sys.argv[3:])
"""


def test_killed_at_any_moment(pair: Path) -> None:
    """Killed before each change in the output folder, and before each fourth piece of the file.

    Its name then holds the whole old file or the whole new one, with no report but its own.
    Afterwards the conversion works.
    """
    out = pair / "out" / "m.gguf"
    report = out.with_name("m.gguf.report.json")
    assert run(pair).code == 0
    new = out.read_bytes()
    edit(pair / "adapter" / "adapter_config.json", lambda document: document.update(lora_alpha=32))
    assert run(pair).code == 0
    old, of_old = out.read_bytes(), report.read_bytes()
    edit(pair / "adapter" / "adapter_config.json", lambda document: document.update(lora_alpha=16))
    assert old != new
    left: list[bytes] = []
    for moment in range(1, MOST_STEPS):
        out.write_bytes(old)
        report.write_bytes(of_old)
        code, said = _killed_before(moment, pair)
        left.append(out.read_bytes())
        assert left[-1] in (old, new)
        if report.exists():
            assert json.loads(report.read_bytes())["sha256"] == hashlib.sha256(left[-1]).hexdigest()
        if code == 0:
            break
        assert code == -signal.SIGKILL, said
    assert (
        left[-1] == new
        and {left.index(old), left.index(new)} == {0, left.count(old)}
        and left.count(new) > 2
    )
    assert 15 < len(left) < MOST_STEPS - 1
    assert sorted(path.name for path in out.parent.iterdir()) == ["m.gguf", "m.gguf.report.json"]


def _killed_before(step: int, folder: Path) -> tuple[int, str]:
    """(exit code, stderr) of the command, which is killed before it takes that step."""
    arguments = [
        sys.executable,
        "-c",
        STEPS,
        str(folder / "out"),
        str(step),
        *command(folder, "--verify", "structure"),
    ]
    done = subprocess.run(
        arguments,
        capture_output=True,
        text=True,
        env={**os.environ, "KMINT_HOME": str(folder / "home")},
    )
    return done.returncode, done.stderr

"""What goes wrong goes wrong in one line with its exit code, through the real command, and never under the file's own name."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.fake_checkpoint import write_adapter, write_minicpm5
from tests.cli.runner import Done, kmint

MODEL, STORAGE = 4, 6
KILLS = 20
SIZES = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
VOCABULARY = 2048


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound base in two shards and its adapter."""
    folder = tmp_path_factory.mktemp("whole")
    write_minicpm5(folder / "base", folder / "adapter", shards=2, rank=8, alpha=16, vocab_size=VOCABULARY, **SIZES)
    return folder


@pytest.fixture
def pair(whole: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    for name in ("base", "adapter"):
        shutil.copytree(whole / name, tmp_path / name)
    return tmp_path


def command(folder: Path, *more: str) -> tuple[str, ...]:
    paths = ("--base", str(folder / "base"), "--adapter", str(folder / "adapter"), "--out", str(folder / "out" / "m.gguf"))
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
        document["weight_map"]["model.layers.9.mlp.up_proj.weight"] = "model-00001-of-00002.safetensors"

    edit(folder / "base" / "model.safetensors.index.json", change)


def another_base(folder: Path) -> None:
    shutil.rmtree(folder / "base")
    write_minicpm5(folder / "base", folder / "unused", rank=8, alpha=16, vocab_size=VOCABULARY, **{**SIZES, "hidden_size": 512})


def adapter_keys_of_a_deeper_model(folder: Path) -> None:
    modules = {f"model.layers.{layer}.mlp.up_proj": (512, 256) for layer in (0, 1, 2)}
    write_adapter(folder / "adapter", modules, 8, 16, lambda tensor: True)


def a_rank_that_the_config_denies(folder: Path) -> None:
    edit(folder / "adapter" / "adapter_config.json", lambda document: document.update(r=4))


def an_unknown_rope(folder: Path) -> None:
    edit(folder / "base" / "config.json", lambda document: document.update(rope_scaling={"type": "spiral", "factor": 2.0}))


def an_unknown_pre_tokenizer(folder: Path) -> None:
    edit(folder / "base" / "tokenizer.json", lambda document: document.update(pre_tokenizer={"type": "Whitespace"}))


def an_unknown_tokenizer(folder: Path) -> None:
    edit(folder / "base" / "tokenizer.json", lambda document: document.update(model={"type": "WordPiece", "vocab": {}}))


def no_tokenizer(folder: Path) -> None:
    (folder / "base" / "tokenizer.json").unlink()


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
        (a_rank_that_the_config_denies, "stores rank 8, adapter_config.json says 4"),
        (an_unknown_rope, "rope type 'spiral' is not supported"),
        (an_unknown_pre_tokenizer, "pre-tokenizer not recognised"),
        (an_unknown_tokenizer, "tokenizer.json"),
        (no_tokenizer, "tokenizer"),
    ],
    ids=lambda value: value.__name__ if callable(value) else " ",
)
def test_damage_is_named_and_writes_nothing(damage: Callable[[Path], None], said: str, pair: Path) -> None:
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
    """gpt-2 takes four digits together where this one takes three; the vocabulary is made to tell."""
    path = pair / "base" / "tokenizer.json"
    document = json.loads(path.read_text())
    numbers, merges = document["model"]["vocab"], [["1", "2"], ["12", "3"], ["123", "4"]]
    for _ in merges:
        del numbers[max(numbers, key=lambda text: int(numbers[text]))]
    numbers |= {left + right: len(numbers) + index for index, (left, right) in enumerate(merges)}
    document["model"]["merges"][-len(merges) :] = merges
    path.write_text(json.dumps(document))
    refused(pair, run(pair, "--pre", "gpt-2"), MODEL, "tokenizer check failed")


def test_a_file_that_may_not_grow(pair: Path) -> None:
    refused(pair, run(pair, file_limit=1_000_000), STORAGE, "File too large")


def on_a_small_disk(folder: Path, room: int, *more: str) -> tuple[int, str, str]:
    """(exit code, stderr, what is left) of the command with a disk of `room` bytes as its output folder; skips without one."""
    (folder / "out").mkdir()
    mount = f"mount -t tmpfs -o size={room} none {folder / 'out'}"
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-Urm", "sh", "-c", mount], capture_output=True).returncode != 0:
        pytest.skip("a small disk needs user and mount namespaces, which this system does not give")
    script = f'{mount} && "$@"; code=$?; ls -A {folder / "out"}; exit $code'
    arguments = ["unshare", "-Urm", "sh", "-c", script, "sh", sys.executable, "-m", "kmint_tui", *command(folder, *more)]
    done = subprocess.run(arguments, capture_output=True, text=True, env={**os.environ, "KMINT_HOME": str(folder / "home")})
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
    """The vocabulary, which the estimate leaves to its margin, is made large enough to exceed it."""
    sizes = {**SIZES, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1}
    write_minicpm5(tmp_path / "base", tmp_path / "adapter", rank=8, alpha=16, vocab_size=60_000, **sizes)
    code, error, left = on_a_small_disk(tmp_path, size_of_tensors(tmp_path) + 2**20 + 2**18)
    assert (code, left) == (STORAGE, ""), error
    assert "No space left on device" in error and "Traceback" not in error


def test_a_folder_that_is_not_there(pair: Path) -> None:
    done = kmint(*command(pair), KMINT_HOME=str(pair / "home"))
    assert done.code == STORAGE and "No such file or directory" in done.err


def test_what_a_killed_run_left_is_never_taken_for_this_ones(pair: Path) -> None:
    """Every half-done file of another conversion, under the names that such files have."""
    assert run(pair, "--quant", "Q4_K_M").code == 0
    out = pair / "out" / "m.gguf"
    expected = out.read_bytes()
    write_adapter(pair / "other", {"model.layers.0.mlp.up_proj": (512, 256)}, 8, 800, lambda tensor: True, seed=9)
    shutil.move(pair / "adapter", pair / "first")
    shutil.move(pair / "other", pair / "adapter")
    assert run(pair).code == 0
    wrong = out.read_bytes()
    shutil.rmtree(pair / "adapter")
    shutil.move(pair / "first", pair / "adapter")
    for ending in (".intermediate", ".intermediate.partial", ".unproven", ".unproven.partial"):
        out.with_name(out.name + ending).write_bytes(wrong)
    assert run(pair, "--quant", "Q4_K_M", "--verify", "structure").code == 0
    assert out.read_bytes() == expected
    assert sorted(path.name for path in out.parent.iterdir()) == ["m.gguf", "m.gguf.report.json"]


def test_killed_at_any_moment(pair: Path) -> None:
    """At 20 moments spread over a run: under the file's name stands the older good file or the new one, whole; then it works."""
    out, moments = pair / "out" / "m.gguf", random.Random(5)
    assert run(pair).code == 0
    new = out.read_bytes()
    edit(pair / "adapter" / "adapter_config.json", lambda document: document.update(lora_alpha=32))
    assert run(pair).code == 0
    old = out.read_bytes()
    edit(pair / "adapter" / "adapter_config.json", lambda document: document.update(lora_alpha=16))
    assert old != new
    started = time.monotonic()
    assert run(pair, "--plan").code == 0
    planned = time.monotonic() - started
    started = time.monotonic()
    assert run(pair).code == 0
    lasted = time.monotonic() - started
    killed = 0
    for moment in range(KILLS):
        out.write_bytes(old)
        # A third of the moments before anything is written, the others while it is.
        first, last = (0.0, planned) if moment % 3 == 0 else (planned, lasted)
        killed += _kill_after(pair, first + (moment + moments.random()) / KILLS * (last - first))
        assert out.read_bytes() in (old, new)
        reported = out.with_name("m.gguf.report.json")
        reported.unlink(missing_ok=True)
    assert killed >= KILLS // 2
    assert run(pair).code == 0
    assert out.read_bytes() == new
    assert sorted(path.name for path in out.parent.iterdir()) == ["m.gguf", "m.gguf.report.json"]


def _kill_after(folder: Path, seconds: float) -> bool:
    """Whether the command was still running then and died of the signal."""
    arguments = [sys.executable, "-m", "kmint_tui", *command(folder)]
    environment = {**os.environ, "KMINT_HOME": str(folder / "home")}
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment) as child:
        try:
            child.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            child.kill()
        return child.wait() == -9

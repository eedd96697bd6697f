"""The commands that `kill_commands.py` kills: their preparation, their arguments, and the
conditions that must hold afterwards.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.fake_checkpoint import write_adapter, write_minicpm5
from tests.history.test_transfer import documents, fill
from tests.tiny_models import Shape, llama

ROOT = Path(__file__).resolve().parent.parent
SESSIONS = 40
MODEL = "tiny-F16.gguf"
KERNEL = ROOT / "referee" / "selftest" / "gold" / "online_softmax.py.txt"
SIZES = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}


@dataclass(frozen=True)
class Operation:
    """A command on a prepared folder with `home`, `work`, `out` and `tmp` in it.

    `lost` says what is wrong, or "".
    """

    name: str
    prepare: Callable[[Path], None]
    arguments: Callable[[Path], list[str]]
    lost: Callable[[Path, bool], str]


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _prepare_import(root: Path) -> None:
    llama(root / "work" / MODEL, Shape(layers=8, hidden=256, feed_forward=512))
    _bundle(root / "work" / MODEL, root / "work" / "b.tar")


def _bundle(model: Path, target: Path) -> None:
    from kmint_tui.models.bundle import write_bundle

    before = os.environ.get("KMINT_HOME")
    with tempfile.TemporaryDirectory() as home:
        os.environ["KMINT_HOME"] = home
        try:
            write_bundle("tiny", model, target)
        finally:
            os.environ.pop("KMINT_HOME") if before is None else os.environ.update(KMINT_HOME=before)


def _import_lost(root: Path, finished: bool) -> str:
    stored = root / "home" / "data" / "models" / "tiny" / MODEL
    if not stored.exists():
        return "the model is not there" if finished else ""
    return (
        ""
        if stored.read_bytes() == (root / "work" / MODEL).read_bytes()
        else "the model is not whole"
    )


def _prepare_convert(root: Path) -> None:
    write_minicpm5(
        root / "work" / "base",
        root / "work" / "adapter",
        rank=8,
        alpha=16,
        vocab_size=2048,
        **SIZES,
    )
    (root / "out" / "m.gguf").write_bytes(b"GGUF, an older one")
    write_adapter(
        root / "work" / "other",
        {"model.layers.0.mlp.up_proj": (512, 256)},
        8,
        16,
        lambda tensor: True,
        seed=9,
    )


def _convert_arguments(root: Path) -> list[str]:
    paths = (
        "--base",
        str(root / "work" / "base"),
        "--adapter",
        str(root / "work" / "adapter"),
        "--out",
        str(root / "out" / "m.gguf"),
    )
    return ["convert", *paths, "--quant", "Q4_K_M", "--verify", "structure"]


def _convert_lost(root: Path, finished: bool) -> str:
    out, report = root / "out" / "m.gguf", root / "out" / "m.gguf.report.json"
    if not out.exists():
        return "the older file is gone"
    new = out.stat().st_size > 1000
    if finished and not (new and report.exists()):
        return "the new file is not there"
    if report.exists() and json.loads(report.read_bytes())["sha256"] != _digest(out):
        return "the report is another file's"
    return "" if new or out.read_bytes() == b"GGUF, an older one" else "the file is not whole"


def _prepare_history(root: Path) -> None:
    fill(root / "work" / "other.db", SESSIONS, size=2000)
    lines = [json.dumps(document) for document in documents(root / "work" / "other.db")]
    (root / "work" / "other.db").unlink()
    (root / "work" / "sessions.jsonl").write_text("\n".join(lines) + "\n")
    (root / "home" / "data").mkdir()
    fill(root / "home" / "data" / "history.db", 2, size=3)


def _history_lost(root: Path, finished: bool) -> str:
    wanted = {
        json.loads(line)["seed"]
        for line in (root / "work" / "sessions.jsonl").read_text().splitlines()
    }
    copy = root.parent / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(root / "home" / "data", copy)
    found = documents(copy / "history.db")
    if any(len(document["drafts"]) != 2 for document in found):
        return "a session is not whole"
    seeds = [document["seed"] for document in found]
    if not {0, 1} <= set(seeds) or (finished and set(seeds) != wanted):
        return f"sessions are missing: {sorted(wanted - set(seeds))}"
    return ""


def _prepare_save(root: Path) -> None:
    shutil.copy(KERNEL, root / "work" / "kernel.py")
    with (root.parent / "verdict.json").open("wb") as answer:
        command = [
            sys.executable,
            "-m",
            "kmint_tui",
            "judge",
            str(root / "work" / "kernel.py"),
            "--op",
            "softmax",
            "--json",
        ]
        subprocess.run(
            command,
            stdout=answer,
            env={**os.environ, "KMINT_HOME": str(root.parent / "judge")},
            check=True,
        )
    from kmint_tui.history.store import History
    from tests.history.test_history import SESSION, draft

    (root / "home" / "data").mkdir()
    with History(root / "home" / "data" / "history.db") as history:
        session = history.begin(SESSION)
        history.add_draft(session, draft(0, (root / "work" / "kernel.py").read_text()))
        history.set_verdict(
            session, 0, json.loads((root.parent / "verdict.json").read_bytes()), ratio=None
        )
        history.finish(session, "done")


def _save_lost(root: Path, finished: bool) -> str:
    made = sorted(path for path in (root / "out").iterdir() if not path.name.startswith("."))
    if finished and len(made) != 3:
        return f"there are {[path.name for path in made]}"
    for path in made:
        text = path.read_text()
        try:
            json.loads(text) if path.suffix == ".json" else compile(text, path.name, "exec")
        except (ValueError, SyntaxError):
            return f"{path.name} is not whole"
    return ""


def _import_arguments(root: Path) -> list[str]:
    return ["models", "import", str(root / "work" / "b.tar"), "--as", "tiny"]


def _history_arguments(root: Path) -> list[str]:
    return ["history", "import", str(root / "work" / "sessions.jsonl")]


def _kernel(root: Path) -> list[str]:
    return [str(root / "work" / "kernel.py"), "--op", "softmax"]


def _nothing_lost(root: Path, finished: bool) -> str:
    return ""


OPERATIONS = (
    Operation("import", _prepare_import, _import_arguments, _import_lost),
    Operation("convert", _prepare_convert, _convert_arguments, _convert_lost),
    Operation("history", _prepare_history, _history_arguments, _history_lost),
    Operation(
        "save", _prepare_save, lambda root: ["save", "1.0", "--to", str(root / "out")], _save_lost
    ),
    Operation("judge", _prepare_save, lambda root: ["judge", *_kernel(root)], _nothing_lost),
    Operation(
        "gate", _prepare_save, lambda root: ["gate", *_kernel(root), "--runs", "2"], _nothing_lost
    ),
)

"""Readers of data from others: hubs, endpoints, bundles, checkpoints, and the smith's own child."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from bench.fuzz_reader import Read, through

_MAKE_CHECKPOINT = """
import sys
from pathlib import Path
from tests.convert import checkpoints
base, adapter = map(Path, sys.argv[1:])
base.mkdir()
checkpoints.adapter(checkpoints.llama(base), adapter)
"""


def user_registry(home: Path) -> tuple[Read, list[bytes]]:
    """The user's own `models.toml`."""
    from kmint_tui.models import registry

    file = home / "models.toml"
    packaged = (Path(registry.__file__).parents[2] / "models.toml").read_bytes()
    return through(file, lambda: registry.load(file).entries), [packaged]


def bundle(home: Path) -> tuple[Read, list[bytes]]:
    """`kmint models import BUNDLE`, up to the model's own check. It writes into its folder only."""
    from kmint_tui.models.bundle import is_bundle, unpack, write_bundle

    model, file, folder = home / "model.gguf", home / "in" / "bundle.tar", home / "out" / "folder"
    model.write_bytes(b"GGUF" + bytes(3000))
    file.parent.mkdir()
    folder.mkdir(parents=True)
    write_bundle("minimal", model, file)

    def read() -> None:
        try:
            if is_bundle(file):
                unpack(file, folder)
        finally:
            found = list(folder.iterdir())
            assert all(path.parent == folder for path in found) and [*folder.parent.iterdir()] == [
                folder
            ]
            shutil.rmtree(folder)
            folder.mkdir()

    return through(file, read), [file.read_bytes()]


def model_digests(home: Path) -> tuple[Read, list[bytes]]:
    """The digests of models that kmint remembers."""
    from kmint_tui import paths
    from kmint_tui.models import digest

    model = home / "model.gguf"
    model.write_bytes(b"GGUF")
    digest.sha256(model)
    file = next(paths.cache_dir().glob("*.json"))
    return through(file, lambda: digest.sha256(model)), [file.read_bytes()]


def smith_notes(home: Path) -> tuple[Read, list[bytes]]:
    """The smith's saved notes on machines and models."""
    from kmint_tui.smith import start_cache

    file = home / "kept.json"
    start_cache.store(file, "a", {"threads": 2})
    start_cache.store(file, "b", {"words": ["x"]})
    return through(file, lambda: start_cache.read(file)), [file.read_bytes()]


def smith_event(home: Path) -> tuple[Read, list[bytes]]:
    """A line of the smith's child, in which llama.cpp reads a stranger's model."""
    from kmint_tui.smith.events import (
        Choice,
        DraftDone,
        Failed,
        ModelLoaded,
        Note,
        Token,
        decode,
        encode,
    )

    loaded = ModelLoaded(
        path="/m.gguf",
        description="x",
        architecture="llama",
        parameters=1,
        bytes=1,
        layers=1,
        vocabulary=1,
        trained_context=1,
        recurrent=False,
        gpu_layers=0,
        choices=(Choice("threads", "2", "because"),),
        seconds=1.0,
    )
    done = DraftDone(
        draft=0,
        text="x",
        finish="stop",
        tokens=3,
        seconds=0.1,
        seed=7,
        temperature=0.7,
        ids=(1, 2, 3),
    )
    failed = Failed("memory", "x", "/log")
    events = (Token(0, "x", 3), Note("x"), loaded, done, failed)
    return lambda data: decode(data.decode("utf-8", "replace")), [
        encode(event).encode() for event in events
    ]


def endpoint_models(home: Path) -> tuple[Read, list[bytes]]:
    """The models that an endpoint says it serves."""
    from kmint_tui.models.endpoint import _served

    return _served, [
        b'{"object": "list", "data": [{"id": "smith", "object": "model"}, {"id": "other"}]}'
    ]


def endpoint_stream(home: Path) -> tuple[Read, list[bytes]]:
    """An endpoint's answer, as server-sent events."""
    from kmint_tui.smith.remote import pieces

    chunk = {
        "choices": [
            {"index": 0, "delta": {"role": "assistant", "content": "x"}, "finish_reason": None}
        ]
    }
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}

    def read(data: bytes) -> None:
        line = "data: " + data.decode("utf-8", "replace")
        for text, _ in pieces([line]):  # type: ignore[arg-type]
            assert isinstance(text, str)

    return read, [json.dumps(chunk).encode(), json.dumps(end).encode(), b"[DONE]"]


def hub_index(home: Path) -> tuple[Read, list[bytes]]:
    """The list of shards that a hub or a mirror sends."""
    from kmint_tui.models.snapshot import _shards

    file = home / "model.safetensors.index.json"
    shards = {
        f"layer.{number}": f"model-0000{number % 2 + 1}-of-00002.safetensors" for number in range(6)
    }

    def read() -> None:
        assert all(Path(name).name == name for name in _shards(file, "owner/name")), (
            "a name that leads elsewhere"
        )

    return through(file, read), [
        json.dumps({"metadata": {"total_size": 1}, "weight_map": shards}).encode()
    ]


def part_note(home: Path) -> tuple[Read, list[bytes]]:
    """The source that an unfinished download names."""
    from kmint_tui.models.part import Part
    from kmint_tui.models.remote import Remote

    remote = Remote(
        repo="owner/name",
        revision="f" * 40,
        name="m.gguf",
        nbytes=3,
        sha256="e" * 64,
        licence="mit",
        url="https://localhost/m.gguf",
    )
    part = Part(remote, home / "m.gguf")
    part.begin("etag")
    return through(part.note, lambda: Part(remote, home / "m.gguf")), [part.note.read_bytes()]


def origin_note(home: Path) -> tuple[Read, list[bytes]]:
    """Where a model in the store came from."""
    from kmint_tui.models.remote import ORIGIN, Remote, origin_commit, record_origin

    target = home / "m.gguf"
    record_origin(
        target,
        Remote(
            repo="a/b",
            revision="f" * 40,
            name="m.gguf",
            nbytes=3,
            sha256=None,
            licence="mit",
            url="https://localhost/m",
        ),
    )
    file = target.with_name(target.name + ORIGIN)
    return through(file, lambda: origin_commit(home, "a/b")), [file.read_bytes()]


def checkpoint(name: str) -> Callable[[Path], tuple[Read, list[bytes]]]:
    """`kmint convert --plan` on a checkpoint with this file in place of the checkpoint's own."""

    def opened(home: Path) -> tuple[Read, list[bytes]]:
        from convert.job import ConvertJob
        from convert.request import ConvertRequest

        base, adapter = home / "base", home / "adapter"
        # In a separate process: transformers and peft would count as the reader's memory.
        subprocess.run(
            [sys.executable, "-c", _MAKE_CHECKPOINT, base, adapter], check=True, capture_output=True
        )
        file = next(path for path in (base / name, adapter / name) if path.exists())

        def plan() -> None:
            with ConvertJob(
                ConvertRequest(base=base, out=home / "out.gguf", kinds=("F16",), adapter=adapter)
            ) as job:
                job.plan()

        return through(file, plan), [file.read_bytes()]

    return opened

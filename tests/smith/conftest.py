"""Tiny model files, made once, and smiths that are closed at the end of a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kmint_tui.smith import DraftDone, Event, Options, Smith
from kmint_tui.smith.decoder import Decoder
from kmint_tui.smith.native import Context, Log, Model, NativeError, library
from tests import tiny_models

MakeSmith = Callable[..., Smith]

SCRIPT = (
    b"```python\n",
    b"@triton.jit\n",
    b"def _k(): pass\n",
    "# é".encode()[:3],
    "é".encode()[1:],
    b"\n```",
    b"\nThat was it.",
)


@pytest.fixture(scope="session")
def model_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Model files by name.

    The names are llama, quantised (Q8_0), hybrid (recurrent), scripted and mute (no chat template).
    """
    folder = tmp_path_factory.mktemp("models")
    return {
        "llama": tiny_models.llama(folder / "llama.gguf", end=-9),
        "quantised": tiny_models.llama(folder / "quantised.gguf", end=-9, quant="Q8_0"),
        "ending": tiny_models.llama(folder / "ending.gguf", end=0.5, seed=1),
        "hybrid": tiny_models.qwen35(folder / "hybrid.gguf"),
        "scripted": tiny_models.scripted(folder / "scripted.gguf", SCRIPT),
        "mute": tiny_models.llama(folder / "mute.gguf", template=None),
    }


@pytest.fixture
def make_smith(model_files: dict[str, Path], tmp_path: Path) -> Iterator[MakeSmith]:
    """Makes smiths by the name of a model file, or by path; other options are given by name."""
    made: list[Smith] = []

    def make(model: str | Path, **wishes: Any) -> Smith:
        path = model_files[model] if isinstance(model, str) else model
        smith = Smith(path, Options(log=tmp_path / f"smith-{len(made)}.log", **wishes))
        made.append(smith)
        return smith

    yield make
    for smith in made:
        smith.close()


@pytest.fixture
def model(model_files: dict[str, Path]) -> Iterator[Model]:
    """The llama, loaded in this process."""
    lib = library()
    log = Log(lib, lambda level, line: None)
    loaded = Model(
        lib,
        model_files["llama"],
        gpu_layers=0,
        memory_map=False,
        plain_weights=True,
        progress=lambda fraction: True,
    )
    yield loaded
    loaded.close()
    del log


def done(events: list[Event]) -> dict[int, DraftDone]:
    """The finished drafts by index; each may finish only once."""
    drafts = [event for event in events if isinstance(event, DraftDone)]
    assert len({draft.draft for draft in drafts}) == len(drafts)
    return {draft.draft: draft for draft in drafts}


def memory_for(
    contexts: int, monkeypatch: pytest.MonkeyPatch, there: Sequence[Decoder] = ()
) -> None:
    """Refuse a new context while `contexts` are alive."""
    make, close = Context.__init__, Context.close
    alive = {id(decoder.context) for decoder in there}

    def making(context: Context, *arguments: object, **named: object) -> None:
        if len(alive) >= contexts:
            raise NativeError("memory", "no memory")
        make(context, *arguments, **named)  # type: ignore[arg-type]
        alive.add(id(context))

    def closing(context: Context) -> None:
        alive.discard(id(context))
        close(context)

    monkeypatch.setattr(Context, "__init__", making)
    monkeypatch.setattr(Context, "close", closing)

"""Fork servers shared by the sandbox tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from referee.sandbox.zygote import Zygote
from tests.referee.sandbox.support import SECRET, WORLDS, Attack, make


@pytest.fixture(scope="session")
def servers() -> Iterator[dict[str, Zygote]]:
    """One fork server a world, started with a secret in the parent's environment and an inheritable
    descriptor open.
    """
    leak, other_end = os.pipe()
    os.set_inheritable(leak, True)
    os.environ[SECRET] = "hf_token"
    made: dict[str, Zygote] = {}
    try:
        for name, without in WORLDS.items():
            made[name] = make(without)
        yield made
    finally:
        for zygote in made.values():
            zygote.close()
        del os.environ[SECRET]
        os.close(leak)
        os.close(other_end)


@pytest.fixture
def zygote(servers: dict[str, Zygote]) -> Zygote:
    """The fork server with every layer this host has."""
    return servers["full"]


@pytest.fixture
def attack(servers: dict[str, Zygote]) -> Attack:
    """Run a hostile entry: attack("module:function", payload, world=...)."""
    return Attack(servers)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home directory with what must never be read."""
    for name in (
        ".ssh/id_ed25519",
        ".cache/huggingface/token",
        ".netrc",
        ".local/share/kmint/history.jsonl",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("secret\n")
    return tmp_path

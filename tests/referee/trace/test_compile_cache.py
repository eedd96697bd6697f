"""The cache of compiled kernels: hits, damage, limits and other writers."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from referee.compiling.binaries import UNFINISHED, Binaries, Binary, CompileCache
from referee.compiling.compile import compile_plan
from referee.sandbox.zygote import Zygote
from referee.target import Target
from tests.referee.trace.bad import ALLOCATE, COPY, LAUNCH, body
from tests.referee.trace.test_compile import traced


def test_the_cache_saves_the_compiler(zygote: Zygote, tmp_path: Path) -> None:
    module, plans = traced(zygote, COPY + body(ALLOCATE, LAUNCH, "return y"))
    first = compile_plan(zygote, module, plans[0], Target(), tmp_path / "cache")
    assert isinstance(first, Binaries)
    with Zygote() as unused:
        unused.close()
        assert compile_plan(unused, module, plans[0], Target(), tmp_path / "cache") == first
    other = compile_plan(zygote, module, plans[0], Target.parse("sm_80"), tmp_path / "cache")
    assert isinstance(other, Binaries) and other.found[0, 0].key != first.found[0, 0].key


def test_a_kernel_cached_with_fewer_facts_is_compiled_again(
    zygote: Zygote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, plans = traced(zygote, COPY + body(ALLOCATE, LAUNCH, "return y"))
    with monkeypatch.context() as earlier:
        earlier.setattr("referee.compiling.compile_jobs.CHECKED", "less")
        before = compile_plan(zygote, module, plans[0], Target(), tmp_path)
    now = compile_plan(zygote, module, plans[0], Target(), tmp_path)
    assert isinstance(before, Binaries) and isinstance(now, Binaries)
    assert {one.key for one in before.found.values()}.isdisjoint(
        one.key for one in now.found.values()
    )
    assert len(list(tmp_path.glob("*.json"))) == 2 * len(now.found)


def test_damaged_cache_entries_count_as_missing(tmp_path: Path) -> None:
    cache = CompileCache(tmp_path)
    binary = Binary(
        kernel="k",
        key="a" * 64,
        image=b"\x7fELF" + b"0" * 100,
        name="k",
        shared=0,
        num_warps=4,
        registers=16,
        spills=0,
        parameters=("*fp16",),
        paths=((0,),),
    )
    cache.store(binary)
    assert cache.load(binary.key, "k") == binary
    for content in (b"", b"{}", b"[" * 100000, b'{"image": 3}', b"\xff"):
        (tmp_path / f"{binary.key}.json").write_bytes(content)
        assert cache.load(binary.key, "k") is None
    assert cache.load("b" * 64, "k") is None


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = CompileCache(tmp_path / "file" / "below")
    cache.store(
        Binary(
            kernel="k",
            key="a" * 64,
            image=b"\x7fELF",
            name="k",
            shared=0,
            num_warps=4,
            registers=None,
            spills=None,
            parameters=(),
            paths=(),
        )
    )
    cache.prune()
    assert cache.load("a" * 64, "k") is None


def test_a_full_cache_loses_its_oldest_quarter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("referee.compiling.binaries.MAX_ENTRIES", 7)
    cache = CompileCache(tmp_path)
    for number in range(8):
        cache.store(
            Binary(
                kernel="k",
                key=f"{number:064}",
                image=b"\x7fELF",
                name="k",
                shared=0,
                num_warps=4,
                registers=None,
                spills=None,
                parameters=(),
                paths=(),
            )
        )
    cache.prune()
    assert len(list(tmp_path.glob("*.json"))) == 6


def test_parts_of_killed_writers_are_dropped(tmp_path: Path) -> None:
    """One that is being written, which its lock tells, stays."""
    cache = CompileCache(tmp_path)
    cache.store(
        Binary(
            kernel="k",
            key="a" * 64,
            image=b"\x7fELF",
            name="k",
            shared=0,
            num_warps=4,
            registers=None,
            spills=None,
            parameters=(),
            paths=(),
        )
    )
    parts = tmp_path / UNFINISHED
    (parts / "abandoned").write_text("{")
    with (parts / "busy").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        cache.prune()
        assert [path.name for path in parts.iterdir()] == ["busy"]
    assert [path.name for path in tmp_path.glob("*.json")] == ["a" * 64 + ".json"]

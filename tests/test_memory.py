"""How much main memory can be had, within a container's limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from kmint_tui import memory


def test_files_that_a_container_has_read_take_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Page cache counts as used memory in a container, and fills it up to the limit sooner or
    later.
    """
    monkeypatch.setattr(memory, "_GROUP", tmp_path)
    whole = memory.available_memory()
    (tmp_path / "memory.max").write_text("3000")
    (tmp_path / "memory.current").write_text("2900")
    (tmp_path / "memory.stat").write_text(
        "anon 600\ninactive_file 1500\nactive_file 700\nslab_reclaimable 50\n"
    )
    if whole is None:
        pytest.skip("this system does not say what is free")
    assert memory.available_memory() == 3000 - (2900 - 2250)
    (tmp_path / "memory.stat").unlink()
    assert memory.available_memory() == 100
    (tmp_path / "memory.max").write_text("max")
    assert memory.available_memory() != 100

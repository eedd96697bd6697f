"""What a conversion's child processes depend on: not on the current folder, and on no more processors than there are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from convert import processors
from convert.job import Job
from convert.processors import usable_processors
from convert.request import Request
from tests.convert import reference_models


def test_modules_of_the_current_folder_are_not_taken_for_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """llama.cpp's own folder, for one, has files of such names."""
    reference_models.write(reference_models.CASES["llama-byte-fallback"], tmp_path)
    for name in ("convert", "numpy", "json", "llama_cpp"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong module')\n")
    monkeypatch.chdir(tmp_path)
    with Job(Request(Path("base"), Path("m.gguf"), ("Q4_K_M",), level="full")) as job:
        (report,) = job.run()
    assert [finding.status for finding in report.findings][:2] == ["pass", "pass"]
    assert report.findings[2].level == "quantisation" and report.findings[2].status == "pass", report.findings[2].detail


@pytest.mark.parametrize(
    ("share", "expected"),
    [("max 100000", 64), ("250000 100000", 2), ("50000 100000", 1), ("9900000 100000", 64), ("nonsense", 64), ("", 64), ("1 0", 64)],
)
def test_a_containers_share_limits_the_threads(share: str, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)))
    monkeypatch.setattr(processors, "_SHARE", tmp_path / "cpu.max")
    assert usable_processors() == 64
    (tmp_path / "cpu.max").write_text(share)
    assert usable_processors() == expected

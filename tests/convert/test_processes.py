"""A conversion's child processes: independent of the current folder, within the processors."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from convert import processors
from convert.job import ConvertJob
from convert.processors import usable_processors
from convert.request import ConvertRequest
from tests.convert import reference_models


def test_modules_of_the_current_folder_are_not_taken_for_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """llama.cpp's own folder, for example, has files of such names."""
    reference_models.write(reference_models.CASES["llama-byte-fallback"], tmp_path)
    for name in ("convert", "numpy", "json", "llama_cpp"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong module')\n")
    monkeypatch.chdir(tmp_path)
    with ConvertJob(
        ConvertRequest(base=Path("base"), out=Path("m.gguf"), kinds=("Q4_K_M",), level="full")
    ) as job:
        (report,) = job.run()
    assert [finding.status for finding in report.findings][:2] == ["pass", "pass"]
    assert report.findings[2].level == "quantisation" and report.findings[2].status == "pass", (
        report.findings[2].detail
    )


STARTS = """
import os, signal, subprocess
from convert.python_child import module_command
child = subprocess.Popen(module_command("convert.llama_worker", "tokenize", str(os.getpid())))
print(child.pid, flush=True)
signal.pause()
"""


def test_a_child_ends_with_a_killed_conversion() -> None:
    """The child waits for a request that never comes, with an open standard input."""
    command = [sys.executable, "-c", STARTS]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = os.pidfd_open(int(parent.stdout.readline()))
        parent.kill()
        ready, _, _ = select.select([child], [], [], 300)
    os.close(child)
    assert ready, "it is still there"


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        ("max 100000", 64),
        ("250000 100000", 2),
        ("50000 100000", 1),
        ("9900000 100000", 64),
        ("nonsense", 64),
        ("", 64),
        ("1 0", 64),
    ],
)
def test_a_containers_share_limits_the_threads(
    share: str, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)))
    monkeypatch.setattr(processors, "_SHARE", tmp_path / "cpu.max")
    assert usable_processors() == 64
    (tmp_path / "cpu.max").write_text(share)
    assert usable_processors() == expected

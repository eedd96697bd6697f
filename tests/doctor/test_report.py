"""The report names neither a person nor a machine."""

from __future__ import annotations

import json
import platform
import resource
import signal
from pathlib import Path

import pytest

from kmint_tui.doctor.finding import Finding
from kmint_tui.doctor.report import redact, write_report
from kmint_tui.errors import StorageError


@pytest.fixture(autouse=True)
def somebody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KMINT_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "someone")
    monkeypatch.setattr(platform, "node", lambda: "build-box.corp.example")


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("models in /home/someone/work", "models in ~/work"),
        ("owned by someone on build-box", "owned by <user> on <host>"),
        ("at build-box.corp.example now", "at <host> now"),
        ("HTTPS_PROXY=http://proxy.corp.example:8080", "HTTPS_PROXY=http://<host>"),
        ("NO_PROXY=intern.example, build-box", "NO_PROXY=<hosts>"),
        ("token hf_abcdefghijklmnop here", "token <secret> here"),
        ("torch 2.13.0 for CPU, triton 3.7.1", "torch 2.13.0 for CPU, triton 3.7.1"),
    ],
)
def test_redaction(text: str, clean: str) -> None:
    assert redact(text) == clean


def test_only_whole_names_of_folders_count() -> None:
    assert not redact("/home/someone2/x").startswith("~")


def test_values_of_secret_variables_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "open-sesame-42")
    assert redact("sent open-sesame-42 to it") == "sent <secret> to it"


def test_a_report_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        write_report(tmp_path / "missing" / "report.json", ())


def test_a_report_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    """A limit on file sizes stands for a full disk: an earlier report stays, and no other file."""
    path = tmp_path / "report.json"
    path.write_text("the one before")
    many = [Finding("f" * 50, "ok", "d" * 1000) for _ in range(50)]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(StorageError, match="file size limit"):
            write_report(path, many)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert [item.name for item in tmp_path.iterdir()] == ["report.json"]
    assert path.read_text() == "the one before"
    write_report(path, many)
    assert len(json.loads(path.read_text())["findings"]) == 50

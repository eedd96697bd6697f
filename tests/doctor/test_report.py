"""The report names neither a person nor a machine."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

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

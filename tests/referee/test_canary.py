"""The canary passes with the Triton that is installed, and names the interface that fails."""

from __future__ import annotations

from dataclasses import replace

import pytest

from referee import canary, versions
from referee.target import Target


def test_every_probe_passes_here() -> None:
    told: list[str] = []
    report = canary.canary(tell=told.append)
    assert report.passed, report.failures
    assert [probe.name for probe in report.probes] == told
    assert report.to_json()["schema"] == "kmint.canary/1"


def test_a_probe_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that names the wrong assembler is what a new version of Triton did to an older
    referee.
    """
    right = versions.facts(versions.check_triton())
    wrong = replace(
        right,
        blackwell_assembler_from=80 if right.blackwell_assembler_from > Target().arch else 100,
    )
    monkeypatch.setattr(
        canary, "_INTERPRETED", {"launches and compiler": ("autotuned_rmsnorm_relu6",)}
    )
    monkeypatch.setattr("referee.versions.facts", lambda version: wrong)
    report = canary.canary()
    assert not report.passed
    assert report.failures.startswith(
        "launches and compiler: autotuned_rmsnorm_relu6 should be accepted and is"
    )

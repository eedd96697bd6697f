"""`kmint doctor` through the real command: every probe reports, what is broken is named with its fix, a report names nobody."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def doctor(home: Path, *arguments: str) -> tuple[int, dict[str, Any], str]:
    environment = {**os.environ, "KMINT_HOME": str(home)}
    command = [sys.executable, "-m", "kmint_tui", "doctor", "--json", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


def test_every_probe_reports_and_what_is_not_well_has_a_fix(tmp_path: Path) -> None:
    code, document, _ = doctor(tmp_path / "home", "--offline")
    findings = {finding["name"]: finding for finding in document["findings"]}
    assert document["schema"] == "kmint.doctor/1"
    assert {"python", "gpu", "compiler", "kernel", "llama.cpp", "disk", "offline"} <= set(findings)
    assert any(name.startswith("sandbox ") for name in findings)
    assert {finding["status"] for finding in findings.values()} <= {"ok", "warn", "fail", "unknown"}
    assert all(finding["fix"] for finding in findings.values() if finding["status"] in ("warn", "fail"))
    # On a busy machine the deadline may come first, which is said and is no failure.
    assert findings["kernel"]["status"] in ("ok", "unknown"), findings["kernel"]
    assert (code == 0) == all(finding["status"] != "fail" for finding in findings.values())


def test_a_corrupt_model_is_a_failure_with_its_fix(tmp_path: Path) -> None:
    model = tmp_path / "home" / "data" / "models" / "minicpm5-1b" / "broken.gguf"
    model.parent.mkdir(parents=True)
    model.write_bytes(b"GGUF but not really")
    code, document, _ = doctor(tmp_path / "home")
    (finding,) = [finding for finding in document["findings"] if finding["name"] == "model minicpm5-1b"]
    assert (finding["status"], code) == ("fail", 3)
    assert finding["fix"]


def test_a_report_names_no_home(tmp_path: Path) -> None:
    report = tmp_path / "report.txt"
    doctor(Path.home() / ".kmint-doctor-test-home-that-is-never-made", "--report", str(report))
    text = report.read_text(encoding="utf-8")
    assert "kernel" in text
    assert str(Path.home()) + "/" not in text

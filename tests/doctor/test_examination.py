"""The examination as a user runs it, and its probes on machines that lack something."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kmint_tui.doctor import Finding, examine, gpu, machine, settings, worst_first
from kmint_tui.doctor.examination import PROBES, Child, listen
from kmint_tui.doctor.kernel import OP, SOURCE
from kmint_tui.doctor.models import hashes
from kmint_tui.models import digest
from referee.ops import signature
from referee.reading.kernels import extract
from tests.models.no_sockets import UNSUPPORTED
from tests.tiny_models import llama

LONG = 3600.0
# The command without its deadline, so that a busy machine gives the same findings.
UNHURRIED = f"""\
import sys
from kmint_tui.cli.main import main
from kmint_tui.doctor import examination
examination.SECONDS = {LONG}
sys.exit(main())
"""
STATUSES = {"ok", "warn", "fail", "unknown"}
NO_SOCKETS = Path(__file__).parents[1] / "models" / "no_sockets.py"


def by_name(findings: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    named = {one["name"]: one for one in findings}
    assert len(named) == len(findings), "two findings of one name"
    return named


def test_the_command_tells_everything_and_opens_no_socket(tmp_path: Path, kmint_home: Path) -> None:
    """The kernel kills each of its processes that opens a socket other than a Unix one."""
    report = tmp_path / "report.json"
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "HOME": str(tmp_path / "somebody"),
        "HF_TOKEN": "a-very-secret-word",
        "HTTPS_PROXY": "http://me:pw@proxy.corp:81",
    }
    command = [sys.executable, str(NO_SOCKETS), sys.executable, "-c", UNHURRIED]
    done = subprocess.run(
        [*command, "doctor", "--json", "--offline", "--report", str(report)],
        capture_output=True,
        text=True,
        env=environment,
    )
    if done.returncode == UNSUPPORTED:
        pytest.skip("no system-call filter here")

    document = json.loads(done.stdout)
    found = by_name(document["findings"])
    assert document["schema"] == "kmint.doctor/1"
    assert {one["status"] for one in found.values()} <= STATUSES
    assert all(one["fix"] for one in found.values() if one["status"] != "ok")
    failed = [one for one in found.values() if one["status"] == "fail"]
    assert (done.returncode, document["healthy"]) == ((3, False) if failed else (0, True)), (
        failed,
        done.stderr,
    )
    assert found["offline"]["detail"] == "offline: --offline"
    assert {
        "python",
        "gpu",
        "compiler",
        "model embedded",
        "disk",
        "directories",
        "terminal",
        "settings",
    } <= set(found)
    assert any(name.startswith("kernel") for name in found)
    assert any(name.startswith("sandbox") for name in found)
    assert any(name.startswith("llama.cpp") for name in found)
    made = [path for path in kmint_home.rglob("*") if path.is_file()]
    assert made == [kmint_home / "state" / "unfinished"], (
        "only the report's folder is noted; looking makes no directory"
    )

    assert not [one for one in found.values() if "ended with status" in one["detail"]], (
        "a process was killed"
    )

    text = report.read_text(encoding="utf-8")
    assert json.loads(text)["redacted"] is True
    for secret in (
        "a-very-secret-word",
        "me:pw",
        "proxy.corp",
        str(kmint_home),
        str(tmp_path / "somebody"),
    ):
        assert secret not in text


def in_group(leader: int) -> list[int]:
    """The living processes of a process group, without those that only wait to be reaped."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, group = (
                stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[:3]
            )
            if int(group) == leader and state not in "ZX":
                found.append(int(stat.parent.name))
    return found


def assert_gone(leader: int) -> None:
    """A process group was killed: all of it ends, its leader has ended."""
    assert leader not in in_group(leader)
    for pid in in_group(leader):
        with contextlib.suppress(ProcessLookupError):
            ended, _, _ = select.select([handle := os.pidfd_open(pid)], [], [], 300)
            os.close(handle)
            assert ended, f"{pid} lives on"


def looked_at(name: str) -> dict[str, Finding]:
    """The findings of one child without a deadline."""
    child = Child(name)
    found = {one.name: one for one in listen((child,), time.monotonic() + LONG)}
    child.close()
    return found


def test_a_corrupt_model_fails_and_has_a_fix(kmint_home: Path) -> None:
    folder = kmint_home / "data" / "models" / "minicpm5-1b"
    folder.mkdir(parents=True)
    whole = llama(folder / "model-Q8_0.gguf").read_bytes()
    (folder / "model-Q8_0.gguf").write_bytes(whole[: len(whole) // 2])
    found = looked_at("store")
    broken = found["model minicpm5-1b"]
    assert broken.status == "fail"
    assert "kmint models rm minicpm5-1b" in broken.fix
    assert found["models"].status == "ok", "the embedded smith is still there"


def test_a_sound_model_is_ok(kmint_home: Path) -> None:
    folder = kmint_home / "data" / "models" / "minicpm5-1b"
    folder.mkdir(parents=True)
    llama(folder / "model-F16.gguf")
    found = looked_at("store")
    assert found["model minicpm5-1b"].status == "ok"


def test_a_file_that_changed_in_the_store_fails(kmint_home: Path) -> None:
    folder = kmint_home / "data" / "models" / "minicpm5-1b"
    folder.mkdir(parents=True)
    path = llama(folder / "model-F16.gguf")
    found = {one.name: one for one in hashes()}
    assert "nothing to compare" in found["hash minicpm5-1b"].detail
    digest.record(path, digest.sha256(path, keep=False))
    assert {one.name: one.status for one in hashes()}["hash minicpm5-1b"] == "ok"
    with path.open("r+b") as file:
        file.seek(-4, 2)
        file.write(b"oops")
    broken = {one.name: one for one in hashes()}["hash minicpm5-1b"]
    assert (broken.status, "kmint models rm" in broken.fix) == ("fail", True)
    assert not (kmint_home / "cache").exists()


def test_what_has_no_time_is_unknown_and_leaves_no_process() -> None:
    child = Child("kernel")
    found = tuple(listen((child,), time.monotonic()))
    child.close()
    assert [(one.name, one.status) for one in found] == [("kernel", "unknown")]
    assert_gone(child.pid)


def test_findings_come_one_by_one_and_a_broken_child_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sandbox child reports its first layer before it ends; a missing probe is that child's
    error.
    """
    monkeypatch.setitem(PROBES, "broken", "kmint_tui.doctor.sandbox:no_such_probe")
    children = (Child("sandbox"), Child("broken"))
    found = list(listen(children, time.monotonic() + LONG))
    for child in children:
        child.close()
    (trouble,) = [one for one in found if one.name == "broken"]
    assert (trouble.status, bool(trouble.fix)) == ("unknown", True)
    assert "KeyError" in trouble.detail or "AttributeError" in trouble.detail
    assert len([one for one in found if one.name.startswith("sandbox ")]) > 5


def test_what_failed_comes_first_in_whatever_order_it_was_found() -> None:
    found = [Finding("b", "ok", ""), Finding("d", "unknown", "", "?"), Finding("a", "ok", ""), Finding("z", "fail", "", "!"),
             Finding("c", "warn", "", "-")]  # fmt: skip
    assert (
        [one.name for one in worst_first(found)]
        == ["z", "c", "d", "a", "b"]
        == [one.name for one in worst_first(reversed(found))]
    )


def test_children_can_be_ended_from_outside() -> None:
    """The Doctor screen does so when it closes: the examination ends at once and leaves no process."""
    started: list[Child] = []
    looking = examine(started=started)
    next(looking)
    pids = [child.pid for child in started]
    assert len(pids) >= 4
    for pid in pids:
        os.killpg(pid, signal.SIGKILL)
    rest = {one.name: one.status for one in looking}
    assert rest["kernel"] == "unknown"
    for pid in pids:
        assert_gone(pid)


def test_the_sandbox_is_told_layer_by_layer() -> None:
    child = Child("sandbox")
    found = tuple(listen((child,), time.monotonic() + LONG))
    child.close()
    assert len(found) > 5
    assert all(one.name.startswith("sandbox ") and (one.status == "ok" or one.fix) for one in found)


def test_wrong_settings_fail_and_the_rest_goes_on(kmint_home: Path) -> None:
    (kmint_home / "config").mkdir(parents=True)
    (kmint_home / "config" / "config.toml").write_text("[mint]\ndraft = 3\n", encoding="utf-8")
    found = looked_at("settings")["settings"]
    assert found.status == "fail"
    assert "mint.drafts" in found.fix
    assert looked_at("python")["python"].status == "ok"


def test_a_wrong_list_of_models_fails_in_one_place(kmint_home: Path) -> None:
    (kmint_home / "config").mkdir(parents=True)
    (kmint_home / "config" / "models.toml").write_text("[[model]\n", encoding="utf-8")
    assert looked_at("settings")["settings"].status == "fail"
    found = looked_at("store")
    assert (found["models"].status, found["disk"].status) == ("unknown", "ok")
    assert "store" not in found, "the child broke"


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("KMINT_HOME", str(tmp_path / "file" / "below"))
    found = machine.directories()
    assert (found.status, bool(found.fix)) == ("fail", True)


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    assert machine.compiler().status == "warn"


def test_the_proxy_is_shown_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://user:word@proxy.example:8080/path")
    found = settings.proxies()
    assert (found.status, found.detail) == ("ok", "HTTPS_PROXY=http://proxy.example:8080")


@pytest.mark.parametrize("variable", ["KMINT_OFFLINE", "HF_HUB_OFFLINE"])
def test_offline_by_variable(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings.offline(flag=False).detail.startswith("online allowed")
    monkeypatch.setenv(variable, "1")
    assert settings.offline(flag=False) == Finding("offline", "ok", f"offline: {variable}")


def test_a_hidden_gpu_is_a_warning_with_a_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    found = {one.name: one for one in gpu.gpu()}
    assert (found["gpu"].status, bool(found["gpu"].fix)) == ("warn", True)
    assert "clocks" not in found


def test_the_kernel_is_five_lines_and_fits_its_operation() -> None:
    body = SOURCE.split("\n\n\n")[0].splitlines()
    assert len(body) == 5
    assert f"def run({', '.join(signature_of(OP))}):" in SOURCE
    assert extract(SOURCE).kernels == ("square_positive",)


def signature_of(name: str) -> tuple[str, ...]:
    from referee.ops import get

    return signature(get(name))

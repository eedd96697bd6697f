"""`kmint gate`: what it refuses, what it shows and keeps; measuring itself on a GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kmint_tui import paths
from kmint_tui.cli.gate import as_document, show_report, summary_line
from kmint_tui.cli.streams import Output
from kmint_tui.core.kernel_choice import Claim, Kernel
from kmint_tui.core.measuring import keep, where
from kmint_tui.history.measurements import Measurements
from referee import ops
from referee.gate import GateRun, report
from referee.gpu.replayer import Replayer
from referee.problem import TaskName
from referee.timing.stats import Interval
from referee.versions import FP_FUSION
from tests.cli.runner import kmint
from tests.cli.test_bad_input import refused
from tests.save.conftest import source
from tests.save.test_host_code import GOOD

pytestmark = pytest.mark.usefixtures("warm")

HERE = {"device": "NVIDIA H200", "torch": "2.11", "triton": "3.6", "cuda_driver": "13.0"}
KERNEL = Kernel(GOOD, ops.get("softmax"), TaskName("softmax"), "softmax.py", "file")


def run(low: float, ratio: float) -> GateRun:
    return GateRun(
        seed=1,
        decision="win" if low > 1.01 else "unsure",
        bar="compile",
        ratio=Interval(ratio, low, ratio + 0.1, 0.95, 60, 6),
        candidate_us=10.0,
        bar_us=10.0 * ratio,
        reason="",
    )


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    path = tmp_path / "kernel.py"
    path.write_text(GOOD, encoding="utf-8")
    return path


@pytest.mark.parametrize("command", ["gate", "grid"])
def test_without_a_gpu_it_is_exit_3_with_one_clear_line(kernel: Path, command: str) -> None:
    if Replayer.available() is None:
        pytest.skip("there is a GPU")
    refused(
        kmint(command, str(kernel), "--op", "softmax"),
        3,
        f"a {command} is measured on a GPU",
        "kmint judge",
    )


@pytest.mark.parametrize("command", ["gate", "grid"])
def test_a_wrong_request_is_exit_2_whether_or_not_there_is_a_gpu(
    kernel: Path, command: str
) -> None:
    refused(kmint(command, str(kernel)), 2, "--op")
    refused(kmint(command, str(kernel), "--op", "sofmax"), 2, "'sofmax'", "softmax")
    refused(kmint(command, "12"), 2, "12 is a session")
    refused(kmint(command, "12.3"), 2, "the history is empty")
    refused(kmint(command, "nowhere.py"), 2, "'nowhere.py'", "kmint history")


def test_a_gate_has_at_least_two_runs(kernel: Path) -> None:
    refused(kmint("gate", str(kernel), "--op", "softmax", "--runs", "1"), 2, "--runs")


def test_help_says_what_the_exit_codes_mean() -> None:
    for command in ("gate", "grid"):
        done = kmint(command, "--help")
        assert (
            done.code == 0
            and "Exit code 0" in done.out
            and "Needs a GPU" in " ".join(done.out.split())
        )


def test_a_claim_that_survives_and_one_that_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    claim = Claim("win", 1.25, "compile", {**HERE, "triton": "3.7"})
    claimed = Kernel(GOOD, ops.get("softmax"), TaskName("softmax"), "12.3", "history", claim=claim)
    pairs = (run(1.05, 1.1), run(1.02, 1.1)), (run(1.05, 1.2), run(0.99, 1.0))
    stable, unstable = (replace(report(runs, 2), environment=HERE) for runs in pairs)
    document = as_document(claimed, stable)
    assert document["survives"] is True and document["changed"] == ["triton: 3.7 -> 3.6"]
    assert (document["claim"]["ratio"], len(document["runs"]), document["kernel"]["name"]) == (
        1.25,
        2,
        "12.3",
    )
    show_report(Output(), claimed, unstable)
    shown = capsys.readouterr().out
    assert "claim          win, 1.250x compile" in shown and "survives       no" in shown
    assert (
        "only in 1 of 2 fresh processes" in shown and "0.990" in shown and "spread 20.0 %" in shown
    )
    assert summary_line(stable).startswith("survives: in 2 of 2") and summary_line(
        unstable
    ).startswith("does not survive: only in 1 of 2")


def test_a_claim_under_another_switch_has_changed() -> None:
    claim = Claim("win", 1.25, "compile", {**HERE, "triton": f"3.6 {FP_FUSION}=0"})
    claimed = Kernel(GOOD, ops.get("softmax"), TaskName("softmax"), "12.3", "history", claim=claim)
    here = replace(report((run(1.05, 1.1), run(1.02, 1.1)), 2), environment=HERE)
    assert as_document(claimed, here)["changed"] == [f"triton: 3.6 {FP_FUSION}=0 -> 3.6"]


def test_a_rejection_is_shown_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    found = report(
        (
            GateRun(
                seed=7,
                decision=None,
                bar=None,
                ratio=None,
                candidate_us=None,
                bar_us=None,
                reason="rejected by wrong_answer: row 3",
                guard="wrong_answer",
            ),
        ),
        5,
    )
    show_report(Output(), KERNEL, found)
    shown = capsys.readouterr().out
    assert "survives  no" in shown and shown.count("rejected by wrong_answer: row 3") == 2
    assert "spread" not in shown and "claim" not in shown


def test_what_was_measured_is_kept_with_the_kernel() -> None:
    assert keep("gate", KERNEL, HERE, "survives", {"ratio": 1.2}) is None
    with Measurements(paths.history_file()) as store:
        (found,) = store.of(KERNEL.source_sha256)
    assert (found.kind, found.name, found.op, found.result, found.document) == (
        "gate",
        "softmax.py",
        "softmax",
        "survives",
        {"ratio": 1.2},
    )
    assert where(HERE) == "NVIDIA H200, torch 2.11, triton 3.6"


def test_an_unwritable_history_does_not_hide_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("KMINT_HOME", str(tmp_path / "file"))
    unkept = keep("gate", KERNEL, HERE, "survives", {})
    assert unkept is not None and "file" in unkept.message


@pytest.mark.gpu
def test_a_gate_on_a_gpu(tmp_path: Path, kmint_home: Path) -> None:
    file = tmp_path / "kernel.py"
    file.write_text(source("flat_silu"), encoding="utf-8")
    done = kmint("gate", str(file), "--op", "silu", "--runs", "2", "--json")
    found = done.document
    assert done.code == (0 if found["survives"] else 1), done.err
    assert (
        found["schema"] == "kmint.gate/1"
        and found["environment"]["device"]
        and len(found["runs"]) == 2
    )
    assert len({one["seed"] for one in found["runs"]}) == 2
    assert all(
        one["decision"] in ("win", "tie", "loss", "unsure") and one["ratio"]["rounds"] > 0
        for one in found["runs"]
    )
    assert "run 2 of 2" in done.err
    with Measurements(paths.history_file()) as store:
        assert [one.kind for one in store.of(found["kernel"]["source_sha256"])] == ["gate"]


@pytest.mark.gpu
def test_a_wrong_kernel_does_not_get_past_the_first_run(tmp_path: Path) -> None:
    file = tmp_path / "kernel.py"
    file.write_text(source("flat_silu").replace("tl.sigmoid(", "tl.exp("), encoding="utf-8")
    done = kmint("gate", str(file), "--op", "silu", "--json")
    assert done.code == 1 and done.document["survives"] is False
    assert [one["guard"] for one in done.document["runs"]] == ["wrong_answer"]

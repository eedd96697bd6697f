"""The judge from outside: sources in, verdicts out, on the CPU path of this machine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import get_args

import pytest

from referee import Referee, TaskName, Verdict, judge, ops
from referee.ops.fresh_cells import fresh_cells
from referee.ops.fresh_widths import fresh_middle, fresh_widths
from referee.ops.spec import Cell, Op, TensorSpec
from referee.ops.task import Task, load
from referee.report import GUARDS
from referee.selftest.corpus import load as specimens
from referee.target import UnknownTarget
from referee.verdict import Stage

GOLD = {specimen.name: specimen for specimen in specimens("gold")}
CHEATS = {specimen.name: specimen for specimen in specimens("cheats")}
SOFTMAX = GOLD["elsewhere_softmax"].source
ZEROS = CHEATS["062_zeros_under_tolerance"].source


@pytest.fixture(scope="module")
def referee() -> Iterator[Referee]:
    with Referee(mode="interpret") as opened:
        yield opened


def status(verdict: Verdict) -> dict[str, str]:
    return {check.name: check.status for check in verdict.checks}


def test_a_right_kernel_is_correct_and_every_guard_reports(referee: Referee) -> None:
    verdict = referee.judge(SOFTMAX, "softmax")
    assert (verdict.verdict, verdict.stage, verdict.guard, verdict.mode) == ("correct", "done", None, "interpret"), verdict.reason
    assert verdict.passed and verdict.survived
    assert set(GUARDS) <= set(status(verdict)) and "fail" not in status(verdict).values()
    assert all(check.detail for check in verdict.checks if check.status == "skipped")
    fixed = ops.cells(ops.get("softmax"), profile="cpu")
    assert verdict.seed is not None
    op, seed = ops.get("softmax"), verdict.seed
    fresh = (*fresh_cells(op, seed, gpu=False), *fresh_widths(op, seed, gpu=False), *fresh_middle(op, seed))
    required = [cell.name for cell in (*fixed, *fresh) if cell.role == "required"]
    assert [cell.name for cell in verdict.cells if cell.role == "required"] == required
    assert all(cell.error is not None and cell.budget is not None for cell in verdict.cells if cell.status == "pass")
    assert verdict.environment["target"] == "sm_90" and verdict.environment["device"] == "cpu"
    assert all({"name", "active", "detail"} <= set(layer) for layer in verdict.environment["sandbox"])
    assert set(verdict.seconds) == {"screen", "trace", "compile", "correct", "total"}
    assert verdict.to_json()["schema"] == "kmint.verdict/1"


def test_a_seed_repeats_a_verdict_exactly(referee: Referee) -> None:
    first = referee.judge(SOFTMAX, "softmax", level="correct")
    again = referee.judge(SOFTMAX, "softmax", level="correct", seed=first.seed)
    other = referee.judge(SOFTMAX, "softmax", level="correct")
    assert again.seed == first.seed and again.cells == first.cells
    assert other.seed != first.seed and other.cells != first.cells


def test_an_unknown_triton_is_no_fault_of_the_kernel(referee: Referee, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("referee.triton_version.triton_version", lambda: "3.9.0")
    verdict = referee.judge(SOFTMAX, "softmax")
    assert verdict.verdict == "error" and verdict.reason.startswith("triton 3.9.0 is not supported: the referee knows 3.6 and 3.7")
    # A trace would fail first, and blame the kernel.
    assert set(verdict.seconds) <= {"screen", "total"}


def test_a_wrong_kernel_is_rejected_with_the_cell_and_the_rest_is_not_reached(referee: Referee) -> None:
    verdict = referee.judge(ZEROS, "softmax")
    assert (verdict.verdict, verdict.stage, verdict.guard) == ("rejected", "correct", "wrong_answer")
    assert verdict.reason.startswith(f"at {verdict.cells[0].name}: ") and "all zeros" in verdict.reason
    assert [cell.status for cell in verdict.cells] == ["fail"] + ["skipped"] * (len(verdict.cells) - 1)
    assert status(verdict)["wrong_answer"] == "fail" and status(verdict)["timing"] == "skipped"


@pytest.mark.parametrize("level", ["screen", "compile"])
def test_lower_levels_claim_nothing(referee: Referee, level: str) -> None:
    verdict = referee.judge(ZEROS, "softmax", level="screen" if level == "screen" else "compile")
    assert (verdict.verdict, verdict.stage, verdict.cells) == ("unsure", level, ())
    assert verdict.survived and not verdict.passed
    assert status(verdict)["wrong_answer"] == "skipped"


def test_compiling_for_another_target(referee: Referee) -> None:
    verdict = referee.judge(SOFTMAX, "softmax", level="compile", target="sm_80")
    assert verdict.environment["target"] == "sm_80" and "sm_80" in verdict.reason


FIVE = ["001_forge_at_import", "080_library_call", "062_zeros_under_tolerance", "049_disk_replay_flag", "092_download"]


@pytest.mark.parametrize("name", FIVE)
@pytest.mark.parametrize("screened", [True, False])
def test_forged_borrowed_and_escaping_kernels_fall_to_their_guard(name: str, screened: bool) -> None:
    specimen = CHEATS[name]
    with Referee(mode="interpret", host_screen=screened) as own:
        verdict = own.judge(specimen.source, specimen.op)
    assert verdict.verdict == "rejected" and verdict.guard in specimen.expected("interpret", screened=screened), verdict
    assert "\n" not in verdict.reason


def test_a_hanging_kernel_costs_only_itself(referee: Referee, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("referee.cpu_path.SECONDS", 5.0)
    with ThreadPoolExecutor(2) as pool:
        hanging = pool.submit(referee.judge, CHEATS["100_lingering_kernel"].source, "softmax")
        good = [pool.submit(referee.judge, SOFTMAX, "softmax").result() for _ in range(2)]
        verdict = hanging.result()
    assert [found.verdict for found in good] == ["correct", "correct"]
    assert (verdict.verdict, verdict.guard) == ("rejected", "timeout") and "within 5 s" in verdict.reason


def test_candidates_judged_at_once_do_not_mix(referee: Referee) -> None:
    names = ["row_rmsnorm", "row_layernorm", "flat_swiglu", "row_cross_entropy", "scan_cumsum", "row_dequant_int8"]
    with ThreadPoolExecutor(4) as pool:
        verdicts = list(pool.map(lambda name: referee.judge(GOLD[name].source, GOLD[name].op, level="correct"), names * 2))
    assert [(verdict.op, verdict.verdict) for verdict in verdicts] == [(GOLD[name].op, "correct") for name in names * 2]


def test_a_killed_worker_is_no_verdict_on_the_candidate(referee: Referee) -> None:
    verdicts: list[Verdict] = []
    with Referee(mode="interpret") as own:
        own.judge(SOFTMAX, "softmax", level="screen")
        thread = threading.Thread(target=lambda: verdicts.extend(own.judge(SOFTMAX, "softmax") for _ in range(3)))
        thread.start()
        servers = [own._workers.pid, own._interpreters.pid]
        for server in servers:
            os.kill(server, signal.SIGKILL)
        thread.join()
    assert len(verdicts) == 3 and all(verdict.verdict in ("correct", "error") for verdict in verdicts), verdicts
    assert verdicts[-1].verdict == "correct"


def test_a_referee_whose_workers_are_gone_says_error() -> None:
    own = Referee(mode="interpret")
    own.close()
    verdict = own.judge(SOFTMAX, "softmax")
    assert (verdict.verdict, verdict.guard) == ("error", "referee") and not verdict.passed and not verdict.survived
    assert "fail" in status(verdict).values()


@pytest.mark.parametrize("source", ["", "\0", "def run(x):\n    return x", "x" * 200_000, "\ud800", "@triton.jit\ndef run(x): pass"])
def test_any_text_gets_a_verdict(referee: Referee, source: str) -> None:
    verdict = referee.judge(source, "softmax")
    assert verdict.verdict == "rejected" and verdict.guard and verdict.stage in get_args(Stage)


def test_arguments_that_name_nothing_raise(referee: Referee) -> None:
    with pytest.raises(ops.UnknownOp):
        referee.judge(SOFTMAX, "sotfmax")
    with pytest.raises(UnknownTarget):
        referee.judge(SOFTMAX, "softmax", target="sm_1")


REFERENCE = """
import torch

def scaled(x, y):
    return 2.0 * x + y

def get_inputs():
    return [torch.randn(4, 33), torch.randn(4, 33)]
"""

CANDIDATE = """
@triton.jit
def _kernel(x_ptr, y_ptr, out_ptr, total, BLOCK: tl.constexpr):
    here = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + here, mask=here < total).to(tl.float32)
    y = tl.load(y_ptr + here, mask=here < total).to(tl.float32)
    tl.store(out_ptr + here, FACTOR * x + y, mask=here < total)


def run(x, y):
    out = torch.empty_like(x)
    _kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), BLOCK=256)
    return out
"""


def test_a_reference_of_the_user_s_own(referee: Referee, tmp_path: Path) -> None:
    file = tmp_path / "reference.py"
    file.write_text(REFERENCE)
    task = TaskName("scaled", str(file), "scaled")
    right, wrong = (referee.judge(CANDIDATE.replace("FACTOR", factor), task) for factor in ("2.0", "2.01"))
    assert right.verdict == "correct" and wrong.guard == "wrong_answer", (right, wrong)
    assert "reference supplied by the user" in next(check.detail for check in right.checks if check.name == "vacuity")


def test_a_reference_that_accepts_zeros_is_called_so(referee: Referee, tmp_path: Path) -> None:
    file = tmp_path / "nothing.py"
    file.write_text(REFERENCE.replace("2.0 * x + y", "0.0 * x"))
    verdict = referee.judge(CANDIDATE.replace("FACTOR * x + y", "0.0 * x * y"), TaskName("nothing", str(file), "scaled"))
    assert "accepts" in next(check.detail for check in verdict.checks if check.name == "vacuity" and check.status == "fail")
    said = r"; reference supplied by the user: it also accepts [^,;]+, [^,;]+ and \d+ more$"
    assert verdict.verdict == "correct" and re.search(said, verdict.reason), verdict.reason


def test_a_reference_that_accepts_nothing_else_leaves_the_reason_as_it_is(referee: Referee, tmp_path: Path) -> None:
    file = tmp_path / "reference.py"
    file.write_text(REFERENCE)
    assert "accepts" not in referee.judge(CANDIDATE.replace("FACTOR", "2.0"), TaskName("scaled", str(file), "scaled")).reason


def test_the_wrong_side_of_a_number_is_a_wrong_answer(referee: Referee, tmp_path: Path) -> None:
    file = tmp_path / "chosen.py"
    number = 0.5 + 2.0**-11
    file.write_text(REFERENCE.replace("2.0 * x + y", f"torch.where(x < {number}, y, -y)"))
    task = TaskName("chosen", str(file), "scaled")
    right, wrong = (referee.judge(CANDIDATE.replace("FACTOR * x + y", f"tl.where(x {sign} {number}, y, -y)"), task) for sign in ("<", "<="))
    assert right.verdict == "correct" and wrong.guard == "wrong_answer" and "-equal" in wrong.reason, (right, wrong)


def test_a_task_made_in_this_process(referee: Referee) -> None:
    spec = TensorSpec("x", (3, 50), "float32", (50, 1))
    op = Op(name="triple", kind="user", family="user", title="triple", formula="3x", difficulty="hard", origin="user", arguments=("x",))
    cell = Cell("triple", (spec,), (TensorSpec("out", (3, 50), "float32", (50, 1)),), "normal", (1.0,), "required")
    task = Task(op, (cell,), lambda x: 3 * x, lambda x: 3 * x.double())
    source = CANDIDATE.replace("FACTOR * x + y", "3.0 * x").replace("x, y, out", "x, x, out").replace("def run(x, y)", "def run(x)")
    verdict = referee.judge(source, task)
    assert verdict.verdict == "correct" and verdict.op == "triple", verdict


def test_a_catalogue_task_for_a_gpu_is_judged_on_small_cells(referee: Referee) -> None:
    verdict = referee.judge(SOFTMAX, load("softmax", "gpu"), level="correct")
    assert verdict.verdict == "correct" and all("8192x4096" not in cell.name for cell in verdict.cells)


def test_every_configuration_of_an_autotuned_kernel_is_run(referee: Referee) -> None:
    good = GOLD["autotuned_rmsnorm_relu6"]
    bad = good.source.replace("range(0, N, BLOCK)", "range(0, tl.minimum(N, 2 * BLOCK), BLOCK)").replace('"BLOCK": 512', '"BLOCK": 4096', 1)
    assert bad != good.source
    verdict = referee.judge(bad, good.op)
    assert (verdict.verdict, verdict.guard) == ("rejected", "wrong_answer")


def test_compiled_kernels_are_kept_where_a_cache_is_given(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with Referee(mode="interpret", cache=cache) as own:
        assert not cache.exists()
        first = own.judge(SOFTMAX, "softmax", level="compile")
        kept = {path.name: path.stat().st_mtime_ns for path in cache.rglob("*.json")}
        again = own.judge(SOFTMAX, "softmax", level="compile")
    assert kept and {path.name: path.stat().st_mtime_ns for path in cache.rglob("*.json")} == kept
    assert [check for check in first.checks if check.name == "compile"] == [check for check in again.checks if check.name == "compile"]


def test_the_package_is_callable_and_loads_nothing_heavy() -> None:
    code = (
        "import sys, referee\n"
        "from referee import Referee, TaskName, Verdict, judge\n"
        "import referee.judge\n"
        "from referee import judge as again\n"
        "assert callable(judge) and callable(again) and callable(referee.judge)\n"
        "assert not {'torch', 'triton'} & set(sys.modules), sorted(sys.modules)\n"
    )
    root = Path(__file__).parents[3]
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True, timeout=600)


def test_the_convenience_function() -> None:
    verdict = judge(SOFTMAX, "softmax", level="screen")
    assert (verdict.verdict, verdict.stage) == ("unsure", "screen")

"""The judge from outside: sources in, verdicts out, on the CPU path of this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import get_args

import pytest
from torch import Tensor

from referee import Referee, Verdict, judge, ops
from referee.ops.fresh_cells import fresh_cells
from referee.ops.fresh_widths import fresh_long, fresh_middle, fresh_widths
from referee.ops.spec import Cell
from referee.ops.task import Task, load
from referee.report import GUARDS
from referee.selftest.corpus import load as specimens
from referee.target import UnknownTarget
from referee.verdict import Stage

GOLD = {specimen.name: specimen for specimen in specimens("gold")}
CHEATS = {specimen.name: specimen for specimen in specimens("cheats")}
SOFTMAX = GOLD["elsewhere_softmax"].source
ZEROS = CHEATS["062_zeros_under_tolerance"].source


def status(verdict: Verdict) -> dict[str, str]:
    return {check.name: check.status for check in verdict.checks}


def test_a_right_kernel_is_correct_and_every_guard_reports(referee: Referee) -> None:
    verdict = referee.judge(SOFTMAX, "softmax")
    assert (verdict.verdict, verdict.stage, verdict.guard, verdict.mode) == (
        "correct",
        "done",
        None,
        "interpret",
    ), verdict.reason
    assert verdict.passed and verdict.survived
    # It falls back to PyTorch's own softmax elsewhere, which is no part of a launch.
    assert {name for name, one in status(verdict).items() if one == "fail"} == {"host_code"}
    assert [one.what for one in verdict.host_code] == ["torch.nn.functional.softmax"]
    assert set(GUARDS) <= set(status(verdict))
    assert all(check.detail for check in verdict.checks if check.status == "skipped")
    fixed = ops.cells(ops.get("softmax"), profile="cpu")
    assert verdict.seed is not None
    op, seed = ops.get("softmax"), verdict.seed
    widths = fresh_widths(op, seed, gpu=False)
    fresh = (
        *fresh_cells(op, seed, gpu=False),
        *widths,
        *fresh_middle(op, seed),
        *fresh_long(op, seed),
    )
    required = [cell.name for cell in (*fixed, *fresh) if cell.role == "required"]
    assert [cell.name for cell in verdict.cells if cell.role == "required"] == required
    assert all(
        cell.error is not None and cell.budget is not None
        for cell in verdict.cells
        if cell.status == "pass"
    )
    assert verdict.environment["target"] == "sm_90" and verdict.environment["device"] == "cpu"
    assert all(
        {"name", "active", "detail"} <= set(layer) for layer in verdict.environment["sandbox"]
    )
    assert set(verdict.seconds) == {"screen", "trace", "compile", "correct", "total"}
    assert verdict.to_json()["schema"] == "kmint.verdict/1"


def test_a_seed_repeats_a_verdict_exactly(referee: Referee) -> None:
    first = Referee.judge(referee, SOFTMAX, "softmax", level="correct")
    again = referee.judge(SOFTMAX, "softmax", level="correct", seed=first.seed)
    other = Referee.judge(referee, SOFTMAX, "softmax", level="correct")
    assert again.seed == first.seed and again.cells == first.cells
    assert other.seed != first.seed and other.cells != first.cells


def test_cases_are_counted_to_the_last_one(referee: Referee) -> None:
    """Every case of a right kernel is told as done once, and those that earn badges count too."""
    told: list[tuple[int, int]] = []
    verdict = Referee.judge(
        referee, SOFTMAX, "softmax", count=lambda done, total: told.append((done, total))
    )
    total = len(verdict.cells)
    assert verdict.verdict == "correct" and total > 100
    assert told == [(done, total) for done in range(1, total + 1)]


def test_data_of_a_seed_that_is_given_are_drawn_once(
    referee: Referee, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is prepared, or drawn for one candidate, is not drawn for the next; another seed has
    data of its own.
    """
    drawn: list[int] = []
    source = GOLD["flat_silu"].source
    inputs = Task.inputs

    def noted(task: Task, cell: Cell, seed: int, device: str = "cpu") -> tuple[Tensor, ...]:
        drawn.append(seed)
        return inputs(task, cell, seed, device)

    monkeypatch.setattr(Task, "inputs", noted)
    referee.prepare("silu", 1100)
    once = len(drawn)
    verdicts = [referee.judge(source, "silu", seed=1100) for _ in range(2)]
    assert [verdict.verdict for verdict in verdicts] == ["correct"] * 2
    assert once == len(drawn) == len(verdicts[0].cells)
    referee.judge(source, "silu", seed=1101)
    assert set(drawn[once:]) == {1101}
    referee.judge(source, "silu")
    assert len(set(drawn)) == 3


def test_an_old_triton_is_no_fault_of_the_kernel(
    referee: Referee, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("referee.versions.triton_version", lambda: "3.5.1")
    verdict = referee.judge(SOFTMAX, "softmax")
    assert verdict.verdict == "error" and verdict.reason.startswith(
        "triton 3.5.1 is not supported: the referee needs triton 3.6 or later"
    )
    # A trace would fail first, and blame the kernel.
    assert set(verdict.seconds) <= {"screen", "total"}


def test_a_wrong_kernel_is_rejected_at_its_first_cell(referee: Referee) -> None:
    verdict = referee.judge(ZEROS, "softmax")
    assert (verdict.verdict, verdict.stage, verdict.guard) == (
        "rejected",
        "correct",
        "wrong_answer",
    )
    assert (
        verdict.reason.startswith(f"at {verdict.cells[0].name}: ") and "all zeros" in verdict.reason
    )
    assert [cell.status for cell in verdict.cells] == ["fail"] + ["skipped"] * (
        len(verdict.cells) - 1
    )
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


FIVE = [
    "001_forge_at_import",
    "080_library_call",
    "062_zeros_under_tolerance",
    "049_disk_replay_flag",
    "092_download",
]


@pytest.mark.parametrize("name", FIVE)
@pytest.mark.parametrize("strict", [True, False])
def test_forged_and_escaping_kernels_fall_to_their_guard(
    referee: Referee, name: str, strict: bool
) -> None:
    specimen = CHEATS[name]
    verdict = referee.judge(specimen.source, specimen.op, strict=strict)
    assert verdict.verdict == "rejected" and verdict.guard in specimen.expected(
        "interpret", strict=strict
    ), verdict
    assert "\n" not in verdict.reason


def test_a_hanging_kernel_costs_only_itself(
    referee: Referee, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("referee.stages.check_cpu.SECONDS", 3.0)
    with ThreadPoolExecutor(2) as pool:
        hanging = pool.submit(referee.judge, CHEATS["100_lingering_kernel"].source, "softmax")
        good = referee.judge(SOFTMAX, "softmax")
        verdict = hanging.result()
    assert good.verdict == "correct"
    assert (verdict.verdict, verdict.guard) == (
        "rejected",
        "timeout",
    ) and "within 3 s" in verdict.reason


def test_candidates_judged_at_once_do_not_mix(referee: Referee) -> None:
    names = ["flat_silu", "rows_rope"]
    with ThreadPoolExecutor(4) as pool:
        verdicts = list(
            pool.map(
                lambda name: Referee.judge(
                    referee, GOLD[name].source, GOLD[name].op, level="correct"
                ),
                names * 2,
            )
        )
    assert [(verdict.op, verdict.verdict) for verdict in verdicts] == [
        (GOLD[name].op, "correct") for name in names * 2
    ]


def test_a_killed_worker_is_no_verdict_on_the_candidate() -> None:
    silu = GOLD["flat_silu"].source
    verdicts: list[Verdict] = []
    with Referee(mode="interpret") as own:
        own.judge(silu, "silu", level="screen")
        thread = threading.Thread(
            target=lambda: verdicts.extend(own.judge(silu, "silu") for _ in range(2))
        )
        thread.start()
        servers = [own._workers.pid, own._interpreters.pid]
        for server in servers:
            os.kill(server, signal.SIGKILL)
        thread.join()
    assert len(verdicts) == 2 and all(
        verdict.verdict in ("correct", "error") for verdict in verdicts
    ), verdicts
    assert verdicts[-1].verdict == "correct"


def test_a_referee_whose_workers_are_gone_says_error() -> None:
    own = Referee(mode="interpret")
    own.close()
    verdict = own.judge(SOFTMAX, "softmax")
    assert (
        (verdict.verdict, verdict.guard) == ("error", "referee")
        and not verdict.passed
        and not verdict.survived
    )
    assert "fail" in status(verdict).values()


@pytest.mark.parametrize(
    "source",
    [
        "",
        "\0",
        "def run(x):\n    return x",
        "x" * 200_000,
        "\ud800",
        "@triton.jit\ndef run(x): pass",
    ],
)
def test_any_text_gets_a_verdict(referee: Referee, source: str) -> None:
    verdict = referee.judge(source, "softmax")
    assert verdict.verdict == "rejected" and verdict.guard and verdict.stage in get_args(Stage)


def test_arguments_that_name_nothing_raise(referee: Referee) -> None:
    with pytest.raises(ops.UnknownOp):
        referee.judge(SOFTMAX, "sotfmax")
    with pytest.raises(UnknownTarget):
        referee.judge(SOFTMAX, "softmax", target="sm_1")


def test_a_catalogue_task_for_a_gpu_is_judged_on_small_cells(referee: Referee) -> None:
    verdict = referee.judge(SOFTMAX, load("softmax", "gpu"), level="correct")
    assert verdict.verdict == "correct" and all(
        "8192x4096" not in cell.name for cell in verdict.cells
    )


def test_every_configuration_of_an_autotuned_kernel_is_run(referee: Referee) -> None:
    good = GOLD["autotuned_rmsnorm_relu6"]
    bad = good.source.replace(
        "range(0, N, BLOCK)", "range(0, tl.minimum(N, 2 * BLOCK), BLOCK)"
    ).replace('"BLOCK": 512', '"BLOCK": 4096', 1)
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
    assert [check for check in first.checks if check.name == "compile"] == [
        check for check in again.checks if check.name == "compile"
    ]


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

"""A history with every kind of outcome, always the same, for tests that look at it."""

from __future__ import annotations

import dataclasses
from typing import Any

from kmint_tui import paths
from kmint_tui.history.database import connect, transaction
from kmint_tui.history.records import NewDraft, NewSession
from kmint_tui.history.store import History
from referee.verdict import CellResult, Check, Verdict
from tests.save.test_host_code import GOOD

TIMING: dict[str, Any] = {
    "device": {
        "candidate": {"median": 41.2},
        "eager": {"median": 96.0},
        "compile": {"median": 52.5},
        "max-autotune-no-cudagraphs": {"median": 50.1},
        "floor": {"median": 38.0},
    },
    "ratio": {"ratio": 1.216, "low": 1.2, "high": 1.23},
    "missing": {"max-autotune": "it did not build [here]"},
}

SESSION = NewSession(
    op="softmax", model="embedded", model_file="kmint-embedded-Q8_0.gguf", model_sha256="0" * 64, system="You write kernels.",
    user="Op `softmax`: row softmax.", seed=7, wanted=4, settings={"target": None}, environment={"kmint": "0"},
)  # fmt: skip


def verdict(outcome: str, stage: str, reason: str, **more: Any) -> Verdict:
    """A verdict with two checks and a cell."""
    passed = outcome not in ("rejected", "error")
    checks = (Check("parse", "pass"), Check("wrong_answer", "pass" if passed else "fail", reason), Check("timing", "skipped", "no GPU"))
    cells = (CellResult("4x128_fp32", "required", "pass" if passed else "fail", 1e-7, 1e-6, ""),)
    more.setdefault("mode", "interpret")
    return Verdict(op="softmax", verdict=outcome, stage=stage, reason=reason, guard=None, checks=checks, cells=cells, **more)  # type: ignore[arg-type]


def fill() -> None:
    """Sessions 1 (all outcomes), 2 (long names, nothing passed), 3 (failed before a draft)."""
    with History(paths.history_file()) as history:
        first = history.begin(SESSION)
        outcomes = [
            verdict("correct", "done", "8 cells agree with float64"),
            verdict("win", "done", "1.216x the fastest baseline", mode="replay", timing=TIMING),
            verdict("rejected", "correct", "cell 4x128_fp32: 12 of 512 elements are off; the [worst] at (0, 3)"),
        ]
        for number, said in enumerate(outcomes):
            history.add_draft(first, NewDraft(number, GOOD + f"# {number}\n" * number, 70 + number, 0.7, 100 + number, 1.5, "stop"))
            history.set_verdict(first, number, said.to_json(), ratio=1.216 if said.timing else None)
        history.add_draft(first, NewDraft(3, GOOD, 73, 0.7, 100, 1.5, "stop", duplicate_of=0))
        history.finish(first, "done")
        model = "/a/very/long/path/to/" + "a-model-" * 12 + ".gguf"
        long = dataclasses.replace(SESSION, op="add_layernorm_leaky_relu_hardsigmoid", model=model)
        second = history.begin(long)
        history.add_draft(second, NewDraft(0, "def run(x):\n    return x\n", 70, 0.7, 12, 0.2, "length"))
        history.set_verdict(second, 0, verdict("rejected", "screen", "no Triton kernel: " + "long reason " * 30).to_json(), ratio=None)
        history.finish(second, "stopped")
        history.finish(history.begin(dataclasses.replace(SESSION, op="rmsnorm")), "failed")
    change("UPDATE sessions SET started = '2026-01-02T03:04:05.000+00:00'")


def change(statement: str) -> None:
    """Change the history behind kmint's back."""
    connection = connect(paths.history_file())
    with transaction(connection, paths.history_file()):
        connection.execute(statement)
    connection.close()

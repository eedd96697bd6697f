"""A history with every kind of outcome, always the same, for tests that look at it."""

from __future__ import annotations

import dataclasses
from math import prod
from typing import Any

from kmint_tui import paths
from kmint_tui.book import store
from kmint_tui.crowns.records import Duel
from kmint_tui.crowns.records import claim as claim_of
from kmint_tui.crowns.store import Crowns, challenge
from kmint_tui.history.database import connect, transaction
from kmint_tui.history.measurements import Measurements, NewMeasurement
from kmint_tui.history.records import NewDraft, NewSession, Reference
from kmint_tui.history.store import History
from referee.grid import MATRIX_SHAPES, GridPoint
from referee.verdict import CellResult, Check, Verdict
from tests.book.examples import book, entry
from tests.save.test_host_code import GOOD

DEVICE = {"device": "NVIDIA H200", "torch": "2.11.0", "triton": "3.6.0"}


def timing(candidate: float) -> dict[str, Any]:
    """A verdict's timing with this median for the kernel, in microseconds; times are spread as they
    are on a GPU.
    """
    medians = {
        "candidate": candidate,
        "eager": 96.0,
        "compile": 52.5,
        "max-autotune-no-cudagraphs": 50.1,
        "floor": 38.0,
    }
    spread = (-0.6, -0.3, -0.2, -0.1, -0.05, 0.0, 0.05, 0.12, 0.3, 0.8, 4.0)
    device = {}
    for name, median in medians.items():
        deciles = [round(median + by, 3) for by in spread]
        device[name] = {
            "median": median,
            "p10": deciles[1],
            "p90": deciles[9],
            "n": 240,
            "deciles": deciles,
        }
    ratio = medians["max-autotune-no-cudagraphs"] / candidate
    return {
        "cell": "bench-4096x4096-bfloat16",
        "bar": "max-autotune-no-cudagraphs",
        "device": device,
        "ratio": {
            "ratio": ratio,
            "low": ratio - 0.016,
            "high": ratio + 0.014,
            "confidence": 0.95,
            "rounds": 240,
            "blocks": 12,
        },
        "rounds": 240,
        "dropped_rounds": 20,
        "dropped": {"throttled": 20},
        "neighbours": ["python (4242)"],
        "missing": {"max-autotune": "it did not build [here]"},
    }


TIMING = timing(41.2)

SESSION = NewSession(
    op="softmax", model="embedded", model_file="kmint-embedded-Q8_0.gguf", model_sha256="0" * 64, system="You write kernels.",
    user="Op `softmax`: row softmax.", seed=7, wanted=4, settings={"target": None}, environment={"kmint": "0"},
)  # fmt: skip


def verdict(outcome: str, stage: str, reason: str, **more: Any) -> Verdict:
    """A verdict with two checks and a cell."""
    passed = outcome not in ("rejected", "error")
    checks = (
        Check("parse", "pass"),
        Check("wrong_answer", "pass" if passed else "fail", reason),
        Check("timing", "skipped", "no GPU"),
    )
    cells = (CellResult("4x128_fp32", "required", "pass" if passed else "fail", 1e-7, 1e-6, ""),)
    more.setdefault("mode", "interpret")
    if more.get("timing"):
        more.setdefault("environment", DEVICE)
    return Verdict(
        op="softmax",
        verdict=outcome,  # type: ignore[arg-type]
        stage=stage,  # type: ignore[arg-type]
        reason=reason,
        guard=None,
        checks=checks,
        cells=cells,
        **more,
    )


def fill() -> None:
    """Sessions 1 (all outcomes), 2 (long names, nothing passed), 3 (failed before a draft)."""
    with History(paths.history_file()) as history:
        first = history.begin(SESSION)
        outcomes = [
            verdict("correct", "done", "8 cells agree with float64"),
            verdict("win", "done", "1.216x the fastest baseline", mode="replay", timing=TIMING),
            verdict(
                "rejected",
                "correct",
                "cell 4x128_fp32: 12 of 512 elements are off; the [worst] at (0, 3)",
            ),
        ]
        for number, said in enumerate(outcomes):
            history.add_draft(
                first,
                NewDraft(
                    number=number,
                    source=GOOD + f"# {number}\n" * number,
                    seed=70 + number,
                    temperature=0.7,
                    tokens=100 + number,
                    seconds=1.5,
                    finish="stop",
                ),
            )
            history.set_verdict(first, number, said.to_json(), ratio=1.216 if said.timing else None)
        history.add_draft(
            first,
            NewDraft(
                number=3,
                source=GOOD,
                seed=73,
                temperature=0.7,
                tokens=100,
                seconds=1.5,
                finish="stop",
                duplicate_of=0,
            ),
        )
        history.finish(first, "done")
        model = "/a/very/long/path/to/" + "a-model-" * 12 + ".gguf"
        long = dataclasses.replace(SESSION, op="add_layernorm_leaky_relu_hardsigmoid", model=model)
        second = history.begin(long)
        history.add_draft(
            second,
            NewDraft(
                number=0,
                source="def run(x):\n    return x\n",
                seed=70,
                temperature=0.7,
                tokens=12,
                seconds=0.2,
                finish="length",
            ),
        )
        history.set_verdict(
            second,
            0,
            verdict("rejected", "screen", "no Triton kernel: " + "long reason " * 30).to_json(),
            ratio=None,
        )
        history.finish(second, "stopped")
        history.finish(history.begin(dataclasses.replace(SESSION, op="rmsnorm")), "failed")
    change("UPDATE sessions SET started = '2026-01-02T03:04:05.000+00:00'")


BY_SHAPE = ((1, 26.0), (64, 39.5), (2048, 40.8), (32768, 57.9))
"""Rows of a verdict at several shapes, and the kernel's median there."""


def timing_by_shape() -> dict[str, Any]:
    """A verdict's timing at `Mx4096`: faster than every baseline for few rows, slower for many."""
    shapes = []
    for rows, median in BY_SHAPE:
        one = timing(median)
        decision = "win" if one["ratio"]["low"] > 1.01 else "loss"
        shapes.append({**one, "cell": f"bf16-{rows}x4096-asked-x1", "decision": decision})
    ratios = [one["ratio"]["ratio"] for one in shapes]
    return {**shapes[0], "shapes": shapes, "geometric_mean": prod(ratios) ** (1 / len(ratios))}


def fill_shapes() -> None:
    """Session 4 on the filled history: one draft, judged at several shapes."""
    times = timing_by_shape()
    told = ", ".join(
        f"{one['decision']} at {one['cell']} ({one['ratio']['ratio']:.3f} of {one['bar']})"
        for one in times["shapes"]
    )
    mean = times["geometric_mean"]
    said = verdict(
        "loss", "done", f"{told}; geometric mean {mean:.3f}", mode="replay", timing=times
    )
    asked = {**SESSION.settings, "shapes": [f"{rows}x4096:bfloat16" for rows, _ in BY_SHAPE]}
    with History(paths.history_file()) as history:
        session = history.begin(dataclasses.replace(SESSION, settings=asked))
        draft = NewDraft(
            number=0,
            source=GOOD,
            seed=70,
            temperature=0.7,
            tokens=100,
            seconds=1.5,
            finish="stop",
        )
        history.add_draft(session, draft)
        history.set_verdict(session, 0, said.to_json(), ratio=mean)
        history.finish(session, "done")


def fill_book() -> None:
    """A book of another machine with wins, a tie and a loss, and a kernel with a long origin."""
    changes = "BLOCK 256 -> 1024, num_warps 4 -> 8, num_stages 2 -> 3"
    entries = (
        entry(),
        entry(shape="64x4096", ratio=1.003, low=0.998, high=1.007, verdict="tie", floor_share=None),
        entry(
            shape="32768x1024", ratio=0.871, low=0.861, high=0.88, verdict="loss", floor_share=0.71
        ),
        entry(op="softmax", author="tuner", changes=changes, ratio=2.119, low=2.1, high=2.131),
        entry(op="relu2", author="template", smith="", smith_sha256="", dtype="float16"),
    )
    store.take(book(*entries))


def fill_crowns() -> None:
    """On the filled history: draft 1.1 reigned, 4.0 took the crown from it, 4.1 could challenge;
    that of layernorm is vacant.
    """
    with History(paths.history_file()) as history:
        later = history.begin(SESSION)
        for number, median in enumerate((40.4, 40.9)):
            history.add_draft(
                later,
                NewDraft(
                    number=number,
                    source=GOOD + f"# faster {number}\n",
                    seed=80 + number,
                    temperature=0.7,
                    tokens=100,
                    seconds=1.5,
                    finish="stop",
                ),
            )
            history.set_verdict(
                later,
                number,
                verdict("win", "done", "faster", mode="replay", timing=timing(median)).to_json(),
                ratio=1.2,
            )
        history.finish(later, "done")
        vacant = history.begin(dataclasses.replace(SESSION, op="layernorm"))
        history.add_draft(
            vacant,
            NewDraft(
                number=0,
                source=GOOD + "# other\n",
                seed=90,
                temperature=0.7,
                tokens=100,
                seconds=1.5,
                finish="stop",
            ),
        )
        history.set_verdict(
            vacant,
            0,
            verdict("win", "done", "faster", mode="replay", timing=timing(44.0)).to_json(),
            ratio=1.14,
        )
        history.finish(vacant, "done")
        claims = [
            claim_of(history.session(at), history.draft(at, number))
            for at, number in ((1, 1), (later, 0))
        ]
    duel = Duel(
        decision="win",
        reason="the whole interval is above 1.01",
        ratio=1.021,
        low=1.015,
        high=1.027,
        challenger_us=40.3,
        champion_us=41.1,
        rounds=240,
        seed=7,
    )
    with Crowns(paths.history_file()) as store:
        assert challenge(store, claims[0], lambda *_: duel).outcome == "vacant"
        assert challenge(store, claims[1], lambda *_: duel).outcome == "taken"
    change("UPDATE sessions SET started = '2026-01-02T03:04:05.000+00:00'")
    change("UPDATE reigns SET began = '2026-01-02T03:04:05.000+00:00'")
    change("UPDATE reigns SET ended = '2026-01-03T03:04:05.000+00:00' WHERE ended IS NOT NULL")


def grid_points() -> list[GridPoint]:
    """A grid with every kind of cell."""
    ratios = (1.31, 1.22, 1.18, 1.004, 0.93, 0.71)
    points = []
    for dtype, shift in (("float16", 0.0), ("bfloat16", 0.05)):
        for (rows, columns), ratio in zip(MATRIX_SHAPES, ratios, strict=True):
            found = ratio + shift
            decision = "win" if found > 1.01 else "loss" if found < 0.99 else "tie"
            time = rows * columns / 400_000
            bar_us = time * found
            points.append(
                GridPoint(
                    rows,
                    columns,
                    dtype,
                    decision,
                    found,
                    found - 0.01,
                    found + 0.01,
                    "compile",
                    time,
                    bar_us,
                    0.8,
                    "",
                    7,
                )
            )
    points[8] = dataclasses.replace(points[8], decision="unsure", reason="the interval is wide")
    reason = "wrong_answer: 3 of 33554432 elements are off"
    points[10] = GridPoint(16384, 2048, "bfloat16", "rejected", reason=reason, seed=7)
    points[11] = GridPoint(256, 16384, "bfloat16", "error", reason="the worker was lost", seed=7)
    return points


def grid_document() -> dict[str, Any]:
    """A grid of draft 1.1 as `kmint grid --json` writes it."""
    return {
        "schema": "kmint.grid/1",
        "op": "softmax",
        "kernel": {"name": "1.1", "origin": "history", "source_sha256": "ab" * 32},
        "points": [dataclasses.asdict(point) for point in grid_points()],
        "environment": DEVICE,
    }


def fill_grid() -> None:
    """Put that grid into the filled history."""
    made = NewMeasurement(
        kind="grid",
        name="1.1",
        draft=Reference(1, 1),
        source_sha256="ab" * 32,
        op="softmax",
        device=DEVICE["device"],
        torch=DEVICE["torch"],
        triton=DEVICE["triton"],
        result="",
        document=grid_document(),
    )
    with Measurements(paths.history_file()) as store:
        store.add(made)


def change(statement: str) -> None:
    """Change the history behind kmint's back."""
    connection = connect(paths.history_file())
    with transaction(connection, paths.history_file()):
        connection.execute(statement)
    connection.close()

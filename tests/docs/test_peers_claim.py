"""The claim about peers, and the parts of its scripts that need no GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from bench import peer_calls, peers
from bench.claims.peers import PEERS
from bench.peer_timing import NO_SAMPLE, plan_of
from bench.peer_worker import Worker
from bench.peers import Run, Wanted, kernel_for, parsed, places, show
from kmint_tui.book.records import Book, digest
from referee.ops.reference import eager
from referee.ops.task import load
from referee.plans.plan import Buffer
from referee.replaying.replay import Region, Runner
from referee.replaying.replay_check import Host
from referee.timing import stage as stage_module
from referee.timing.baselines import Baselines
from referee.timing.contest import Contest
from referee.timing.stage import Stage
from tests.book.examples import entry

PLACE = Wanted("softmax", "8x64:float32")
RIGHT = "def run(x):\n    return torch.softmax(x, -1)\n"


def row(us: float | None, **more: Any) -> dict[str, Any]:
    """The row of a peer that gave a right answer."""
    return {"device_us": us, "seconds": 2.0, "right": True, "cold": True, "note": "", **more}


def raw() -> dict[str, Any]:
    """A document of two places, of which one is too large."""
    rows = {
        "kmint": row(20.0, seconds=1.0),
        "eager": row(40.0),
        "compile": row(25.0, right=False, detail="x" * 200),
        "liger": row(None, reason=NO_SAMPLE),
        "quack": {"reason": "not installed", "cold": True},
    }
    verdict = {"op": "softmax", "peer": "compile", "shape": "8192x4096:bfloat16"}
    return {
        "planned": 3,
        "tuning_seconds": 15.0,
        "places": [
            {"op": "softmax", "shape": "8192x4096:bfloat16", "rows": rows, "floor_us": 19.0},
            {"op": "rope", "shape": "1x128:float32", "rows": {}, "reason": "needs 900 GiB"},
        ],
        "emitted": [
            {**verdict, "sha256": "a", "verdict": "correct", "line": "correct: 110 cases"},
            {**verdict, "peer": "helion none", "reason": "not extracted: odd"},
            {**verdict, "peer": "helion quick", "sha256": "b"},
        ],
        "texts": {"a": "", "b": ""},
    }


def test_a_run_becomes_a_table_with_every_reason() -> None:
    rows = PEERS.rows(PEERS.reduce(json.loads(json.dumps(raw()))))
    assert all(rows.values())
    assert rows["Places timed, planned"] == "1, 3"
    of = "places, share of the floor (median), against kmint"
    assert rows[f"kmint: {of}"] == "1, 0.95"
    assert rows[f"eager: {of}"] == "1, 0.47, 2.00x as long as kmint's (1 of 1 slower)"
    assert rows["softmax 8192x4096 bf16, us (share of the floor)"] == (
        "kmint 20.0 (0.95), compile 25.0 (0.76), eager 40.0 (0.47)"
    )
    assert rows["rope 1x128 fp32: not timed"] == "needs 900 GiB"
    assert rows["quack: no time, and the reason"] == "not installed (1 places)"
    assert rows["liger: no time, and the reason"].startswith(NO_SAMPLE)
    assert "compile, softmax 8192x4096 bf16: xxx" in rows["Wrong answers, which are timed too"]
    of = "for dynamic shapes"
    assert rows[f"The referee on the Triton of compile, {of}"] == "softmax: correct: 110 cases"
    assert rows[f"The referee on the Triton of helion none, {of}"] == "softmax: not extracted: odd"
    assert f"The referee on the Triton of helion quick, {of}" not in rows
    seconds = rows["Seconds from the operation's name to the first answer, median"]
    assert seconds == "kmint 1.0, eager 2.0, liger 2.0"


def test_the_plan_begins_with_every_operation() -> None:
    every = places(peers.OPS, (), "bf16")
    assert len(set(every)) == len(every) == 7 * len(peers.SHAPES) + len(peers.ROPE_SHAPES)
    first = every[: len(peers.OPS)]
    assert {one.op for one in first} == set(peers.OPS)
    assert len({one.shape for one in first}) >= 6
    assert places(("rope",), ("4x8", "2x8:fp32"), "fp16") == (
        Wanted("rope", "4x8:float16"),
        Wanted("rope", "2x8:float32"),
    )


def test_the_kernel_is_the_files_or_of_the_nearest_entry(tmp_path: Path) -> None:
    texts = {digest(text): text for text in ("near", "far", "other dtype")}
    near, far, other = texts
    entries = (
        entry(op="softmax", shape="4096x4096", dtype="bf16", source_sha256=near),
        entry(op="softmax", shape="64x64", dtype="bf16", source_sha256=far),
        entry(op="softmax", shape="8192x4096", dtype="fp32", source_sha256=other),
    )
    book = Book(device="NVIDIA H200", entries=entries, sources=texts)
    wanted = Wanted("softmax", "8192x4096:bfloat16")
    assert kernel_for(book, {}, wanted) == ("near", "the book's entry for 4096x4096 bf16")
    assert kernel_for(book, {}, Wanted("softmax", "8x4:float32"))[0] == "other dtype"
    assert kernel_for(book, {}, Wanted("rope", "8x4:float32")) == ("", "")
    mine = tmp_path / "mine.py"
    mine.write_text("own")
    assert kernel_for(book, {"softmax": mine}, wanted) == ("own", "mine.py")


def run_of(tmp_path: Path, *words: str) -> Run:
    """A run of the script's options, without its check of the GPU."""
    file = tmp_path / "peers.json"
    return Run(file, parsed(["--json", str(file), *words]))


def test_a_peer_that_ends_the_process_is_a_row_with_the_reason(tmp_path: Path) -> None:
    run = run_of(tmp_path, "--peer", "kmint", "--peer", "eager", "--peer", "quack")
    try:
        run.place(PLACE, "import os\nos._exit(7)\n", "a file")
        run.place(PLACE, RIGHT.replace("-1", "0"), "another file")
    finally:
        run.close()
    first, second = peers.read(run.file)["places"]
    assert first["rows"]["kmint"]["reason"] == "its process ended with code 7"
    assert first["rows"]["eager"]["right"] and "begun" not in first
    assert "101 MB" in first["rows"]["quack"]["reason"]
    assert second["rows"]["kmint"]["right"] is False and second["rows"]["kmint"]["detail"]
    show(first)


def served(tmp_path: Path, kernel: str | None, *names: str) -> dict[str, dict[str, Any]]:
    """The rows of peers that a worker without a GPU serves."""
    said: list[dict[str, Any]] = []
    with torch.no_grad():
        Worker(said.append, tmp_path, "cpu").serve(
            {
                "op": "softmax",
                "shape": PLACE.shape,
                "kernel": kernel,
                "peers": list(names),
                "emit": [],
                "tuning_seconds": 1.0,
            }
        )
    return {one["peer"]: one["row"] for one in said if "row" in one}


def test_rows_without_a_kernel_or_a_package_say_why(tmp_path: Path) -> None:
    rows = served(tmp_path, None, "kmint", "eager", "liger", "helion none", "quack")
    assert rows["eager"]["right"] and rows["eager"]["seconds"] >= 0.0
    assert rows["kmint"]["reason"].startswith("no kernel")
    for peer in ("liger", "helion none", "quack"):
        if peer_calls.version_of(peer) is None:
            assert "is not installed" in rows[peer]["reason"]


def test_a_kernel_that_changes_its_input_is_wrong(tmp_path: Path) -> None:
    changing = "def run(x):\n    y = torch.softmax(x, -1)\n    x.zero_()\n    return y\n"
    assert served(tmp_path, changing, "kmint")["kmint"]["detail"] == "it changes its inputs"
    raising = served(tmp_path, "def run(x):\n    raise ValueError('odd')\n", "kmint")["kmint"]
    assert raising["reason"] == "ValueError: odd" and "right" not in raising


def test_an_unfinished_place_is_measured_again(tmp_path: Path) -> None:
    file = tmp_path / "peers.json"
    finished = {"op": "rope", "shape": "1x128:float32", "rows": {}}
    document = {"places": [finished, {**finished, "op": "softmax", "begun": True}]}
    file.write_text(json.dumps(document))
    assert peers.read(file)["places"] == [finished]


@pytest.mark.parametrize(
    "words",
    [["--shape", "0x5"], ["--shape", "axb"], ["--kernel", "softmax=none.py"], ["--op", "x"]],
)
def test_bad_options_end_with_code_2(words: list[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        parsed(["--json", str(tmp_path / "x.json"), *words])
    assert ended.value.code == 2


@pytest.mark.parametrize("op", ["rmsnorm", "cross_entropy"])
def test_the_memory_of_a_block_has_room_for_a_case(op: str) -> None:
    task = load(op, "cpu")
    cell = next(one for one in task.cells if one.inputs[0].offset == 0)
    plan = plan_of(cell)
    assert [isinstance(one, Buffer) for one in plan.buffers] == [True] * len(plan.buffers)
    region = Region(plan, "cpu")
    inputs = task.inputs(cell, 0)
    places = [region.tensor(view) for view in plan.inputs]
    for place, value in zip(places, inputs, strict=True):
        place.copy_(value)
    assert torch.equal(eager(task.op)(*places), eager(task.op)(*inputs))


def test_a_peer_takes_part_as_a_baseline_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_module, "free_bytes", lambda: 40 << 30)
    task = load("rmsnorm", "cpu")
    cell = task.cells[0]
    callees = {"one": eager(task.op), "other": eager(task.op)}
    contest = Contest(
        task=task,
        cell=cell,
        runner=Runner(plan_of(cell), {}, None),
        choice={},
        atomics=False,
        baselines=Baselines(callees, {}, {}),
        seed=5,
    )
    stage = Stage(Host("cpu", None, lambda *_: None), contest, 3)
    stage.refill(1, 3, dict.fromkeys(callees, 3))
    for name, callee in callees.items():
        rival = stage.rival(name, callee, 3)
        assert rival.before and rival.after
        rival.before(1)
        made = rival.call(1)
        rival.after(1)
        assert isinstance(made, tuple)
        assert torch.equal(made[0], eager(task.op)(*stage._lent[1]))


def test_inductors_launches_are_those_with_one_launcher() -> None:
    class Config:
        kwargs = {"XBLOCK": 8, "waves": None}
        num_warps, num_stages = 4, 2

    class Launcher:
        config = Config()

    class Kernel:
        def __init__(self, count: int) -> None:
            self.launchers = [Launcher()] * count

    found = peer_calls.chosen_of({"tuned": Kernel(1), "untuned": Kernel(2), "other": 3})
    assert list(found) == ["tuned"] and found["tuned"].blocks == {"XBLOCK": 8}

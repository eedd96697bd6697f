"""Try every part of the referee's GPU half on hand-written plans and kernels; print OK or FAIL for each, with the traceback.

    python bench/gpu_smoke.py [--only PART ...] [--json FILE]

Needs one CUDA device and takes about two minutes. Parts are independent: a failure hides no other. Exit code: parts that failed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch

from bench import handmade
from bench.nested import show_nested
from bench.smoke import Smoke
from referee.device.environment import describe_device
from referee.device.gpu import Frozen, Replayer
from referee.device.jobs import Prepared, TaskName
from referee.device.replay_service import Loaded
from referee.gate import gate
from referee.measuring import floor
from referee.measuring.baselines import Baselines
from referee.measuring.clocks import Clocks
from referee.measuring.measurement import CANDIDATE, COMPILE, FLOOR, Timing, TimingOptions
from referee.measuring.rounds import Entry, empty_window, run_block
from referee.measuring.stage import Contest
from referee.measuring.timing import Timer
from referee.measuring.tune import tune
from referee.ops.task import load
from referee.ops.values import draw
from referee.plans.arena import HUGE, NAN, second_poison
from referee.replaying.replay import Region, differ
from referee.replaying.replay_check import check_cell, outputs_of

SEED = 20240607
PARTS: dict[str, Callable[[Smoke], object]] = {}


def part(function: Callable[[Smoke], object]) -> Callable[[Smoke], object]:
    """Register a part under its function's name."""
    PARTS[function.__name__] = function
    return function


def expect(condition: object, text: str) -> None:
    """Fail the part with this text unless the condition holds."""
    if not condition:
        raise AssertionError(text)


@part
def environment(smoke: Smoke) -> object:
    found = describe_device(smoke.driver)
    found["rated_bandwidth_TBps"] = round((floor.rated_bandwidth(smoke.driver) or 0) / 1e12, 3)
    found["persisting_l2_reset"] = smoke.driver.reset_persisting_l2()
    found["available"] = Replayer.available()
    expect(found["available"] is None, f"available() says {found['available']}")
    return found


@part
def nvml(smoke: Smoke) -> object:
    expect(isinstance(smoke.clocks, Clocks), str(smoke.clocks))
    assert isinstance(smoke.clocks, Clocks)
    start = time.perf_counter()
    sample = smoke.clocks.sample()
    spent = time.perf_counter() - start
    return {"sample": sample, "ms": 1e3 * spent, "neighbours": smoke.clocks.neighbours()}


@part
def replay_equals_direct(smoke: Smoke) -> object:
    found: dict[str, Any] = {}
    for name in ("rmsnorm", "softmax", "relu2"):
        cell = handmade.bench_cell(name)
        job = handmade.job(name, cell, arch=smoke.arch)
        inputs = draw(cell, SEED, "cuda")
        with Loaded(smoke.host, job) as runner:
            region = Region(job.plan, "cuda")
            region.fill(inputs, NAN)
            start = time.perf_counter()
            bound = runner.bind(region, {})
            prepared = time.perf_counter() - start
            bound.run(smoke.host.stream())
            smoke.host.wait()
            expect(region.damage() is None, f"{name}: {region.damage()}")
            (output,) = outputs_of(region)
            expect(not bool(differ(output, handmade.direct(name)(*inputs))), f"{name}: bits differ from the direct launch")
            found[name] = {"bind_us": round(1e6 * prepared)}
    return found


@part
def region_costs(smoke: Smoke) -> object:
    cell = handmade.bench_cell("rmsnorm")
    job = handmade.job("rmsnorm", cell, arch=smoke.arch)
    found = {}
    for name, action in (("draw", lambda: draw(cell, SEED, "cuda")), ("region", lambda: Region(job.plan, "cuda"))):
        action()
        found[name] = _milliseconds(action)
    region, inputs = Region(job.plan, "cuda"), draw(cell, SEED, "cuda")
    region.fill(inputs, NAN)
    found["fill"] = _milliseconds(lambda: region.fill(inputs, NAN))
    found["damage"] = _milliseconds(region.damage)
    return found


@part
def every_cell(smoke: Smoke) -> object:
    found: dict[str, Any] = {}
    for name in ("rmsnorm", "softmax"):
        task = load(name, "gpu")
        for cell in handmade.usable_cells(name):
            with Loaded(smoke.host, handmade.job(name, cell, arch=smoke.arch)) as runner:
                start = time.perf_counter()
                outcome = check_cell(smoke.host, runner, task, cell, SEED, choice={}, atomics=False)
                spent = round(1e3 * (time.perf_counter() - start), 1)
            share = (outcome.result.error or 0) / outcome.result.budget if outcome.result.budget else None
            found[f"{name} {cell.name}"] = f"{outcome.result.status} {spent} ms, error/budget {share}"
            if cell.role != "capability":
                expect(outcome.rejection is None, f"{name} {cell.name}: {outcome.rejection}")
    torch.cuda.empty_cache()
    return found


@part
def wrong_kernels(smoke: Smoke) -> object:
    wanted = {
        "wrong_formula": "wrong_answer",
        "beyond_the_end": "guard_band",
        "writes_its_input": "input_mutated",
        "reads_what_nobody_wrote": "not_deterministic",
    }
    found = {}
    task, cell = load("relu2", "gpu"), handmade.small_cell("relu2")
    # By this name the second run meets memory that shows a read of it.
    cell = replace(cell, name=next(name for name in map(str, range(99)) if second_poison(name) is HUGE))
    for kernel, guard in wanted.items():
        with Loaded(smoke.host, handmade.job(kernel, cell, arch=smoke.arch)) as runner:
            outcome = check_cell(smoke.host, runner, task, cell, SEED, choice={}, atomics=False)
        found[kernel] = outcome.rejection
        expect(outcome.rejection and outcome.rejection.guard == guard, f"{kernel}: wanted {guard}, got {outcome.rejection}")
    return found


@part
def rounds(smoke: Smoke) -> object:
    cell = handmade.bench_cell("rmsnorm")
    copy = floor.Floor(*floor.bytes_moved(cell), floor.rated_bandwidth(smoke.driver))
    start = time.perf_counter()
    block = run_block([Entry(FLOOR, copy.call)] * 4, 20, smoke.flush, np.random.default_rng(0), during=lambda: None)
    spent = time.perf_counter() - start
    median = float(np.nanmedian(block.times[FLOOR]))
    return {
        "floor_us": median,
        "floor_TBps": sum(floor.bytes_moved(cell)) / median / 1e6,
        "starved": f"{block.starved} of 80",
        "us_per_call_all_in": round(1e6 * spent / 80),
        "empty_window_us": empty_window(smoke.flush),
        "l2_MiB": smoke.flush.l2_bytes / 2**20,
        "flush_MiB": smoke.flush.bytes / 2**20,
    }


@part
def baselines(smoke: Smoke) -> object:
    found: dict[str, Any] = {}
    for name in ("rmsnorm", "softmax"):
        made = smoke.baselines.get(load(name, "gpu"), name, handmade.bench_cell(name), graphed=name == "softmax")
        found[name] = {"ready": sorted(made.ready), "missing": made.missing, "seconds": made.seconds}
        expect(not made.missing, f"{name}: {made.missing}")
    return found


@part
def timing(smoke: Smoke) -> object:
    found = {}
    for name in ("rmsnorm", "softmax"):
        made = smoke.baselines.get(load(name, "gpu"), name, handmade.bench_cell(name))
        start = time.perf_counter()
        result = smoke.timing(name, name, made, SEED)
        found[name] = _brief(result) | {"seconds": round(time.perf_counter() - start, 2), "json_bytes": len(json.dumps(result.to_json()))}
    return found


@part
def twins(smoke: Smoke) -> object:
    """A kernel against itself launched by Triton, then against itself with 2 % and 5 % more rows."""
    twin = Baselines({COMPILE: handmade.direct("rmsnorm")}, {}, {})
    found: dict[str, Any] = {}
    for label, extra in (("same", 0.0), ("2 % slower", 0.02), ("5 % slower", 0.05)):
        start = time.perf_counter()
        results = [smoke.timing("rmsnorm", "rmsnorm", twin, SEED + i, extra_rows=extra) for i in range(5)]
        found[label] = {"results": [_ratio(result) for result in results], "seconds_each": round((time.perf_counter() - start) / 5, 2)}
    return found


@part
def short_kernel_as_graph(smoke: Smoke) -> object:
    small = handmade.small_cell("softmax")
    cell = replace(small, role="bench")
    made = smoke.baselines.get(load("softmax", "gpu"), "softmax", cell)
    job = handmade.job("softmax", cell, arch=smoke.arch)
    with Loaded(smoke.host, job) as runner:
        contest = Contest(load("softmax", "gpu"), cell, runner, {}, False, made, SEED)
        result = Timer(smoke.host, contest, TimingOptions(), smoke.flush, smoke.clocks).measure()
    expect(CANDIDATE in result.graph, f"no graph time; notes: {result.notes}")
    return _brief(result) | {"graph": {name: round(s.median, 2) for name, s in result.graph.items()}, "notes": result.notes}


@part
def tuning(smoke: Smoke) -> object:
    cell = handmade.bench_cell("softmax")
    with Loaded(smoke.host, handmade.job("softmax", cell, arch=smoke.arch, warps=handmade.WARPS)) as runner:
        start = time.perf_counter()
        found = tune(smoke.host, runner, cell, SEED, smoke.flush)
    return {"warps": handmade.WARPS, "found": found, "seconds": round(time.perf_counter() - start, 3)}


@part
def worker(smoke: Smoke) -> object:
    """The same through the worker process: cold start, check, time cold and warm, several configurations."""
    found: dict[str, Any] = {}
    with Replayer(cache=smoke.cache) as replayer:
        found["start_s"] = _seconds(lambda: found.update(environment=replayer.environment()))
        candidate = handmade.prepared("softmax", "softmax", handmade.usable_cells("softmax"), arch=smoke.arch)
        start = time.perf_counter()
        checked = replayer.check(candidate, seed=SEED)
        found["check_s"] = round(time.perf_counter() - start, 3)
        found["cells"] = {result.name: result.status for result in checked.cells}
        expect(checked.rejection is None, str(checked.rejection))
        found["check_again_s"] = _seconds(lambda: replayer.check(candidate, seed=SEED + 1))
        found["required_only_s"] = _seconds(lambda: replayer.check(_required(candidate), seed=SEED + 2))
        for label in ("time_cold_s", "time_warm_s"):
            start = time.perf_counter()
            timed = replayer.time(candidate, seed=SEED)
            found[label] = round(time.perf_counter() - start, 3)
            expect(isinstance(timed, Timing), str(timed))
        assert isinstance(timed, Timing)
        found["timing"] = _brief(timed)
        several = handmade.prepared("softmax", "softmax", (handmade.bench_cell("softmax"),), arch=smoke.arch, warps=handmade.WARPS)
        found["tuned"] = replayer.tune(several, seed=SEED)
        expect(isinstance(found["tuned"], Frozen), str(found["tuned"]))
        found["workers_started"] = replayer.started
        wanted = 2 if found["environment"]["badges"].startswith("a process of their own") else 1
        expect(replayer.started == wanted, "a worker was restarted without need")
    return found


@part
def lost_contexts(smoke: Smoke) -> object:
    """A stray pointer and a kernel that never ends: rejected by their guards, and the next candidate is judged right."""
    found: dict[str, Any] = {}
    cell = handmade.small_cell("relu2")
    good = handmade.prepared("relu2", "relu2", (cell,), arch=smoke.arch)
    with Replayer(cache=smoke.cache) as replayer:
        replayer.environment()
        before = torch.cuda.mem_get_info()[0]
        for kernel, guard in (("far_outside", "out_of_bounds"), ("never_ends", "timeout"), ("wrong_formula", "wrong_answer")):
            start = time.perf_counter()
            checked = replayer.check(handmade.prepared(kernel, "relu2", (cell,), arch=smoke.arch), seed=SEED)
            spent = round(time.perf_counter() - start, 2)
            found[kernel] = f"{spent} s: {checked.rejection}"
            expect(checked.rejection and checked.rejection.guard == guard, f"{kernel}: wanted {guard}, got {checked.rejection}")
            found[f"good after {kernel}"] = _seconds(lambda: _must_pass(replayer, good))
        found["workers_started"] = replayer.started
        found["memory_change_MiB"] = (before - torch.cuda.mem_get_info()[0]) / 2**20
    return found


@part
def gated(smoke: Smoke) -> object:
    """Two fresh processes of the stability gate."""
    candidate = handmade.prepared("softmax", "softmax", (handmade.bench_cell("softmax"),), arch=smoke.arch)
    start = time.perf_counter()
    found = gate(lambda replayer, seed: candidate, runs=2)
    return {"seconds": round(time.perf_counter() - start, 1), "report": found.to_json()}


def _required(candidate: Prepared) -> Prepared:
    jobs = tuple(job for job in candidate.jobs if job.cell.role != "capability")
    return Prepared(TaskName(candidate.task.op), jobs)


def _must_pass(replayer: Replayer, candidate: Prepared) -> None:
    checked = replayer.check(candidate, seed=SEED)
    expect(checked.rejection is None, f"a good kernel was rejected: {checked.rejection}")


def _ratio(result: Timing) -> str:
    ratio = result.ratio
    return f"{result.decision} {ratio.ratio:.4f} [{ratio.low:.4f}, {ratio.high:.4f}] n={ratio.rounds}" if ratio else result.reason


def _brief(result: Timing) -> dict[str, Any]:
    return {
        "ratio": _ratio(result),
        "bar": result.bar,
        "device_us": {name: round(s.median, 2) for name, s in result.device.items()},
        "call_us": {name: round(s.median, 1) for name, s in result.call.items()},
        "rounds": f"{result.rounds} in {result.blocks} blocks",
        "dropped": result.dropped,
        "missing": result.missing,
        "sm_clock": result.sm_clock,
        "temperature": result.temperature,
        "power_capped": result.power_capped,
        "floor_share": result.floor_share,
        "window_us": result.window_us,
        "notes": result.notes,
        "settings": result.settings,
        "spent_s": {name: round(value, 3) for name, value in result.seconds.items()},
    }


def _milliseconds(action: Callable[[], object], repeats: int = 5) -> float:
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        action()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    return round(float(np.median(times)), 2)


def _seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return round(time.perf_counter() - start, 2)


def main() -> int:
    """Run the parts; returns how many failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=None, help="parts to run")
    parser.add_argument("--json", type=Path, default=None, help="also write everything there")
    given, results = parser.parse_args(), dict[str, Any]()
    with tempfile.TemporaryDirectory() as cache:
        smoke = Smoke(Path(cache))
        for name, function in PARTS.items():
            if given.only is not None and name not in given.only:
                continue
            start, found, trace = time.perf_counter(), None, None
            try:
                found = function(smoke)
            except Exception:  # one part's failure must not hide the others
                trace = traceback.format_exc()
            spent = time.perf_counter() - start
            results[name] = {"ok": trace is None, "seconds": round(spent, 2), "found": found, "traceback": trace}
            print(f"{'OK  ' if trace is None else 'FAIL'} {name} ({spent:.1f} s)", flush=True)
            show_nested(found if trace is None else trace)
    if given.json:
        given.json.write_text(json.dumps(results, indent=1, default=str) + "\n", encoding="utf-8")
    failed = [name for name, result in results.items() if not result["ok"]]
    print(f"\n{len(results) - len(failed)} of {len(results)} parts OK {' '.join(failed)}")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())

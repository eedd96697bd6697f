"""The process that launches a compiled kernel for a profiler: `child once|timed`.

Standard input is a frame (`referee.gpu.wire`) of one compiled candidate. `once` launches it between
the marks that Nsight Compute looks for. `timed` prints one line of JSON. It holds the microseconds
of the launches and of a copy of the same bytes, with a cold L2 cache. It also holds the kernels that
torch's profiler saw. The process runs kmint's code and the compiled kernel only, and needs a GPU.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

from referee.gpu import wire
from referee.gpu.jobs import ReplayJob, unpack_jobs
from referee.gpu.replay_service import Loaded
from referee.ops.task import Task, load
from referee.plans.arena import NAN
from referee.problem import TaskName
from referee.reference.task import load_task
from referee.replaying.driver import Driver
from referee.replaying.replay import Region
from referee.replaying.replay_check import Host
from referee.timing.floor import Floor, bytes_moved
from referee.timing.rounds import Flush

WARM, ROUNDS = 5, 30


def main(how: str) -> None:
    """Launch the candidate as `how` says."""
    message, blobs = wire.receive(wire.blocking_reader(sys.stdin.fileno()))
    (job,) = unpack_jobs(message["jobs"], blobs)
    choice = {int(step): int(config) for step, config in message["choice"].items()}
    torch.set_grad_enabled(False)
    torch.zeros(1, device="cuda")
    host = Host("cuda", Driver(), lambda *_: None)
    inputs = _task(TaskName.from_json(message["task"])).inputs(job.cell, 0, "cuda")
    with Loaded(host, job) as runner:
        region = Region(job.plan, "cuda")
        region.fill(inputs, NAN)
        bound, stream = runner.bind(region, choice), host.stream()
        bound.run(stream)
        host.wait()
        if how == "once":
            torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
            bound.run(stream)
            host.wait()
            torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]
        else:
            print(json.dumps(_timed(job, lambda: bound.run(stream))), flush=True)


def _task(name: TaskName) -> Task:
    asked = name.asked
    return load(name.op, "gpu") if asked is None else load_task(asked, "gpu")


def _timed(job: ReplayJob, run: Callable[[], None]) -> dict[str, object]:
    flush = Flush(torch.cuda.get_device_properties(0).L2_cache_size)
    floor = Floor(*bytes_moved(job.cell), None)
    times: dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = {"us": [], "floor_us": []}
    for number in range(WARM + ROUNDS):
        for name, call in (("us", lambda _: run()), ("floor_us", floor.call)):
            flush()
            begun = _event()
            call(number)
            times[name].append((begun, _event()))
    torch.cuda.synchronize()
    medians = {
        name: 1e3 * statistics.median(one.elapsed_time(other) for one, other in pairs[WARM:])
        for name, pairs in times.items()
    }
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        run()
        torch.cuda.synchronize()
    kernels = [
        {"name": event.name, "us": event.time_range.elapsed_us()}
        for event in seen.events() or ()
        if event.device_type.name == "CUDA"
    ]
    return {**medians, "kernels": kernels, "device": torch.cuda.get_device_name()}


def _event() -> torch.cuda.Event:
    event: torch.cuda.Event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


if __name__ == "__main__":
    main(sys.argv[1])

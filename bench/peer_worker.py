"""The process with the GPU of `bench/peers.py`: prepares, checks and times the peers of a place.

It reads a JSON object for each place, one a line. Its answers are lines too: `begun` before each
peer's work, then `row`, `text` or `place`. If it dies, the parent knows the peer at work. Prints of peers go to standard error.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from bench.emitted import NotExtracted  # noqa: E402
from bench.peer_calls import EMITTING, KMINT, NotRun, Place, Prepared, prepare  # noqa: E402
from bench.peer_timing import NO_SAMPLE, PeerTimer, needed_bytes  # noqa: E402
from referee.answers.compare import compare  # noqa: E402
from referee.asked_shape import AskedShape, with_shapes  # noqa: E402
from referee.ops.task import load  # noqa: E402
from referee.ops.torch_compat import as_tuple  # noqa: E402

Say = Callable[[dict[str, Any]], None]
CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "HELION_CACHE_DIR")
GIB, LOST = 1 << 30, 9
"""LOST is the exit code after an error that costs the process the GPU."""
TIMING = "timing"
"""The name of the joint timing in `begun`."""


class Worker:
    """Serves places. `say` writes one message."""

    def __init__(self, say: Say, folder: Path, device: str = "cuda") -> None:
        self._say, self._folder, self._device = say, folder, device
        self._seen: set[tuple[str, str]] = set()
        self._emitted: set[tuple[str, str]] = set()
        self._numbers = 0

    def serve(self, asked: Mapping[str, Any]) -> None:
        """All messages of one place; the last is `place`."""
        place = self._place(asked)
        torch._dynamo.reset()
        peers: list[str] = asked["peers"]
        if why := self._too_large(place, len(peers)):
            self._say({"place": {"reason": why}})
            return
        ready: dict[str, Prepared] = {}
        for peer in peers:
            self._say({"begun": peer})
            row = self._prepared(peer, place, ready)
            row["cold"] = (peer, place.op) not in self._seen
            self._seen.add((peer, place.op))
            self._say({"row": row, "peer": peer})
        found: dict[str, Any] = {}
        if ready and self._device == "cuda":
            self._say({"begun": TIMING})
            found = self._timed(place, ready)
        for peer in asked["emit"]:
            if peer in ready and peer in EMITTING and (peer, place.op) not in self._emitted:
                self._say({"begun": f"the text of {peer}"})
                self._emit(peer, place, ready[peer])
        self._say({"place": found})

    def _place(self, asked: Mapping[str, Any]) -> Place:
        task = load(asked["op"], "gpu")
        shape = AskedShape.parse(asked["shape"])
        cell = with_shapes(task.op, task.cells, (shape,), "gpu", (shape,))[0]
        self._numbers += 1
        # New caches for every place: the seconds of a first call are those of a new operation.
        for variable in CACHES:
            os.environ[variable] = str(self._folder / f"{variable.lower()}_{self._numbers}")
        return Place(
            op=asked["op"],
            task=task,
            cell=cell,
            kernel=asked.get("kernel"),
            folder=self._folder,
            tuning_seconds=asked["tuning_seconds"],
        )

    def _too_large(self, place: Place, contestants: int) -> str:
        """The reason why the place needs more memory than the GPU has, or ""."""
        if self._device != "cuda":
            return ""
        free, needed = torch.cuda.mem_get_info()[0], needed_bytes(place.cell, contestants)
        if needed <= free:
            return ""
        return f"needs {needed / GIB:.0f} GiB of GPU memory, and {free / GIB:.0f} GiB are free"

    def _prepared(self, peer: str, place: Place, ready: dict[str, Prepared]) -> dict[str, Any]:
        """The row of a peer before its timing; a callable that answers goes to `ready`."""
        began = time.perf_counter()
        try:
            inputs = place.task.inputs(place.cell, 0, self._device)
            self._wait()
            began = time.perf_counter()
            made = prepare(peer, place)
            outputs = as_tuple(made.callee(*inputs))
            self._wait()
            seconds = time.perf_counter() - began
            problem = self._problem(place, inputs, outputs)
        except NotRun as error:
            return {"reason": str(error)}
        except Exception as error:  # whatever a peer raises is its row's reason
            self._end_if_lost()
            took = round(time.perf_counter() - began, 2)
            return {"reason": one_line(error), "seconds": took}
        ready[peer] = made
        row = {"seconds": round(seconds, 3), "right": not problem, "note": made.note}
        return row | ({"detail": problem} if problem else {})

    def _problem(
        self, place: Place, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]
    ) -> str:
        """The fault of the outputs by the referee's tolerance, or ""."""
        given = place.task.inputs(place.cell, 0, self._device)
        found = compare(place.task, place.cell, given, outputs)
        if found.status != "pass":
            return found.detail or found.status
        same = all(torch.equal(one, other) for one, other in zip(inputs, given, strict=True))
        return "" if same else "it changes its inputs"

    def _timed(self, place: Place, ready: Mapping[str, Prepared]) -> dict[str, Any]:
        """The times of all ready peers, each as a row, and the place's own figures."""
        callees = {peer: made.callee for peer, made in ready.items()}
        try:
            measured = PeerTimer(place.task, place.cell, callees).measure(KMINT)
        except Exception as error:  # the rows stay, without times
            self._end_if_lost()
            return {"reason": f"not timed: {one_line(error)}"}
        for peer, times in measured.times.items():
            row = times.to_json()
            if times.device is None:
                row["reason"] = NO_SAMPLE
            elif measured.floor_us:
                row["floor_share"] = round(measured.floor_us / times.device.median, 4)
            self._say({"row": row, "peer": peer})
        return {
            "floor_us": measured.floor_us and round(measured.floor_us, 3),
            "bar": measured.bar,
            "rounds": measured.rounds,
            "dropped": measured.dropped,
        }

    def _emit(self, peer: str, place: Place, made: Prepared) -> None:
        self._emitted.add((peer, place.op))
        assert made.emitted is not None
        try:
            said = {"source": made.emitted()}
        except NotExtracted as error:
            said = {"reason": f"not extracted: {error}"}
        except Exception as error:  # a compiler may refuse another dtype or dynamic shapes
            said = {"reason": f"not emitted: {one_line(error)}"}
        self._say({"text": said, "peer": peer})

    def _end_if_lost(self) -> None:
        """End the process where an error has cost it the GPU; the parent starts another one."""
        try:
            self._wait()
        except Exception:  # whatever torch raises, nothing works any more
            traceback.print_exc()
            os._exit(LOST)
        if self._device == "cuda":
            torch.cuda.empty_cache()

    def _wait(self) -> None:
        if self._device == "cuda":
            torch.cuda.synchronize()


def one_line(error: BaseException) -> str:
    """An error's name and the first line of its text."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {(lines or ['no message'])[0][:200]}"


def main() -> None:
    """Serve until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(message: dict[str, Any]) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        worker = Worker(say, Path(folder), device)
        name = torch.cuda.get_device_name() if device == "cuda" else ""
        say({"ready": name})
        for line in sys.stdin:
            worker.serve(json.loads(line))


if __name__ == "__main__":
    main()

"""Kernels whose verdict is known, judged while a second thread kills the referee's processes at
random.

    python bench/kill_judge.py [--judgements 200] [--threads 2] [--gpu] [--seconds 300] [--seed N]
    [--json FILE]

Victims are the fork servers, their jobs (tracing, compiling, interpreting), the jobs' children
(ptxas), and on a GPU the replay worker. Exit code 0 when all of this holds:

- Every verdict is right or says "error", which decides nothing.
- The closed referee leaves no process.
- A fresh verdict afterwards is right.
- On a GPU its memory is as before.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import random
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from referee.judge import Referee
from referee.sandbox.linux import prctl
from referee.selftest.corpus import ACCEPTED, Specimen, load
from referee.verdict import Mode, Verdict

SCHEMA = "kmint.bench.kill_judge/1"
PR_SET_CHILD_SUBREAPER = 36
END_SECONDS = 30.0
MEMORY_SLACK_MIB = 64
# Right kernels, slips and cheats of every stage; each takes little time alone.
KNOWN = (
    "flat_silu online_softmax row_rmsnorm row_layernorm autotuned_rmsnorm_relu6 atomic_l2norm flat_swiglu "
    "softmax_no_max rmsnorm_no_eps swiglu_swapped layernorm_no_mean softmax_exp2 silu_no_factor "
    "059_input_zeroed 080_library_call 062_zeros_under_tolerance 042_identity_memo"
).split()


@dataclass
class Tally:
    """The results of a run. `wrong` and `left` must stay empty; an error says only that a worker
    was lost too often.
    """

    judgements: int = 0
    right: int = 0
    errors: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    kills: dict[str, int] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def holds(self) -> bool:
        """No wrong verdict and no process left."""
        return self.judgements > 0 and not self.wrong and not self.left


def known(names: Sequence[str] = KNOWN) -> tuple[Specimen, ...]:
    """The specimens of these names."""
    every = {one.name: one for kind in ("gold", "wrong", "cheats") for one in load(kind)}
    return tuple(every[name] for name in names)


def run(
    specimens: Sequence[Specimen],
    judgements: int,
    *,
    mode: Mode,
    seed: int,
    threads: int = 2,
    seconds: float = 300.0,
) -> Tally:
    """Judge `judgements` specimens in random order while processes die; stops early after
    `seconds`.
    """
    chance = random.Random(seed)
    order = [chance.choice(specimens) for _ in range(judgements)]
    tally, started, over = Tally(), time.monotonic(), threading.Event()
    lock = threading.Lock()
    others = set(descendants())
    with adopting(), Referee(mode=mode) as referee:

        def judge(one: Specimen) -> None:
            if time.monotonic() - started > seconds:
                return
            verdict = referee.judge(one.source, one.op, level="correct", strict=True)
            with lock:
                _count(tally, one, verdict)

        killer = threading.Thread(
            target=_kill_until, args=(over, chance, tally.kills, mode, others)
        )
        killer.start()
        try:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(judge, order))
        finally:
            over.set()
            killer.join()
        # Nothing is killed any more: whatever was broken must have mended itself.
        for one in specimens[:3]:
            verdict = referee.judge(one.source, one.op, level="correct", strict=True)
            _count(tally, one, verdict)
            if verdict.verdict == "error":
                tally.wrong.append(f"{one.name}, undisturbed: {verdict.reason}")
        last = Watched([pid for pid in descendants() if pid not in others])
        referee.close()
        tally.left = last.left(END_SECONDS) or [
            _named(pid) for pid in descendants() if pid not in others
        ]
    tally.seconds = round(time.monotonic() - started, 1)
    return tally


def _count(tally: Tally, one: Specimen, verdict: Verdict) -> None:
    tally.judgements += 1
    guard = ACCEPTED if verdict.passed else verdict.guard or verdict.verdict
    if verdict.verdict == "error":
        # The reason may be a traceback of ours. Its last line states the loss, without the
        # machine's folders.
        tally.errors.append(
            f"{one.name}: {verdict.reason.strip().splitlines()[-1].replace(sys.prefix, '...')}"
        )
    elif guard in one.expected(verdict.mode):
        tally.right += 1
    else:
        tally.wrong.append(f"{one.name}: {guard}: {verdict.reason}")


def _kill_until(
    over: threading.Event,
    chance: random.Random,
    kills: dict[str, int],
    mode: Mode,
    others: set[int],
) -> None:
    """Jobs most often; a server now and then, because a new one takes seconds to start."""
    while not over.wait(chance.uniform(0.0, 0.5)):
        wanted = chance.choices(
            ("job", "tool", "fork server", "namespace init", "replayer"),
            (12, 3, 1, 1, 1 if mode == "replay" else 0),
        )[0]
        # A job lives for a moment only: look until there is one.
        for _ in range(200):
            victims = [pid for pid in descendants() if pid not in others and role(pid) == wanted]
            if victims or over.wait(0.005):
                break
        if victims:
            over.wait(chance.uniform(0.0, 0.1) if wanted == "job" else 0.0)
            with contextlib.suppress(ProcessLookupError):
                os.kill(chance.choice(victims), signal.SIGKILL)
                kills[wanted] = kills.get(wanted, 0) + 1


@contextlib.contextmanager
def adopting() -> Iterator[None]:
    """Orphans of ours become our children instead of init's, so that none can hide."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        prctl(PR_SET_CHILD_SUBREAPER, 0)


def descendants() -> list[int]:
    """Ids of all living processes below this one."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            children.setdefault(_parent(int(name)), []).append(int(name))
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def role(pid: int) -> str:
    """The role of a process of the referee, by its command line and its place below us; "" for
    any other or a dead one.
    """
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    if b"referee.gpu.replay_worker" in command:
        return "replayer"
    if b"ptxas" in command:
        return "tool"
    if b"referee.sandbox.worker" not in command:
        return ""
    depth, above = 0, pid
    while (above := _parent(above)) not in (0, 1, os.getpid()):
        depth += 1
    return ("fork server", "namespace init")[depth] if depth < 2 else "job"


def _named(pid: int) -> str:
    """The process's id with its role or, where it has none, the start of its command line."""
    try:
        command = (
            Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        )
    except OSError:
        command = ""
    return f"{pid} {role(pid) or command[:120]}"


def _parent(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[1])


class Watched:
    """Processes whose end is awaited, even if their parent changes."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._fds: dict[int, str] = {}
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                self._fds[os.pidfd_open(pid)] = _named(pid)

    def left(self, seconds: float) -> list[str]:
        """Those that have not ended by then."""
        deadline = time.monotonic() + seconds
        poller = select.poll()
        for fd in self._fds:
            poller.register(fd, select.POLLIN)
        while self._fds and (ready := poller.poll(max(0.0, deadline - time.monotonic()) * 1000)):
            for fd, _ in ready:
                poller.unregister(fd)
                os.close(fd)
                del self._fds[fd]
        return list(self._fds.values())


def free_gpu_mib() -> dict[str, float]:
    """MiB in use on the GPU by nvidia-smi, and MiB free by the driver in a separate process."""
    # The first GPU that CUDA sees, because nvidia-smi lists all.
    seen = os.environ.get("CUDA_VISIBLE_DEVICES", "").partition(",")[0]
    which = ["-i", seen] if seen else []
    used = subprocess.run(
        ["nvidia-smi", *which, "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
        capture_output=True,
        text=True,
        check=True,
    )
    code = "import torch; print(torch.cuda.mem_get_info()[0] / 2**20)"
    free = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {"used": float(used.stdout.split()[0]), "free": float(free.stdout)}


def main() -> int:
    """Run it, print the tally, and write the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--judgements", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument(
        "--gpu",
        action="store_true",
        help="replay on the GPU, and compare its memory before and after",
    )
    parser.add_argument("--json", type=Path, default=None)
    given = parser.parse_args()
    mode: Mode = "replay" if given.gpu else "interpret"
    before = free_gpu_mib() if given.gpu else {}
    tally = run(
        known(),
        given.judgements,
        mode=mode,
        seed=given.seed,
        threads=given.threads,
        seconds=given.seconds,
    )
    after = free_gpu_mib() if given.gpu else {}
    leaked = (
        max(after["used"] - before["used"], before["free"] - after["free"]) if given.gpu else 0.0
    )
    holds = tally.holds and leaked <= MEMORY_SLACK_MIB
    document: dict[str, Any] = {
        "schema": SCHEMA, "mode": mode, "seed": given.seed, "threads": given.threads, "holds": holds,
        **asdict(tally), "gpu_memory_mib": {"before": before, "after": after, "leaked": leaked} if given.gpu else None,
        "machine": {"cores": len(os.sched_getaffinity(0)), "python": platform.python_version(), **_versions()},
    }  # fmt: skip
    print(
        f"{tally.judgements} judgements in {tally.seconds} s: {tally.right} right, {len(tally.errors)} lost, {len(tally.wrong)} wrong"
    )
    print("kills: " + ", ".join(f"{count} {what}" for what, count in tally.kills.items()))
    for line in (*tally.wrong, *(f"left: {one}" for one in tally.left)):
        print(line)
    if given.gpu:
        print(f"GPU memory: {before} before, {after} after")
    print("holds" if holds else "DOES NOT HOLD")
    if given.json:
        given.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0 if holds else 1


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in ("torch", "triton")}


if __name__ == "__main__":
    sys.exit(main())

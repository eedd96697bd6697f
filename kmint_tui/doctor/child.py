"""One heavy probe in a process of its own: `python -m kmint_tui.doctor.child NAME`.

The child writes one line of JSON for each finding as soon as it has it, and a last word when it has looked at everything, so
that a child killed at the deadline still tells what it had found.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

from kmint_tui.doctor.finding import Finding

PROBES = {
    "gpu": "kmint_tui.doctor.gpu:gpu",
    "kernel": "kmint_tui.doctor.kernel:compiled",
    "replay": "kmint_tui.doctor.kernel:replayed",
    "llama.cpp": "kmint_tui.doctor.llama:llama",
    "sandbox": "kmint_tui.doctor.sandbox:sandbox",
}
SLOW = "look again when the machine is less busy"
LAST_WORD = b"done\n"
READING_SECONDS = 0.25
BROKEN = "run `kmint doctor --report FILE` and report it"


class Child:
    """A probe that has been started. Close it, whatever happens."""

    def __init__(self, name: str) -> None:
        self.name = name
        root = str(Path(__file__).resolve().parents[2])
        start = f"import sys; sys.path.append({root!r}); from kmint_tui.doctor.child import main; main({name!r})"
        self._process = subprocess.Popen(
            [sys.executable, "-c", start],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """Process id of the child, which leads a process group of its own."""
        return self._process.pid

    def findings(self, deadline: float) -> tuple[Finding, ...]:
        """Everything the child found until `deadline` (of `time.monotonic`), and what kept it from finding more."""
        try:
            # What a child has written already is read also after the deadline.
            out, err = self._process.communicate(timeout=max(READING_SECONDS, deadline - time.monotonic()))
            words = err.decode("utf-8", "replace").strip().splitlines()
            last = f": {words[-1]}" if words else ""
            trouble, fix = f"the probe ended with status {self._process.returncode}{last}", BROKEN
        except subprocess.TimeoutExpired:
            self._kill()
            out, _ = self._process.communicate()
            trouble, fix = "not finished in time", SLOW
        found = _read(out)
        if out.endswith(LAST_WORD):
            return found
        return (*found, Finding(f"{self.name} (the rest)" if found else self.name, "unknown", trouble, fix))

    def close(self) -> None:
        """Kill the child if it still runs. The referee's workers end with it. May be called more than once."""
        self._kill()
        self._process.wait()
        for stream in (self._process.stdout, self._process.stderr):
            if stream:
                stream.close()

    def _kill(self) -> None:
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)


def _read(out: bytes) -> tuple[Finding, ...]:
    return tuple(Finding(**json.loads(line)) for line in out.splitlines(keepends=True) if line.startswith(b"{") and line.endswith(b"}\n"))


def main(name: str) -> None:
    """Run one probe in this process; its findings go to stdout, and whatever libraries print goes to stderr."""
    out = os.dup(1)
    os.dup2(2, 1)
    module, _, function = PROBES[name].partition(":")
    probe: Callable[[], Iterator[Finding]] = getattr(import_module(module), function)
    for finding in probe():
        os.write(out, json.dumps(asdict(finding)).encode() + b"\n")
    os.write(out, LAST_WORD)

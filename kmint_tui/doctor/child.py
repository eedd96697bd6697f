"""One probe in a process of its own: `python -m kmint_tui.doctor.child NAME`.

The child writes one line of JSON for each finding as soon as it has it, and a last word when it has looked at everything, so
that a child killed at the deadline still tells what it had found.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from kmint_tui.doctor.finding import Finding
from kmint_tui.doctor.guard import BROKEN, guarded

# Each finds one thing.
QUICK = {
    "python": "kmint_tui.doctor.machine:python",
    "packages": "kmint_tui.doctor.machine:packages",
    "compiler": "kmint_tui.doctor.machine:compiler",
    "memory": "kmint_tui.doctor.machine:memory",
    "settings": "kmint_tui.doctor.settings:settings",
    "proxies": "kmint_tui.doctor.settings:proxies",
}
# Each finds several, one after the other, and may load a driver, wait for a dead disk, or crash.
PROBES = {
    "gpu": "kmint_tui.doctor.gpu:gpu",
    "kernel": "kmint_tui.doctor.kernel:compiled",
    "replay": "kmint_tui.doctor.kernel:replayed",
    "llama.cpp": "kmint_tui.doctor.llama:llama",
    "sandbox": "kmint_tui.doctor.sandbox:sandbox",
    "store": "kmint_tui.doctor.models:store_probe",
}
SLOW = "look again when the machine is less busy"
LAST_WORD = b"done\n"
READING_SECONDS = 0.25
READ_BYTES = 1 << 16


class Child:
    """A probe that has been started. Close it, whatever happens."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._words = tempfile.TemporaryFile()
        root = str(Path(__file__).resolve().parents[2])
        start = f"import sys; sys.path.append({root!r}); from kmint_tui.doctor.child import main; main({name!r})"
        self._process = subprocess.Popen(
            [sys.executable, "-c", start],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._words,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self._out = self._process.stdout
        self._text = b""
        self._told = 0

    @property
    def pid(self) -> int:
        """Process id of the child, which leads a process group of its own."""
        return self._process.pid

    def fileno(self) -> int:
        """The descriptor to wait for; then call `read`."""
        return self._out.fileno()

    def read(self) -> tuple[tuple[Finding, ...], bool]:
        """The findings that have come since the last call, and whether the child has said all it will say. May wait."""
        block = os.read(self.fileno(), READ_BYTES)
        self._text += block
        fresh = self._fresh()
        return (fresh, False) if block else ((*fresh, *self._ending("")), True)

    def cut_short(self) -> tuple[Finding, ...]:
        """Kill the child; what it had written, and that it was not finished in time."""
        self._kill()
        while block := os.read(self.fileno(), READ_BYTES):
            self._text += block
        return (*self._fresh(), *self._ending("not finished in time"))

    def _fresh(self) -> tuple[Finding, ...]:
        found = _read(self._text)
        told, self._told = self._told, len(found)
        return found[told:]

    def _ending(self, trouble: str) -> tuple[Finding, ...]:
        """What kept the child from telling everything, if anything did."""
        status = self._process.wait()
        if self._text.endswith(LAST_WORD):
            return ()
        if not trouble:
            self._words.seek(0)
            words = self._words.read().decode("utf-8", "replace").strip().splitlines()
            trouble = f"the probe ended with status {status}" + (f": {words[-1]}" if words else "")
            fix = BROKEN
        else:
            fix = SLOW
        return (Finding(f"{self.name} (the rest)" if self._told else self.name, "unknown", trouble, fix),)

    def close(self) -> None:
        """Kill the child if it still runs. The referee's workers end with it. May be called more than once."""
        self._kill()
        self._process.wait()
        self._out.close()
        self._words.close()

    def _kill(self) -> None:
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)


def listen(children: Sequence[Child], deadline: float) -> Iterator[Finding]:
    """Every finding of all children as it comes; a child that is not finished at `deadline` (of `time.monotonic`) is killed."""
    with selectors.DefaultSelector() as waiting:
        for child in children:
            waiting.register(child, selectors.EVENT_READ, child)
        while waiting.get_map():
            # What a child has written already is read also after the deadline.
            ready = waiting.select(max(READING_SECONDS, deadline - time.monotonic()))
            for key, _ in ready:
                found, over = key.data.read()
                if over:
                    waiting.unregister(key.fileobj)
                yield from found
            if time.monotonic() >= deadline:
                break
        for key in tuple(waiting.get_map().values()):
            yield from key.data.cut_short()


def _read(out: bytes) -> tuple[Finding, ...]:
    return tuple(Finding(**json.loads(line)) for line in out.splitlines(keepends=True) if line.startswith(b"{") and line.endswith(b"}\n"))


def main(name: str) -> None:
    """Run one probe in this process; its findings go to stdout, and whatever libraries print goes to stderr."""
    out = os.dup(1)
    os.dup2(2, 1)
    module, _, function = (QUICK | PROBES)[name].partition(":")
    probe: Callable[[], Any] = getattr(import_module(module), function)
    findings: Iterable[Finding] = (guarded(name, probe),) if name in QUICK else probe()
    for finding in findings:
        os.write(out, json.dumps(asdict(finding)).encode() + b"\n")
    os.write(out, LAST_WORD)

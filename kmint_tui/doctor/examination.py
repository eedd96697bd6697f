"""The whole examination: every probe in its own child process, all at once.

Only the caller's terminal and switches are checked in this process, because a child has neither.
Everything ends within `SECONDS`; a missing or failed probe is "unknown". Nothing is guessed. Only
an untested version of Triton takes longer, once: the canary tries it.

A child writes one line of JSON for each finding at once, and a last line when it is complete. A
child that is killed at the deadline has thus already reported its findings.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from importlib import import_module
from typing import Any

from kmint_tui.doctor import gpu, machine, settings, triton
from kmint_tui.doctor.finding import BROKEN, Finding, guarded
from referee import python_child

# Each of these gives one finding.
QUICK = {
    "python": "kmint_tui.doctor.machine:python",
    "packages": "kmint_tui.doctor.machine:packages",
    "compiler": "kmint_tui.doctor.machine:compiler",
    "memory": "kmint_tui.doctor.machine:memory",
    "settings": "kmint_tui.doctor.settings:settings",
    "proxies": "kmint_tui.doctor.settings:proxies",
}
# Each gives several findings, and may load a driver, wait for a dead disk, or crash.
PROBES = {
    "gpu": "kmint_tui.doctor.gpu:gpu",
    "kernel": "kmint_tui.doctor.kernel:compiled",
    "replay": "kmint_tui.doctor.kernel:replayed",
    "llama.cpp": "kmint_tui.doctor.llama:llama",
    "sandbox": "kmint_tui.doctor.sandbox:sandbox",
    "smith": "kmint_tui.doctor.sandbox:smith",
    "store": "kmint_tui.doctor.models:store_probe",
}
SLOW = "run it again when the machine is less busy"
LAST_WORD = b"done\n"
READING_SECONDS = 0.25
READ_BYTES = 1 << 16
SECONDS = 9.0
"""Seconds for the whole examination."""


class Child:
    """A started probe. The caller must close it in every case."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._words = tempfile.TemporaryFile()
        start = "import sys; from kmint_tui.doctor.examination import main; main(sys.argv[1])"
        self._process = subprocess.Popen(
            python_child.command(start, name),
            cwd=python_child.WORKING_FOLDER,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._words,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self._out = self._process.stdout
        self._text = b""
        self._returned = 0

    @property
    def pid(self) -> int:
        """Process id of the child, which leads its own process group."""
        return self._process.pid

    def fileno(self) -> int:
        """The descriptor to wait for before `read`."""
        return self._out.fileno()

    def read(self) -> tuple[tuple[Finding, ...], bool]:
        """The findings since the last call, and whether the child is complete. May wait."""
        block = os.read(self.fileno(), READ_BYTES)
        self._text += block
        fresh = self._fresh()
        return (fresh, False) if block else ((*fresh, *self._ending("")), True)

    def cut_short(self) -> tuple[Finding, ...]:
        """Kill the child; returns its findings and one that it ran out of time."""
        self._kill()
        while block := os.read(self.fileno(), READ_BYTES):
            self._text += block
        return (*self._fresh(), *self._ending("not finished in time"))

    def _fresh(self) -> tuple[Finding, ...]:
        found = _read(self._text)
        returned, self._returned = self._returned, len(found)
        return found[returned:]

    def _ending(self, trouble: str) -> tuple[Finding, ...]:
        """A finding for the child's failure, if it failed."""
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
        return (
            Finding(
                f"{self.name} (the rest)" if self._returned else self.name, "unknown", trouble, fix
            ),
        )

    def close(self) -> None:
        """Kill the child if it still runs; the referee's workers end with it.

        May be called repeatedly.
        """
        self._kill()
        self._process.wait()
        self._out.close()
        self._words.close()

    def _kill(self) -> None:
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)


def listen(children: Sequence[Child], deadline: float) -> Iterator[Finding]:
    """Every finding of all children as it comes.

    Children that are not complete at `deadline` (of `time.monotonic`) are killed.
    """
    with selectors.DefaultSelector() as waiting:
        for child in children:
            waiting.register(child, selectors.EVENT_READ, child)
        while waiting.get_map():
            # Findings that a child has already written are read even after the deadline.
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
    return tuple(
        Finding(**json.loads(line))
        for line in out.splitlines(keepends=True)
        if line.startswith(b"{") and line.endswith(b"}\n")
    )


def main(name: str) -> None:
    """Run one probe in this process. Findings go to stdout, other output of libraries to stderr."""
    out = os.dup(1)
    os.dup2(2, 1)
    module, _, function = (QUICK | PROBES)[name].partition(":")
    probe: Callable[[], Any] = getattr(import_module(module), function)
    findings: Iterable[Finding] = (guarded(name, probe),) if name in QUICK else probe()
    for finding in findings:
        os.write(out, json.dumps(asdict(finding)).encode() + b"\n")
    os.write(out, LAST_WORD)


def examine(
    *, offline: bool = False, seconds: float | None = None, started: list[Child] | None = None
) -> Iterator[Finding]:
    """Every finding as soon as it exists. `offline` means that the user forbids the network.

    Children that still run after `seconds` (None: `SECONDS`) are killed, and also when the caller
    stops early. They are added to `started`, so that another thread can end the examination by
    killing them.
    """
    deadline = time.monotonic() + (SECONDS if seconds is None else seconds)
    children: list[Child] = [] if started is None else started
    try:
        for name in (*PROBES, *QUICK):
            if name != "replay" or gpu.usable():
                children.append(Child(name))
        yield guarded("terminal", machine.terminal)
        yield guarded("offline", lambda: settings.offline(flag=offline))
        yield from listen(children, deadline)
        yield guarded("triton", triton.triton)
    finally:
        for child in children:
            child.close()

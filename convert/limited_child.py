"""Runs a module of this package on a stranger's data, in a child process with limits.

A regular expression, and a tokenizer made of some, can run for ever on a short text. The child's
limits of processor time and memory end it. `ask` is the parent's side, `serve` the child's.
"""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from convert import python_child
from convert.parent_death import end_with

WALL_SECONDS = 600.0
"""Seconds of real time after which a child is killed."""

_LAST_LINE = 300


class ChildFailed(Exception):
    """The child gave no answer; the message is the reason."""


def ask(module: str, request: object, *, seconds: int, memory_bytes: int) -> Any:
    """The answer of `convert.MODULE` to a JSON document. Its limits count once it has loaded.

    Raises ChildFailed.
    """
    limits = (str(seconds), str(memory_bytes), str(os.getpid()))
    try:
        done = subprocess.run(
            python_child.module_command(f"convert.{module}", *limits),
            cwd=python_child.WORKING_FOLDER,
            input=json.dumps(request).encode(),
            capture_output=True,
            timeout=WALL_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise ChildFailed(f"it did not end within {WALL_SECONDS:.0f} s") from None
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        raise ChildFailed(f"it takes more than {seconds} s of processor time")
    output = done.stderr.decode("utf-8", "replace").strip().splitlines()
    if done.returncode != 0:
        last = output[-1][:_LAST_LINE] if output else f"status {done.returncode}"
        raise ChildFailed(
            f"it takes more than {memory_bytes >> 20} MiB"
            if last.startswith("MemoryError")
            else last
        )
    return json.loads(done.stdout)


def serve(work: Callable[[Any], object]) -> None:
    """Answer the request on stdin with `work`, under the limits of the command line."""
    end_with(int(sys.argv[3]))
    request = json.load(sys.stdin)
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = math.ceil(used.ru_utime + used.ru_stime) + int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]), int(sys.argv[2])))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    json.dump(work(request), sys.stdout)

"""Runs a module of this package in a child process; a llama.cpp step's end, however it ends, becomes a result or an error."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from convert.errors import ConvertError

_LAST_LINES = 3


def command_of(module: str, *arguments: str) -> list[str]:
    """The command that runs `convert.MODULE`; a `convert.py` or `numpy.py` in the current folder is not taken for the real one."""
    root = str(Path(__file__).resolve().parents[1])
    start = f"import runpy, sys; sys.path.append({root!r}); runpy.run_module('convert.{module}', run_name='__main__', alter_sys=True)"
    return [sys.executable, "-P", "-c", start, *arguments]


def call(command: str, request: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """(answer, llama.cpp's log). Raises ConvertError with the log's last lines when the child fails or dies."""
    with subprocess.Popen(
        command_of("llama_worker", command),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        try:
            out, log = child.communicate(json.dumps(request).encode())
        except BaseException:
            child.kill()
            raise
    text = log.decode(errors="replace")
    try:
        answer = json.loads(out)
    except ValueError:
        answer = {"error": f"llama.cpp ended with status {child.returncode}"}
    if "ok" not in answer:
        tail = " | ".join(line for line in text.splitlines()[-_LAST_LINES:] if line.strip())
        raise ConvertError(f"{command}: {answer.get('error')} ({tail})" if tail else f"{command}: {answer.get('error')}")
    return answer["ok"], text

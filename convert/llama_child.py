"""Runs one llama.cpp step (`llama_worker.py`) in a child process and turns its end, however it ends, into a result or an error."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from convert.errors import ConvertError

_LAST_LINES = 3


def call(command: str, request: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """(answer, llama.cpp's log). Raises ConvertError with the log's last lines when the child fails or dies."""
    with subprocess.Popen(
        [sys.executable, "-m", "convert.llama_worker", command],
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

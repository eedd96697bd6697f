"""Runs a step of llama.cpp in a child process; each end becomes a result or an error."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from convert import python_child
from convert.errors import ConvertError
from convert.json_text import parse_json

_LAST_LINES = 3


def call(command: str, request: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The answer and llama.cpp's log; the child gets every Path of the request as an absolute one.

    Raises ConvertError with the log's last lines when the child fails or dies.
    """
    with subprocess.Popen(
        python_child.module_command("convert.llama_worker", command, str(os.getpid())),
        cwd=python_child.WORKING_FOLDER,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        try:
            out, log = child.communicate(json.dumps(request, default=_absolute).encode())
        except BaseException:
            child.kill()
            raise
    text = log.decode(errors="replace")
    try:
        answer = parse_json(out)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        answer = {"error": f"llama.cpp ended with status {child.returncode}"}
    if "ok" not in answer:
        tail = " | ".join(line for line in text.splitlines()[-_LAST_LINES:] if line.strip())
        raise ConvertError(
            f"{command}: {answer.get('error')} ({tail})"
            if tail
            else f"{command}: {answer.get('error')}"
        )
    return answer["ok"], text


def _absolute(path: Path) -> str:
    return str(path.absolute())

"""Runs the real command in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """stdout as one JSON document."""
        document = json.loads(self.out)
        assert isinstance(document, dict)
        return document


def kmint(
    *arguments: str, stdin: bytes = b"", file_limit: int | None = None, **environment: str
) -> Done:
    """Run `kmint` with these arguments. Whatever it does, a traceback is a failure of the test.

    `file_limit` is the longest file in bytes that the command may write, which stands in for a full
    disk.
    """
    command = [sys.executable, "-m", "kmint_tui", *arguments]
    if file_limit is not None:
        command = ["prlimit", f"--fsize={file_limit}", *command]
        # Python takes a module's file that the limit cut short for a whole one, in this run and in
        # every later one.
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
    done = subprocess.run(
        command, input=stdin, capture_output=True, env={**os.environ, **environment}
    )
    out, err = done.stdout.decode(), done.stderr.decode()
    assert "Traceback" not in err, err
    return Done(done.returncode, out, err)

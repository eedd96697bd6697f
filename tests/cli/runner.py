"""Runs the real command: in a process of its own, or with the fixture `warm` in the process of the
tests.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from kmint_tui.cli.main import main

if TYPE_CHECKING:
    from referee.judge import Referee

warm: Callable[[], Referee] | None = None
"""The referee that commands find open where they run in this process."""


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
    if warm is not None and not stdin and file_limit is None:
        return _here(warm, arguments, environment)
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


# What a process of its own does not show, because only a program's author can mend it.
_UNSEEN = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)


def _here(
    referee: Callable[[], Referee], arguments: tuple[str, ...], environment: dict[str, str]
) -> Done:
    @contextmanager
    def opened(**_: object) -> Iterator[Referee]:
        yield referee()

    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="\n") for _ in range(2))
    with (
        patch.dict(os.environ, environment),
        patch("referee.judge.Referee", opened),
        warnings.catch_warnings(),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        warnings.resetwarnings()
        for category in _UNSEEN:
            warnings.simplefilter("ignore", category)
        code = main(list(arguments))
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())
    assert "Traceback" not in texts[1], texts[1]
    return Done(code, *texts)

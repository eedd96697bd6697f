"""Runs a program of this folder in Triton's interpreter, which has to be chosen before triton is
imported.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def in_interpreter(program: str) -> tuple[int, str]:
    """The exit code and what went to standard error; (0, "") when the program found nothing wrong."""
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(HERE.parents[2])}
    done = subprocess.run(
        [sys.executable, str(HERE / program)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr

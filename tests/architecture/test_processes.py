"""How the tests are shared among processes: a fixture that a file makes for all of its tests is
made once.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_file_stays_in_one_process() -> None:
    file = "tests/test_typed.py"
    command = [sys.executable, "-m", "pytest", "-n", "2", "-v", "-p", "no:cacheprovider", file]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    processes = re.findall(r"^\[(gw\d)\].*PASSED", done.stdout, re.MULTILINE)
    assert len(processes) > 2 and len(set(processes)) == 1

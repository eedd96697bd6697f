"""Runs a model file's chat template in a process of its own, because it is a program from a stranger.

jinja2's sandbox keeps a template from reaching the system, but not from looping for ever or filling the memory; the
process's limits do. They are the template's own: what starting the process took, on a slow machine seconds, is not counted.
`main` is that process: template on stdin, reason on stdout.
"""

from __future__ import annotations

import math
import resource
import subprocess
import sys
from pathlib import Path

CPU_SECONDS, WALL_SECONDS, MEMORY_BYTES = 3, 120, 1 << 30
_ENDLESS = "the chat template fails: it takes too much time or memory"


def refusal(template: str) -> str:
    """Why the template cannot be used with thinking switched off; "" when it can."""
    root = str(Path(__file__).resolve().parents[2])
    start = f"import sys; sys.path.append({root!r}); from kmint_tui.models.template_check import main; main()"
    try:
        done = subprocess.run(
            [sys.executable, "-c", start], input=template.encode("utf-8", "replace"), capture_output=True, timeout=WALL_SECONDS
        )
    except subprocess.TimeoutExpired:
        return _ENDLESS
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else _ENDLESS


def main() -> None:
    """Render a prompt with the template on stdin; write the reason for refusing it, if there is one, to stdout."""
    import jinja2.sandbox  # noqa: F401  # what `render` loads late is loaded before the limits begin

    from kmint_tui.smith.prompts import Prompt
    from kmint_tui.smith.template import TemplateRefused, render

    template = sys.stdin.buffer.read().decode("utf-8", "replace")
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = math.ceil(used.ru_utime + used.ru_stime) + CPU_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        render(Prompt("Write kernels.", "Op `probe`: nothing."), template, bos="")
    except TemplateRefused as refused:
        sys.stdout.write(refused.reason)

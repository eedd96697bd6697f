"""A candidate's file in the trace worker: its import and its kernels, the time that it may take, and
the places of its exceptions.

Limits: no timer here interrupts one long operation, such as a power of numbers. The worker's own
limit does (`trace.SECONDS`), and `reading/bombs.py` refuses such constants beforehand.
"""

from __future__ import annotations

import ast
import signal
import sys
import textwrap
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, ModuleType
from typing import Any

import torch
import triton
import triton.language as tl

from referee.reading.kernels import extract
from referee.reading.module_scope import read
from referee.reading.source import parse
from referee.tracing.taken import Taken
from referee.triton_compat import jit_kernels

MAX_MESSAGE = 240
IMPORT_SECONDS, CALL_SECONDS = 3.0, 5.0
"""Seconds of processor time. A file of kernels takes milliseconds."""
AGAIN = 10
"""Number of looks at the time in each further period of the seconds."""


def import_run(module: ModuleType, source: str, path: str, taken: Taken) -> Callable[..., Any]:
    """Import the candidate's file as a module and return its `run`.

    Triton reads kernel sources back from the file. The comparisons of sizes note in `taken` how
    they come out. Raises AttributeError without a `run`, and whatever the file raises.
    """
    with open(path, "w", encoding="utf-8", errors="surrogatepass") as file:
        file.write(source)
    module.__file__ = path
    module.__dict__.update(torch=torch, triton=triton, tl=tl)
    sys.modules[module.__name__] = module
    exec(taken.noting(source, path, module), module.__dict__)
    run = module.__dict__.get("run")
    if not callable(run):
        raise AttributeError("the file does not define `run`")
    checked: Callable[..., Any] = run
    return checked


def describe(error: BaseException, path: str) -> str:
    """One line: the line in the candidate's file, the exception's type, and its message."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == path]
    where = f"line {lines[-1]}: " if lines else ""
    message = " ".join(str(error).split())[:MAX_MESSAGE]
    called = f" ({notes[-1]})" if (notes := getattr(error, "__notes__", ())) else ""
    return f"{where}{type(error).__name__}{': ' if message else ''}{message}{called}"


@contextmanager
def within(seconds: float, path: str, late: Callable[[str], BaseException]) -> Iterator[None]:
    """Raise the error that `late` makes of the running line at `path` when time is up."""

    begun = time.process_time()

    def up(number: int, frame: FrameType | None) -> None:
        # The timer counts whole ticks, on a busy machine more than the process has run.
        if time.process_time() - begun < seconds:
            return
        while frame is not None and frame.f_code.co_filename != path:
            frame = frame.f_back
        raise late(f"line {frame.f_lineno}: " if frame is not None else "")

    before = signal.signal(signal.SIGPROF, up)
    # The timer repeats, because a candidate may catch the error and go on, or have time left.
    signal.setitimer(signal.ITIMER_PROF, seconds, seconds / AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


class Raised:
    """Knows the lines of a file that raise. There the file refuses a call, and its launches in other
    calls stay valid. Any other exception is a fault of the file.
    """

    def __init__(self, source: str, path: str) -> None:
        self._path = path
        self._lines = {
            line
            for node in ast.walk(parse(source))
            if isinstance(node, (ast.Raise, ast.Assert))
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
        }

    def by_itself(self, error: BaseException) -> bool:
        """True when a `raise` or `assert` of the file raised the error."""
        last = traceback.extract_tb(error.__traceback__)[-1:]
        return any(one.filename == self._path and one.lineno in self._lines for one in last)


class Kernels:
    """The kernels of the imported file. A plan names a kernel, and the judge compiles its own cut of
    the text under this name. So a launch must be of the function that the text defines.
    """

    def __init__(self, source: str, module: ModuleType) -> None:
        """Raises KernelError when no kernels can be cut out of the source."""
        self._names = vars(module)
        functions = read(parse(source)).functions
        self._texts = {name: _text_of(functions[name], source) for name in extract(source).kernels}
        self._known: dict[int, Any] = {}

    def has(self, jit: Any) -> bool:
        """True for a kernel that the file defines and binds to its name at the top level."""
        name = str(jit.__name__)
        if name not in self._texts or jit_kernels.innermost(self._names.get(name)) is not jit:
            return False
        if id(jit) not in self._known and ast.dump(ast.parse(jit.src)) == self._texts[name]:
            self._known[id(jit)] = jit
        return id(jit) in self._known


def _text_of(function: ast.FunctionDef, source: str) -> str:
    lines = ast.get_source_segment(source.removeprefix("\ufeff"), function, padded=True)
    return ast.dump(ast.parse(textwrap.dedent(lines or "")))

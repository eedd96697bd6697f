"""Source as trees: from many threads at once, as sessions and the application parse it."""

from __future__ import annotations

import ast
import gc
import sys
import threading
import time

import pytest

from kmint_tui.smith import canonical
from referee.reading.source import parse
from tests.referee.trace.good import GOOD


def _let_others_run(phase: str, info: object) -> None:
    time.sleep(0)


@pytest.mark.parametrize("parser", [parse, canonical.parse])
def test_threads_that_parse_do_not_disturb_each_other(parser: object) -> None:
    assert callable(parser)
    sources, errors = [good.source for good in GOOD.values()][:20], list[str]()

    def work() -> None:
        for source in sources:
            try:
                parser(source)
            except SystemError as error:
                errors.append(str(error))

    # A collection of garbage while the parser makes a tree is where another thread may come in
    # between.
    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-5)
    gc.set_threshold(20)
    gc.callbacks.append(_let_others_run)
    try:
        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        gc.callbacks.remove(_let_others_run)
        gc.set_threshold(*threshold)
        sys.setswitchinterval(interval)
    assert errors == []


def test_a_thread_without_the_lock_costs_nobody_a_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.11 raises SystemError where another thread, inside PyTorch, made a tree meanwhile."""
    parse_once, calls = ast.parse, list[str]()

    def disturbed(text: str, **options: object) -> ast.AST:
        calls.append(text)
        if len(calls) < 3:
            raise SystemError("AST constructor recursion depth mismatch (before=33, after=19)")
        return parse_once(text)

    monkeypatch.setattr(ast, "parse", disturbed)
    assert ast.dump(parse("x = 1")) == ast.dump(parse_once("x = 1")) and len(calls) == 3

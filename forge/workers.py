"""Runs a function over many arguments in several fresh processes.

A process that dies ends the run with an error.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TypeVar

Argument = TypeVar("Argument")
Result = TypeVar("Result")


def start(processes: int) -> ProcessPoolExecutor:
    """Processes that import everything again, each with one thread of torch. A context manager."""
    return ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), _prepare)


def results(
    function: Callable[[Argument], Result], arguments: Iterable[Argument], processes: int
) -> Iterator[Result]:
    """The results in the order in which they arrive.

    Raises BrokenProcessPool, and the function's exceptions.
    """
    with start(processes) as pool:
        try:
            for done in as_completed([pool.submit(function, argument) for argument in arguments]):
                yield done.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _prepare() -> None:
    import warnings

    warnings.simplefilter("ignore")
    import torch

    torch.set_num_threads(1)

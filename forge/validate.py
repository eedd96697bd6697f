"""Lets the referee judge the corpus.

    python -m forge.validate OUT.txt --seconds 300 --processes 60

One file holds the kernels of several random functions; if it fails, each kernel is judged alone.
Kernels of the catalogue are judged as their operations. OUT lists the digests of the kernels that
passed, one a line. Kernels that `--known` lists are not judged again.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from forge.corpus import SEEDS, catalogue_examples, seed_kernels
from forge.digests import digest_of
from forge.graph_task import Sample, file_of, is_steady, sample, task
from forge.passed import read_passed
from kmint_tui.graph.operations import catalogue_program
from kmint_tui.template.write import program_source
from referee.judge import Referee

TOGETHER = 10
"""Kernels of one file."""


def samples_of(seeds: Sequence[int], known: frozenset[str]) -> Iterator[Sample]:
    """The kernels of the seeds that can be judged and are not known."""
    for seed in seeds:
        found = seed_kernels(seed)
        for source in found[1] if found is not None else ():
            if digest_of(source) not in known and is_steady(one := sample(seed, source)):
                yield one


def judge_samples(referee: Referee, samples: Sequence[Sample]) -> Iterator[tuple[str, str]]:
    """The digest of every kernel with the reason for its rejection, "" for one that passed."""
    verdict = referee.judge(file_of(samples), task(samples), level="correct", seed=1)
    reason = "" if verdict.passed else f"{verdict.stage}/{verdict.guard}: {verdict.reason}"
    if reason and len(samples) > 1:
        for one in samples:
            yield from judge_samples(referee, [one])
        return
    yield from ((digest_of(one.kernel), reason) for one in samples)


def catalogue_kernels() -> Iterator[tuple[str, str]]:
    """Every kernel of the catalogue's part of the corpus with its operation, each kernel once."""
    seen = set[str]()
    for name, source, _ in catalogue_examples():
        if source not in seen:
            seen.add(source)
            yield name, source


def judge_catalogue(referee: Referee, name: str, source: str) -> str:
    """The reason for the rejection of a kernel; "" when it passed."""
    program = catalogue_program(name)
    assert program is not None
    verdict = referee.judge(program_source(program, {0: source}), name, level="correct", seed=1)
    return "" if verdict.passed else f"{name} {verdict.stage}/{verdict.guard}: {verdict.reason}"


def _work(
    number: int, processes: int, until: float, folder: str, seeds: int, known: frozenset[str]
) -> None:
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[number % len(cores)]})
    import torch

    torch.set_num_threads(1)
    path = Path(folder) / f"{number}.txt"
    with Referee(mode="interpret") as referee, path.open("a", encoding="utf-8") as out:

        def write(digest: str, reason: str) -> None:
            out.write(f"{digest} {reason}\n")
            out.flush()

        for name, source in list(catalogue_kernels())[number::processes]:
            if digest_of(source) not in known and time.time() < until:
                write(digest_of(source), judge_catalogue(referee, name, source))
        waiting: list[Sample] = []
        for one in samples_of(range(number, seeds, processes), known):
            waiting.append(one)
            if len(waiting) == TOGETHER:
                for digest, reason in judge_samples(referee, waiting):
                    write(digest, reason)
                waiting = []
            if time.time() > until:
                break


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="judge the corpus")
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--known", type=Path, help="digests of kernels that passed before")
    arguments = parser.parse_args()
    known = read_passed(arguments.known) if arguments.known else frozenset()
    folder = arguments.out.with_suffix(".parts")
    folder.mkdir(parents=True, exist_ok=True)
    until = time.time() + arguments.seconds
    context = multiprocessing.get_context("spawn")
    given = [
        (number, arguments.processes, until, str(folder), arguments.seeds, known)
        for number in range(arguments.processes)
    ]
    workers = [context.Process(target=_work, args=one) for one in given]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(arguments.seconds + 60)
        if worker.is_alive():
            worker.kill()
    lines = [
        line
        for path in sorted(folder.glob("*.txt"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    passed = sorted({line.split(" ", 1)[0] for line in lines if line.endswith(" ")} | known)
    arguments.out.write_text("".join(f"{digest}\n" for digest in passed), encoding="utf-8")
    fallen = [line for line in lines if not line.endswith(" ")]
    print(f"{len(passed)} kernels passed, {len(fallen)} fell")
    for line in fallen[:40]:
        print("  ", line[:220])


if __name__ == "__main__":
    main()

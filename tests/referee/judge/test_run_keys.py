"""Candidates of one structure, judged at one seed: the interpreter runs one of them, and the
others' verdicts say so.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from referee import Referee, Verdict
from referee.sandbox.zygote import Workers

KERNELS = {
    "first": ("s = x * tl.sigmoid(x)", "s", "num_warps=4"),
    "renamed": ("t = x * tl.sigmoid(x)", "t", "num_warps=4"),
    "options": ("s = x * tl.sigmoid(x)", "s", "num_warps=8, num_stages=2"),
    "otherwise": ("s = x / (1 + tl.exp(-x))", "s", "num_warps=4"),
    "blocks": ("s = x * tl.sigmoid(x)", "s", "num_warps=4"),
    "wrong": ("s = x * tl.sigmoid(1.1 * x)", "s", "num_warps=4"),
}


def source(name: str) -> str:
    """Silu, written like this."""
    body, value, options = KERNELS[name]
    return f"""
@triton.jit
def kernel_{name}(x_ptr, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0).to(tl.float32)
    {body}
    tl.store(out + at, {value}, mask=at < n)

def run(x):
    out = torch.empty_like(x)
    block = {2048 if name == "blocks" else 1024}
    kernel_{name}[(triton.cdiv(x.numel(), block),)](x, out, x.numel(), BLOCK=block, {options})
    return out
"""


@pytest.fixture(scope="module")
def referee() -> Iterator[Referee]:
    """One of this file, because other tests replace a method of the shared workers."""
    with Referee(mode="interpret") as opened:
        yield opened


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The entries of all jobs from now on."""
    seen: list[str] = []
    run = Workers.run

    def noted(self: Workers, entry: str, payload: bytes, **options: object) -> object:
        seen.append(entry.partition(":")[2])
        return run(self, entry, payload, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Workers, "run", noted)
    return seen


def shared(verdict: Verdict) -> bool:
    """Whether the verdict says that another candidate's runs stand for its own."""
    return any(check.name == "same_runs" and check.status == "pass" for check in verdict.checks)


def test_a_structure_is_interpreted_once_at_a_seed(referee: Referee, jobs: list[str]) -> None:
    """Names, warps and stages make no difference; every candidate is traced and
    compiled all the same.
    """
    first = referee.judge(source("first"), "silu", seed=5)
    runs = jobs.count("interpret_entry")
    assert first.verdict == "correct" and not shared(first) and runs > 1
    for name in ("renamed", "options"):
        jobs.clear()
        verdict = referee.judge(source(name), "silu", seed=5)
        assert verdict.verdict == "correct" and shared(verdict), verdict.reason
        assert verdict.cells == first.cells
        assert (
            jobs.count("interpret_entry") <= 1
            and jobs.count("trace_entry") > 1
            and "compile_entry" in jobs
        )


def test_whatever_is_not_the_same_is_run(referee: Referee, jobs: list[str]) -> None:
    """Another structure, another plan, another seed, and no seed."""
    referee.judge(source("first"), "silu", seed=6)
    runs = jobs.count("interpret_entry")
    for name, seed in (("otherwise", 6), ("blocks", 6), ("first", 7), ("first", None)):
        jobs.clear()
        verdict = referee.judge(source(name), "silu", seed=seed)
        assert verdict.verdict == "correct" and not shared(verdict)
        assert jobs.count("interpret_entry") == runs


def test_a_failure_is_found_in_each_candidate(referee: Referee, jobs: list[str]) -> None:
    """The words for what is wrong are about the candidate's own names."""
    verdicts = [
        referee.judge(source("wrong").replace("x_ptr", name), "silu", seed=8)
        for name in ("left", "right")
    ]
    assert [verdict.guard for verdict in verdicts] == ["wrong_answer"] * 2
    assert jobs.count("interpret_entry") > 1 and not any(map(shared, verdicts))


def test_at_once_one_waits_for_the_other(referee: Referee, jobs: list[str]) -> None:
    """Two threads judge two candidates of one structure; each part is run for one of them."""
    alone = referee.judge(source("first"), "silu", seed=9)
    runs = jobs.count("interpret_entry")
    jobs.clear()
    with ThreadPoolExecutor(2) as pool:
        verdicts = list(
            pool.map(
                lambda name: referee.judge(source(name), "silu", seed=10), ("first", "renamed")
            )
        )
    assert [verdict.verdict for verdict in verdicts] == ["correct"] * 2
    assert len(alone.cells) > 100 and jobs.count("interpret_entry") <= runs + 1

"""Triton's switches in the environment reach the workers, the verdict and every comparison."""

from __future__ import annotations

from pathlib import Path

import pytest

from referee.gpu.worker_process import worker_environment
from referee.judge import Referee
from referee.versions import (
    FP_FUSION,
    HONOURED,
    compiler_name,
    compiler_reservation,
    left_out,
    switches,
)

SILU = """
@triton.jit
def kernel(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count, other=0.0).to(tl.float32)
    tl.store(y_ptr + at, x * tl.sigmoid(x), mask=at < count)


def run(x):
    y = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y
"""


def test_the_default_follows_the_version() -> None:
    assert switches("3.6.0", {}) == switches("3.9.0", {}) == {FP_FUSION: "1"}
    assert switches("3.10.0", {}) == {FP_FUSION: "0"}


@pytest.mark.parametrize(("given", "value"), [("0", "0"), ("off", "0"), ("TRUE", "1"), ("y", "1")])
def test_the_user_decides(given: str, value: str) -> None:
    assert switches("3.10.0", {FP_FUSION: given})[FP_FUSION] == value
    assert left_out({FP_FUSION: given}) == ()


def test_what_is_unknown_or_unsafe_is_named() -> None:
    given = {
        FP_FUSION: "perhaps",
        "PTXAS_OPTIONS": "-O0",
        "TRITON_F32_DEFAULT": "tf32x3",
        "HOME": "/",
    }
    assert switches("3.7.0", given) == {FP_FUSION: "1", "TRITON_F32_DEFAULT": "tf32x3"}
    assert left_out(given) == (FP_FUSION, "PTXAS_OPTIONS")


def test_verdicts_under_different_switches_differ() -> None:
    usual = {"triton": "3.7.1", "switches": {FP_FUSION: "1"}}
    assert compiler_name(usual) == compiler_name({"triton": "3.7.1"}) == "3.7.1"
    assert (
        compiler_name({"triton": "3.7.1", "switches": {FP_FUSION: "0"}}) == f"3.7.1 {FP_FUSION}=0"
    )


def test_a_verdict_says_what_it_was_reached_under(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler sees the switch: fused and unfused kernels are compiled to different code."""
    identities = {}
    for value in ("1", "0"):
        monkeypatch.setenv(FP_FUSION, value)
        monkeypatch.setenv("DISABLE_LLVM_OPT", "1")
        with Referee(mode="interpret") as referee:
            verdict = referee.judge(SILU, "silu", seed=1)
        assert verdict.environment["switches"] == {FP_FUSION: value}
        assert verdict.environment["switches_left_out"] == ["DISABLE_LLVM_OPT"]
        assert (
            verdict.passed
            and "set in the environment and left out: DISABLE_LLVM_OPT" in verdict.reason
        )
        identities[value] = compiler_name(verdict.environment)
    assert identities["1"] != identities["0"]


def test_baselines_of_different_switches_share_no_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folders = []
    for values in ({}, {FP_FUSION: "1"}, {FP_FUSION: "0"}, {"DISABLE_PTXAS_OPT": "1"}):
        for name in HONOURED:
            monkeypatch.delenv(name, raising=False)
        for name, value in values.items():
            monkeypatch.setenv(name, value)
        found = worker_environment(tmp_path)
        assert values.items() <= found.items()
        folders.append(found["TORCHINDUCTOR_CACHE_DIR"])
    assert folders[0] == folders[1] == str(tmp_path / "inductor")
    assert len(set(folders)) == 3


def test_an_untested_version_is_named() -> None:
    assert (
        compiler_reservation({"triton": "3.10.0", "triton_tested": False})
        == "triton 3.10.0 is not a tested version"
    )
    assert (
        compiler_reservation({"triton": "3.7.1", "triton_tested": True})
        == compiler_reservation({})
        == ""
    )

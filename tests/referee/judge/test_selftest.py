"""The corpus of known kernels and the runner that holds the referee to them."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from referee import ops
from referee.selftest import runner
from referee.selftest.corpus import ACCEPTED, KINDS, Specimen, load
from referee.selftest.runner import ROWS, Result, SelftestReport, run, specimens
from referee.verdict import Verdict

SAMPLE = {
    "gold": ("pairs_rope_interleaved", "welford_layernorm_hardtanh"),
    "wrong": (
        "softmax_no_max",
        "rmsnorm_no_eps",
        "swiglu_swapped",
        "cross_entropy_no_rescale",
        "gemma_no_boundary_check",
    ),
    "cheats": (
        "025_call_counting_even",
        "059_input_zeroed",
        "073_lucky_race",
        "080_disguised_operator",
        "042_identity_memo",
    ),
}


def test_the_corpus_is_as_large_as_promised() -> None:
    gold, wrong, cheats = (load(kind) for kind in KINDS)
    assert len(gold) >= 40 and len(wrong) >= 60 and len(cheats) >= 100
    assert len(
        {re.sub(r"#.*", "", specimen.source) for specimen in (*gold, *wrong, *cheats)}
    ) == len(gold) + len(wrong) + len(cheats)


def test_gold_covers_every_signature_and_family() -> None:
    covered = [ops.get(specimen.op) for specimen in load("gold")]
    assert {op.kind for op in ops.catalogue()} <= {op.kind for op in covered}
    assert {op.family for op in ops.catalogue()} <= {op.family for op in covered}
    assert {act for op in ops.catalogue() for act in op.acts} <= {
        act for op in covered for act in op.acts
    }
    assert len({specimen.header["structure"] for specimen in load("gold")}) >= 15


@pytest.mark.parametrize("kind", KINDS)
def test_headers_are_complete(kind: str) -> None:
    for specimen in load("gold" if kind == "gold" else "wrong" if kind == "wrong" else "cheats"):
        ops.get(specimen.op)
        assert specimen.title and specimen.runs_on("replay") | specimen.runs_on("interpret")
        if kind != "gold":
            assert all(
                re.fullmatch(r"[a-z_]+", guard)
                for guard in specimen.expected("interpret") | specimen.expected("replay")
            )
        if kind == "cheats":
            assert 1 <= int(specimen.header["cheat"]) <= 101
            assert specimen.name.startswith(f"{int(specimen.header['cheat']):03d}_")


def test_the_referee_is_right_about_a_sample() -> None:
    chosen = [specimen for specimen in specimens(KINDS) if specimen.name in SAMPLE[specimen.kind]]
    assert len(chosen) == sum(map(len, SAMPLE.values()))
    report = run(chosen, mode="interpret")
    assert report.passed, list(runner.failures(report))
    assert len(report.results) == len(chosen) + len(SAMPLE["cheats"])
    # Some need a word that another version of Triton has.
    skipped = Counter(result.row for result in report.results if result.status == "skipped")
    assert all(number <= 1 for number in skipped.values())
    counted = sum(map(sum, map(dict.values, report.matrix.values())))
    assert counted + skipped.total() == len(report.results)


def test_a_referee_that_errs_does_not_pass() -> None:
    gold = next(specimen for specimen in load("gold") if specimen.name == "flat_silu")
    wrong = next(specimen for specimen in load("wrong") if specimen.name == "silu_no_factor")
    swapped = [
        replace(gold, kind="wrong", header={**gold.header, "guard": "wrong_answer"}),
        replace(wrong, kind="gold"),
        replace(wrong, header={**wrong.header, "guard": "out_of_bounds"}),
        replace(gold, header={**gold.header, "needs": "gpu"}),
    ]
    report = run(swapped, mode="interpret")
    assert [result.status for result in report.results] == [
        "false accept",
        "false reject",
        "wrong guard",
        "skipped",
    ]
    assert not report.passed and len(list(runner.failures(report))) == 3
    assert report.matrix["wrong"] == {
        "accepted": 1,
        "intended guard": 0,
        "another guard": 1,
        "error": 0,
    }
    assert report.to_json()["passed"] is False and len(report.to_json()["failures"]) == 3


def test_an_interrupt_ends_what_is_being_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("flat_silu", "silu_no_factor", "100_lingering_kernel")
    quick, other, endless = (
        next(one for one in specimens(KINDS) if one.name == name) for name in names
    )
    judged, told = runner._judge_specimen, list[Result]()

    def noted(*job: Any) -> tuple[Result, Verdict | None]:
        result, verdict = judged(*job)
        told.append(result)
        return result, verdict

    def interrupt(result: Result) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "_judge_specimen", noted)
    with pytest.raises(KeyboardInterrupt):
        run([quick, endless, *[other] * 20], mode="interpret", on_result=interrupt)
    # Left alone, the kernel that never ends would have got its verdict, and so would all the
    # others.
    assert {result.status for result in told if result.name == endless.name} <= {"error"}
    assert len(told) < 12


def test_an_empty_selftest_does_not_pass() -> None:
    assert not SelftestReport("interpret", (), {}, 0.0).passed


def test_a_failure_of_the_referee_s_own_counts() -> None:
    result = Result("gold", "x", "softmax", "t", "error", (ACCEPTED,), "referee", "lost", 0.0)
    report = SelftestReport("interpret", (result,), {}, 0.0)
    assert (
        not report.passed
        and report.matrix["gold"]["error"] == 1
        and set(report.matrix) == set(ROWS)
    )


def test_expected_guards_by_path() -> None:
    header = {"op": "softmax", "guard": "a", "guard on a GPU": "b|c", "behind the screen": "d"}
    specimen = Specimen("cheats", "x", "softmax", "t", "", header)
    assert specimen.expected("interpret") == {"a", "host_code"} and specimen.expected("replay") == {
        "b",
        "c",
        "host_code",
    }
    assert specimen.expected("replay", strict=False) == {"d"}
    del header["behind the screen"]
    assert specimen.expected("interpret", strict=False) == {"a"} and specimen.expected(
        "replay", strict=False
    ) == {"b", "c"}

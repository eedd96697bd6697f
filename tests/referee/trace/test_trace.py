"""The judge's side of tracing: the sandbox run, and answers that a candidate has forged."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from referee.concurrency import CancelToken
from referee.ops import cells, get
from referee.plans.plan import LaunchPlan
from referee.plans.plan_parse import dump
from referee.reading.kernels import extract
from referee.sandbox.zygote import JobLost, Limits, Outcome, Zygote
from referee.target import Target, UnknownTarget
from referee.tracing.trace import GUARDS, MAX_REASON, MISSING, SECONDS, read_answer, trace
from referee.verdict import Rejection
from tests.referee.trace.bad import ALLOCATE, BAD, BAD_PLANS, COPY, LAUNCH, body
from tests.referee.trace.good import GOOD, rows

CELL = rows("x", shape=(3, 100))
HONEST = COPY + body(ALLOCATE, LAUNCH, "return y")


def rejected(zygote: Zygote, source: str) -> Rejection:
    result = trace(zygote, source, [CELL], Target())
    assert isinstance(result, Rejection)
    return result


def test_every_cell_of_an_op_gets_a_plan(zygote: Zygote) -> None:
    wanted = cells(get("softmax"), profile="gpu")
    plans = trace(zygote, GOOD["whole_row"].source, wanted, Target())
    assert isinstance(plans, tuple) and len(plans) == len(wanted) > 5
    assert all(isinstance(plan, LaunchPlan) for plan in plans)


@pytest.mark.parametrize(
    "name", ["softmax", "item", "memoised_output", "clusters", "exception", "nothing_returned"]
)
def test_a_rejection_names_stage_guard_and_shape(name: str, zygote: Zygote) -> None:
    rejection = rejected(zygote, BAD[name].source)
    assert (rejection.stage, rejection.guard) == ("trace", BAD[name].guard)
    assert (
        rejection.reason.startswith("at x [3, 100] float16: ")
        and BAD[name].says in rejection.reason
    )


@pytest.mark.parametrize("name", ["input_returned", "input_filled", "wrong_dtype", "no_launch"])
def test_plans_are_checked_by_the_judge(name: str, zygote: Zygote) -> None:
    assert rejected(zygote, BAD_PLANS[name].source).guard == BAD_PLANS[name].guard


def test_a_source_without_kernels_is_not_run(zygote: Zygote) -> None:
    assert rejected(zygote, "import os\n").stage == "screen"


ENDINGS = {
    "exit": ("exited", "import os\nos._exit(0)"),
    "crash": ("crash", "import ctypes\nctypes.string_at(0)"),
    "flood": ("flood", "while True:\n    print('x' * 100000)"),
    "memory": ("memory", "x = bytearray(8 << 30)"),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_a_candidate_that_ends_its_process_costs_only_itself(name: str, zygote: Zygote) -> None:
    status, attack = ENDINGS[name]
    result = trace(zygote, attack + "\n" + HONEST, [CELL], Target(), extract(HONEST))
    assert isinstance(result, Rejection)
    assert result.guard in (status, "trace_error"), result
    assert isinstance(trace(zygote, HONEST, [CELL], Target()), tuple)


def test_a_candidate_that_hangs_is_ended_by_its_processor_time(zygote: Zygote) -> None:
    rejection = trace(
        zygote,
        COPY + body("while True:", "    pass"),
        [CELL],
        Target(),
        seconds=1.0,
        patience=600.0,
    )
    assert isinstance(rejection, Rejection)
    assert (rejection.guard, "used up its processor time" in rejection.reason) == (
        "timeout",
        True,
    ), rejection


class Noting(Zygote):
    """Notes what its jobs may use, and runs none."""

    def run(
        self,
        entry: str,
        payload: bytes,
        *,
        limits: Limits,
        fds: Sequence[int] = (),
        cancel: CancelToken | None = None,
    ) -> Outcome:
        self.limits = limits
        return Outcome("ok", b"", "", 0.0)


def test_a_busy_machine_takes_none_of_a_trace_s_processor_time() -> None:
    with Noting() as zygote:
        rejected(zygote, HONEST)
        assert (zygote.limits.processor_seconds, zygote.limits.seconds > 2 * SECONDS) == (
            SECONDS,
            True,
        )
        trace(zygote, HONEST, [CELL], Target(), seconds=10.0, patience=1.0)
        assert (zygote.limits.processor_seconds, zygote.limits.seconds) == (10.0, 10.0)


def answered(data: bytes) -> tuple[LaunchPlan, ...] | Rejection:
    return read_answer(Outcome("ok", data, "", 0.0), [CELL], extract(HONEST))


FORGED = {
    "nothing": b"",
    "not_json": b"\xff\x00",
    "nested": b"[" * 100_000,
    "number": b"3",
    "no_plans": b"{}",
    "too_few": b'{"plans": []}',
    "too_many": b'{"plans": [1, 2]}',
    "plans_of_wrong_type": b'{"plans": {"0": 1}}',
    "not_a_number": b'{"plans": [NaN]}',
    "unknown_guard": b'{"rejection": {"guard": "pass", "reason": "", "cell": 0}}',
    "guard_of_wrong_type": b'{"rejection": {"guard": ["state"], "reason": "", "cell": 0}}',
    "reason_of_wrong_type": b'{"rejection": {"guard": "state", "reason": 3, "cell": 0}}',
    "rejection_of_wrong_type": b'{"rejection": 3}',
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_answers_are_rejections(name: str) -> None:
    result = answered(FORGED[name])
    assert isinstance(result, Rejection) and result.stage == "trace" and result.reason


def test_a_worker_killed_from_outside_is_nobody_s_fault() -> None:
    with pytest.raises(JobLost):
        read_answer(
            Outcome("crash", b"", "killed", 0.1, killed_outside=True), [CELL], extract(HONEST)
        )


def test_forged_reasons_are_one_printable_line() -> None:
    told = {
        "rejection": {
            "guard": "state",
            "reason": "a\x1b[31m\n\r\u202eb" + "c" * 5000,
            "cell": 10**30,
        }
    }
    result = answered(json.dumps(told).encode())
    assert isinstance(result, Rejection)
    assert (
        result.reason.isprintable()
        and len(result.reason) <= MAX_REASON
        and "\n" not in result.reason
    )


def test_an_honest_answer_is_read_back_whatever_its_source(zygote: Zygote) -> None:
    plans = trace(zygote, HONEST, [CELL], Target())
    assert isinstance(plans, tuple)
    assert answered(json.dumps({"plans": [dump(plans[0])]}).encode()) == plans


def test_a_forged_plan_gains_nothing_a_true_one_would_not(zygote: Zygote) -> None:
    # The candidate answers for itself: a plan that copies instead of computing is judged as just
    # that plan.
    forged = """
import json, os, sys
frame = sys._getframe()
while frame.f_code.co_name != "trace_source":
    frame = frame.f_back
"""
    result = trace(zygote, forged + HONEST, [CELL], Target(), extract(HONEST))
    assert result == trace(zygote, HONEST, [CELL], Target())


def test_every_guard_of_the_tracer_is_known_to_the_judge() -> None:
    assert {bad.guard for bad in BAD.values()} == GUARDS - {MISSING}


@pytest.mark.parametrize("name", ["sm_90", "sm_89", "sm90", "sm_90a"])
def test_targets_by_name(name: str) -> None:
    target = Target.parse(name)
    assert (
        target.name in ("sm_90", "sm_89")
        and Target.from_json(json.loads(json.dumps(target.to_json()))) == target
    )


@pytest.mark.parametrize("name", ["", "90", "sm_12", "gfx942", "sm_90 ", "sm_95"])
def test_unknown_targets_list_the_known_ones(name: str) -> None:
    with pytest.raises(UnknownTarget, match="sm_90"):
        Target.parse(name)

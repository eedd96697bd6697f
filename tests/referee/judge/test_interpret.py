"""The CPU path: what runs, what it computes, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch

from referee.concurrency import CancelToken
from referee.interpreter.interpret import Executed, Execution, _answer
from referee.plans.plan import LaunchPlan
from referee.reading.kernels import extract
from referee.sandbox.zygote import JobLost, Limits, Outcome, Zygote
from tests.referee.judge.interpreting import ROW, rejection, run
from tests.referee.judge.plans import HEADER, buffers_of, dense, launch, rowwise


def row(zygote: Zygote, x: torch.Tensor, result: str, body: str = "pass") -> torch.Tensor:
    plan = rowwise(
        "kernel", (x.shape[0], x.shape[1]), str(x.dtype).removeprefix("torch."), block=64
    )
    answer = run(zygote, ROW.format(body=body, result=result), Execution(plan, (x,)))[0]
    assert isinstance(answer, Executed), answer
    return answer.outputs[0]


LOOPS: dict[str, tuple[str, Callable[[int], float]]] = {
    "counter": (
        "for i in range(tl.program_id(0), 3):\n        total += i.to(tl.float32)",
        lambda row: float(sum(range(row, 3))),
    ),
    "stepped": ("for i in range(10, 0, -3):\n        total += i.to(tl.float32)", lambda row: 22.0),
    "tl.range": (
        "for i in tl.range(0, 6, 2, num_stages=2):\n        total += i.cast(tl.float32)",
        lambda row: 6.0,
    ),
    "tl.range by one": (
        "for i in tl.range(4):\n        total += i.to(tl.float32)",
        lambda row: 6.0,
    ),
    "unrolled": ("for i in tl.static_range(4):\n        total += float(i)", lambda row: 6.0),
    "32 bits": (
        "for i in range(2147483000, 2147483001):\n        total += (i * 2 < 0).to(tl.float32)",
        lambda row: 1.0,
    ),
    "64 bits": (
        "for i in range(n.to(tl.int64) + 2147483000, n + 2147483001):\n        total += (i * 2 > 0).to(tl.float32)",
        lambda row: 1.0,
    ),
    "assertion": (
        "if n > 0:\n        assert n < 0, 'goes'\n    tl.device_assert(n < 0)\n    total += 1.0",
        lambda row: 1.0,
    ),
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops_count_as_the_compiler_s(interpreter: Zygote, name: str) -> None:
    body, expected = LOOPS[name]
    text = extract(
        "def run(x): pass\n" + ROW.format(body="total = 0.0\n    " + body, result="v * 0 + total")
    ).text
    x = torch.ones(3, 8)
    plan = rowwise("kernel", (3, 8), "float32", block=64)
    answer = run(interpreter, text, Execution(plan, (x,)))[0]
    assert isinstance(answer, Executed), answer
    assert answer.outputs[0][:, 0].tolist() == [expected(row) for row in range(3)]


@pytest.mark.parametrize("step", [-1, 0])
def test_a_step_known_at_run_time_only_is_positive(interpreter: Zygote, step: int) -> None:
    plan = rowwise("kernel", (3, 8), "float32", block=64)
    text = ROW.format(body=f"for i in range(n, 0, n - {8 - step}):\n        v += 1.0", result="v")
    found = rejection(run(interpreter, text, Execution(plan, (torch.ones(3, 8),))))
    assert (
        found.guard == "kernel_error"
        and f"in steps of {step}: only a constant step" in found.reason
    )


@pytest.mark.parametrize(
    "name", ["exp", "log", "sqrt", "rsqrt", "sin", "floor", "erf", "abs", "sigmoid"]
)
def test_functions_of_one_value_are_methods_too(interpreter: Zygote, name: str) -> None:
    x = torch.linspace(0.5, 3.0, 24).reshape(3, 8)
    torch.testing.assert_close(
        row(interpreter, x, f"v.{name}()"), getattr(torch, name)(x), rtol=1e-6, atol=1e-6
    )


LOGIC = {
    "(v > 1.0) and (v < 2.0)": lambda x: (x > 1) & (x < 2),
    "(v < 1.0) or (v > 2.0)": lambda x: (x < 1) | (x > 2),
    "not (v > 1.0)": lambda x: ~(x > 1),
    "(v > 1.0) and (v < 2.0) and (v != 1.5)": lambda x: (x > 1) & (x < 2) & (x != 1.5),
    "(BLOCK > 1) and (v > 1.0)": lambda x: x > 1,
    "(BLOCK < 1) or (v > 1.0)": lambda x: x > 1,
    "(not (v > 1.0)) or (row == 1)": lambda x: ~(x > 1) | (torch.arange(3) == 1)[:, None],
}


@pytest.mark.parametrize("condition", LOGIC)
def test_logic_is_elementwise(interpreter: Zygote, condition: str) -> None:
    x = torch.linspace(0.5, 3.0, 24).reshape(3, 8)
    assert torch.equal(
        row(interpreter, x, f"tl.where({condition}, 1.0, 0.0)"), LOGIC[condition](x).float()
    )


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_the_first_of_equal_elements_is_found(interpreter: Zygote, name: str) -> None:
    x = torch.tensor([[2.0, 2, 2, 2, 2], [1, 3, 3, 1, 1], [5, 4, 4, 5, 4]])
    body = f"other = {-9.0 if name == 'argmax' else 9.0}\n    i = tl.{name}(tl.where(mask, v, other), axis=0)"
    assert torch.equal(
        row(interpreter, x, "v * 0 + i", body)[:, 0], getattr(torch, name)(x, 1).float()
    )


CONSTANTS = {
    "C * v": lambda x: 3 * x,
    "v * C": lambda x: 3 * x,
    "C - v": lambda x: 3 - x,
    "C / v": lambda x: 3 / x,
    "C + C * v": lambda x: 3 + 3 * x,
    "tl.where(C > v, v, C)": lambda x: x.clamp(max=3),
    "-C * v": lambda x: -3 * x,
    "C.value * v": lambda x: 3 * x,
    "half(v)": lambda x: 1.5 * x,
    "tl.maximum(v, C)": lambda x: x.clamp(min=3),
    "v + (C // 2)": lambda x: x + 1,
}


@pytest.mark.parametrize("result", CONSTANTS)
def test_constants_of_the_module_calculate_like_numbers(interpreter: Zygote, result: str) -> None:
    helper = (
        "C: tl.constexpr = tl.constexpr(3)\n\n@triton.jit\ndef half(v):\n    return C * (v * 0.5)\n"
    )
    x = torch.arange(1.0, 25.0).reshape(3, 8)
    plan = rowwise("kernel", (3, 8), "float32", block=64)
    answer = run(
        interpreter,
        HEADER + helper + ROW.removeprefix(HEADER).format(body="pass", result=result),
        Execution(plan, (x,)),
    )
    assert isinstance(answer[0], Executed), answer
    torch.testing.assert_close(answer[0].outputs[0], CONSTANTS[result](x), rtol=1e-6, atol=0)


SPECIAL = torch.tensor(
    [
        [
            0.0,
            -0.0,
            1.0,
            -1.0,
            3.0,
            65504.0,
            1e-8,
            -1e-8,
            float("inf"),
            -float("inf"),
            float("nan"),
            1.00390625,
        ]
    ]
)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize(
    ("triton", "expected"),
    [
        ("v + v * v", lambda x: x + x * x),
        ("v - 0.1", lambda x: x - 0.1),
        ("-v", lambda x: -x),
        ("tl.abs(v)", torch.abs),
        ("tl.where(v > 0, v, 0.5 * v)", lambda x: torch.where(x > 0, x, 0.5 * x)),
        ("tl.maximum(v, 0.25)", lambda x: torch.fmax(x, torch.full_like(x, 0.25))),
        ("tl.minimum(v, 0.25)", lambda x: torch.fmin(x, torch.full_like(x, 0.25))),
        (
            "tl.clamp(v.to(tl.float32), -1.0, 2.0, propagate_nan=tl.PropagateNan.ALL)",
            lambda x: x.float().clamp(-1, 2).to(x.dtype),
        ),
        (
            "tl.clamp(v.to(tl.float32), -1.0, 2.0)",
            lambda x: x.float().nan_to_num(nan=-1.0).clamp(-1, 2).to(x.dtype),
        ),
    ],
)
def test_elementwise_arithmetic_has_the_dtype_s_own_meaning(
    interpreter: Zygote, dtype: torch.dtype, triton: str, expected: object
) -> None:
    x = torch.cat([SPECIAL, torch.linspace(-3, 3, 12)[None]]).to(dtype)
    assert callable(expected)
    torch.testing.assert_close(
        row(interpreter, x, triton), expected(x), rtol=0, atol=0, equal_nan=True
    )


@pytest.mark.parametrize("target", ["bfloat16", "float16", "float32"])
def test_stores_round_to_nearest_even_like_torch(interpreter: Zygote, target: str) -> None:
    bits = torch.randint(-(2**31), 2**31, (4, 50), dtype=torch.int64).to(torch.int32)
    x = torch.cat([bits.view(torch.float32), torch.linspace(-1e-7, 1e-7, 200).reshape(4, 50)])
    dtype = getattr(torch, target)
    plan = LaunchPlan(
        buffers_of(dense(0, (8, 50), "float32"), dense(1, (8, 50), target), inputs=1),
        (dense(0, (8, 50), "float32"),),
        (
            launch(
                "kernel",
                (8, 1, 1),
                {"BLOCK": 64},
                x0=dense(0, (8, 50), "float32"),
                out=dense(1, (8, 50), target),
                n=50,
            ),
        ),
        (dense(1, (8, 50), target),),
    )
    answer = run(interpreter, ROW.format(body="pass", result="v"), Execution(plan, (x,)))[0]
    assert isinstance(answer, Executed)
    torch.testing.assert_close(answer.outputs[0], x.to(dtype), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    ("body", "guard", "words"),
    [
        ("v = v + undefined_name", "kernel_error", "undefined_name"),
        ("v = tl.sum(v, axis=3)", "kernel_error", "axis"),
        ("while n > 0:\n        v = v + 1.0", "timeout", "did not end"),
        ("for i in range(4000000):\n        tl.device_print('v', v)", "output_flood", "prints"),
    ],
)
def test_failures_name_the_guard_and_the_next_kernel_is_right(
    interpreter: Zygote, body: str, guard: str, words: str
) -> None:
    plan = rowwise("kernel", (2, 40), "float32", block=64)
    x = torch.ones(2, 40)
    good = Execution(plan, (x,))
    seconds = 3.0 if guard == "timeout" else 60.0
    found = rejection(
        run(interpreter, ROW.format(body=body, result="v"), good, good, seconds=seconds)
    )
    assert found.guard == guard and words in found.reason and "\n" not in found.reason, found
    assert isinstance(run(interpreter, ROW.format(body="pass", result="v"), good)[0], Executed)


class Twice(Zygote):
    """Runs every job twice, as after a worker that was lost, and answers with the second outcome."""

    def run(
        self,
        entry: str,
        payload: bytes,
        *,
        limits: Limits,
        fds: Sequence[int] = (),
        cancel: CancelToken | None = None,
    ) -> Outcome:
        super().run(entry, payload, limits=limits, fds=fds, cancel=cancel)
        return super().run(entry, payload, limits=limits, fds=fds, cancel=cancel)


def test_a_job_that_is_run_again_counts_its_runs_from_the_start() -> None:
    plan = rowwise("kernel", (2, 40), "float32", block=64)
    endless = ROW.format(body="while n > 0:\n        v = v + 1.0", result="v")
    twice = Execution(plan, (torch.ones(2, 40),)), Execution(plan, (torch.ones(2, 40),))
    with Twice(interpret=True) as zygote:
        answers = run(zygote, endless, *twice, seconds=1.0)
    # Counted on, the first run would pass for one that ended, with whatever lies in its memory.
    assert len(answers) == 1 and rejection(answers).guard == "timeout"


@pytest.mark.parametrize("data", [b"", b"\xff", b"[" * 50_000, b"{}", b"[5]", b"9" * 5000])
def test_an_unreadable_answer_blames_no_kernel(data: bytes) -> None:
    with pytest.raises(JobLost, match="malformed answer"):
        _answer(Outcome("ok", data, "", 0.1), 1, 1, 1.0)
